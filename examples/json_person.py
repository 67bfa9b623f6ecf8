"""JSON from text, as an object of a pydantic class.

    python examples/json_person.py

The class becomes a JSON Schema and the schema an automaton over bytes: tokens that would leave it cannot be chosen, so
the answer is always valid. Text that the schema forces ({"name":" …) is not sampled token by token but jumped over.
"""

from pydantic import BaseModel, Field

import phloem as ph

SYSTEM = "You read documents. Answer briefly, or give JSON."
DOCUMENT = (
    "Meet Toran Grinasen, 47 years old. Toran works as a baker. Toran has a house in Lumsasen. Toran works from home."
)


class Person(BaseModel):
    name: str = Field(min_length=1, max_length=40)
    age: int = Field(ge=0, le=99999)
    job: str = Field(min_length=1, max_length=40)
    city: str = Field(min_length=1, max_length=40)
    remote: bool


def main() -> None:
    engine = ph.Engine()
    messages = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": f"{DOCUMENT}\n\nExtract the person as JSON."},
    ]
    answer = engine.chat(messages, ph.SamplingParams(max_tokens=120, temperature=0.0), ph.json_schema(Person))
    print(answer.text)  # the JSON itself

    person = answer.parsed  # a Person
    assert isinstance(person, Person)
    print(f"{person.name} is {person.age} and lives in {person.city}.")

    usage = answer.usage
    print(f"({usage.completion_tokens} tokens, {usage.jumped_tokens} of them jumped)")


if __name__ == "__main__":
    main()
