"""What rows cost inside a list of items of any kind that must differ, within a budget of tokens.

    python bench/studies/unique_rows.py TEKKEN

TEKKEN: a `tekken.json`, for a vocabulary of 131,072 tokens. Lists are written, in longest tokens: of 20 objects with
two members, also where five are needed, of 300 integers and of 49 values of every kind, within a budget that is far
away (2,000 tokens) and one that is near (400, of integers 1,100). A row is asked for as a step asks for it: with an
allowance of work, again until it is there. Printed, in milliseconds of the second round: rows whole, and the calls of
which they are made, which is what a step waits for.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from typing import Any

import phloem as ph
from phloem.fsm import Compiler, Constraint, Vocabulary
from phloem.runtime.sample.sampler import MASK_WORK

OBJECT = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
CASES: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "objects": ({"items": OBJECT}, [{"a": number, "b": f"x{number}"} for number in range(20)]),
    "5 objects": ({"items": OBJECT, "minItems": 5}, [{"a": number, "b": f"x{number}"} for number in range(20)]),
    "integers": ({"items": {"type": "integer"}}, [*range(300)]),
    "anything": ({}, [(n, n / 2, f"s{n}", [n], {"k": n}, [n, {"a": [n]}], f"t{n}")[n * n % 7] for n in range(49)]),
}


def rows(constraint: Constraint, vocabulary: Vocabulary, text: bytes, budget: int) -> Iterator[list[float]]:
    """By row, the seconds of the calls that it took."""
    cursor, position = constraint.cursor(), 0
    while position < len(text):
        calls, row = [], None
        while row is None:
            began = time.perf_counter()
            row = cursor.row_soon(budget, MASK_WORK)
            calls.append(time.perf_counter() - began)
        yield calls
        ends = range(min(len(text), position + 12), position, -1)
        found = ((end, vocabulary.ids.get(text[position:end], -1)) for end in ends)
        end, token_id = next((end, i) for end, i in found if i >= 0 and int(row[i >> 5]) >> (i & 31) & 1)
        assert cursor.advance(token_id)
        position, budget = end, budget - 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tekken")
    vocabulary = ph.Vocabulary.from_tekken(parser.parse_args().tekken, eos_ids=(2,))
    print(
        f"{'items':<10}{'budget':>7}{'row: median':>13}{'90 of 100':>11}{'longest':>9}{'call: longest':>15}{'calls':>7}"
    )
    for name, (schema, value) in CASES.items():
        text = json.dumps(value, separators=(",", ":")).encode()
        for budget in (2000, 1100 if name == "integers" else 400):
            constraint = Compiler(vocabulary).json_schema({"type": "array", "uniqueItems": True, **schema})
            for _ in range(2):
                found = list(rows(constraint, vocabulary, text, budget))
            whole = sorted(1000 * sum(calls) for calls in found)
            longest = 1000 * max(max(calls) for calls in found)
            middle, late = whole[len(whole) // 2], whole[9 * len(whole) // 10]
            print(
                f"{name:<10}{budget:>7,}{middle:>13.2f}{late:>11.1f}{whole[-1]:>9.0f}{longest:>15.0f}"
                f"{max(map(len, found)):>7}"
            )


if __name__ == "__main__":
    main()
