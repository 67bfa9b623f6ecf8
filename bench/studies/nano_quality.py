"""How good the bundled model is on documents it has never seen: JSON, questions, chats under a system prompt.

    python bench/studies/nano_quality.py [--documents 400] [--seed 2026] [--model nano]

Documents are fresh (their names are invented from the seed, and the training draws from other seeds). All answers are
greedy unless the row says otherwise:

* **extraction**: the document and "Extract the … as JSON.", without constraint, under the kind's JSON schema, and under
  the schema at temperature 1. Valid: it parses. Schema: it validates. Fields: share of the record's leaves that are
  right. Exact: the object equals the record.
* **questions**: each document's questions, one by one; the answer's text must be right to the letter.
* **desks**: a system prompt with facts about a shop, a hotel or a team, and a user who asks for one of them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import jsonschema

import phloem as ph

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from nano_chat import DESKS
from nano_text import KINDS, SYSTEM_PROMPT, Document, documents

MAX_TOKENS = 160
Messages = list[dict[str, str]]


def chat(system: str, user: str) -> Messages:
    """A system message and one question."""
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def answers(
    engine: ph.Engine, chats: list[Messages], schemas: list[dict[str, Any]] | None = None, temperature: float = 0.0
) -> list[str]:
    """The model's replies, all requests in one batch."""
    texts: dict[str, str] = {}
    order = []
    for index, messages in enumerate(chats):
        params = ph.SamplingParams(max_tokens=MAX_TOKENS, temperature=temperature, seed=index)
        constraint = ph.json_schema(schemas[index]) if schemas else None
        order.append(engine.core.add(engine.tokenizer.apply_chat_template(messages), params, constraint))
    while engine.core.has_work:
        for delta in engine.core.step():
            texts[delta.request_id] = texts.get(delta.request_id, "") + delta.text
    return [texts[request_id] for request_id in order]


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every scalar of a JSON value with its path."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}[{index}]")
    else:
        yield path, value


def judge(document: Document, reply: str) -> dict[str, float]:
    """The four scores of one extraction, each from 0 to 1."""
    wanted = dict(leaves(document.record))
    try:
        found = json.loads(reply)
    except ValueError:
        return {"valid": 0.0, "schema": 0.0, "fields": 0.0, "exact": 0.0}
    given = dict(leaves(found))
    is_valid = jsonschema.Draft202012Validator(document.kind.schema).is_valid(found)
    right = sum(path in given and given[path] == value for path, value in wanted.items())
    return {
        "valid": 1.0,
        "schema": float(is_valid),
        "fields": right / len(wanted),
        "exact": float(found == document.record),
    }


def mean(values: list[float]) -> float:
    """The mean; of nothing, 0."""
    return sum(values) / max(1, len(values))


def report_extraction(engine: ph.Engine, found: list[Document]) -> None:
    """One line per mode, then one per kind for the unconstrained mode."""
    chats = [chat(SYSTEM_PROMPT, f"{document.text}\n\n{document.extraction()}") for document in found]
    schemas = [document.kind.schema for document in found]
    modes = {
        "unconstrained": answers(engine, chats),
        "constrained": answers(engine, chats, schemas),
        "constrained, temperature 1": answers(engine, chats, schemas, temperature=1.0),
    }
    columns = ("valid", "schema", "fields", "exact")
    print(f"{'extraction':28}" + "".join(f"{column:>9}" for column in columns))
    for name, replies in modes.items():
        rows = [judge(document, reply) for document, reply in zip(found, replies, strict=True)]
        print(f"{name:28}" + "".join(f"{mean([row[column] for row in rows]):9.1%}" for column in columns))
    for kind in KINDS:
        rows = [judge(d, reply) for d, reply in zip(found, modes["unconstrained"], strict=True) if d.kind.name == kind]
        print(f"  {kind:26}" + "".join(f"{mean([row[column] for row in rows]):9.1%}" for column in columns))


def report_questions(engine: ph.Engine, found: list[Document], seed: int) -> None:
    """Short answers about one document."""
    rng = Random(seed)
    asked = [(document, *pair) for document in found for pair in document.questions(rng)]
    replies = answers(engine, [chat(SYSTEM_PROMPT, f"{d.text}\n\n{question}") for d, question, _ in asked])
    right = [(d.kind.name, float(reply == answer)) for (d, _, answer), reply in zip(asked, replies, strict=True)]
    print(f"\n{'questions':28}{'right':>9}\n{'all':28}{mean([score for _, score in right]):9.1%}")
    for kind in KINDS:
        print(f"  {kind:26}{mean([score for name, score in right if name == kind]):9.1%}")


def report_desks(engine: ph.Engine, count: int, seed: int) -> None:
    """Chats over a system prompt of facts, by the number of facts."""
    print(f"\n{'desks':28}{'right':>9}")
    for num_facts in (3, 6, 12):
        rng = Random(seed + num_facts)
        chats, wanted = [], []
        for index in range(count):
            facts, exchanges = DESKS[index % len(DESKS)](rng, num_facts)
            question, answer = rng.choice(exchanges)
            chats.append(chat(facts, question))
            wanted.append(answer)
        right = [float(a == b) for a, b in zip(answers(engine, chats), wanted, strict=True)]
        each = "  ".join(f"{desk.__name__} {mean(right[i :: len(DESKS)]):.1%}" for i, desk in enumerate(DESKS))
        print(f"{f'{num_facts} goods, guests or people':28}{mean(right):9.1%}   {each}")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=400)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--model", default="nano", help='a checkpoint folder, or "nano" (the bundled model)')
    options = parser.parse_args()
    found = list(documents(options.seed, options.documents))
    with ph.Engine(options.model) as engine:
        print(f"{options.documents} documents of {len(KINDS)} kinds, seed {options.seed}\n")
        report_extraction(engine, found)
        report_questions(engine, found, options.seed)
        report_desks(engine, options.documents // 2, options.seed)


if __name__ == "__main__":
    main()
