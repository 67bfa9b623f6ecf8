"""Answers that match a pattern, or are one of a few choices.

    python examples/regex_constraint.py

Patterns are the usual regular expressions (without look-around and backreferences); the whole answer matches.
"""

import phloem as ph

SYSTEM = "You read documents. Answer briefly, or give JSON."
DOCUMENT = "Invoice 4821 for Kelmor Ltd. The order was 12 x lamp at 45. The total is 540 EUR. The invoice is paid."

QUESTIONS = {
    "Which invoice is it?": ph.regex(r"[0-9]{4}"),
    "What is the total?": ph.regex(r"[1-9][0-9]* (EUR|USD|GBP)"),
    "Which currency?": ph.choice(["EUR", "USD", "GBP"]),
    "Is it paid?": ph.choice(["yes", "no"]),
}


def main() -> None:
    engine = ph.Engine()
    for question, constraint in QUESTIONS.items():
        messages = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": f"{DOCUMENT}\n\n{question}"},
        ]
        answer = engine.chat(messages, ph.SamplingParams(max_tokens=16, temperature=0.0), constraint)
        print(f"{question:22} {answer.text}")


if __name__ == "__main__":
    main()
