"""What guesses save where a model writes real instances: drafts of forced text alone, and with what was written before.

    python bench/studies/habits.py CASES [--vocabulary nano | FILE]... [--step 1] [--max-draft-tokens 16]

CASES is a folder of files `{"schema": …, "tests": [{"valid": bool, "data": …}]}`. The canonical tokens of all valid
instances of a schema (compact, at most 4,000 bytes) are written one after the other, as by a model that is sure of
them: a step takes what is right of a draft, and one token more. Printed apart for the first instances under their
schema and for later ones: steps left of 100 tokens, tokens drafted per 100, and how many of them were right.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from real_vocabularies import read_vocabulary
from schema_cases import cases

from phloem.errors import PhloemError
from phloem.fsm import Compiler, Constraint, Vocabulary
from phloem.fsm.foresight import forced_tokens, guess_within, remember

MAX_BYTES = 4000
BUDGET = 1 << 20  # tokens: never tight


def instances(group: dict[str, Any], vocabulary: Vocabulary, constraint: Constraint) -> Iterator[list[int]]:
    """The tokens of the valid instances that the tokeniser spells exactly and the constraint takes."""
    assert vocabulary.encode is not None
    for test in group["tests"]:
        text = json.dumps(test["data"], separators=(",", ":"), ensure_ascii=False)
        if not test["valid"] or len(text) > MAX_BYTES:
            continue
        try:
            ids = list(vocabulary.encode(text))
        except PhloemError:
            continue
        if b"".join(vocabulary.tokens[t] for t in ids) == text.encode() and all(map(constraint.cursor().advance, ids)):
            yield ids


def write(constraint: Constraint, ids: list[int], max_draft_tokens: int, *, guesses: bool) -> tuple[int, int, int, int]:
    """Writes one instance; tokens, steps, drafted, right."""
    cursor = constraint.cursor()
    num_steps = num_drafted = num_right = 0
    while cursor.num_consumed < len(ids):
        rest = ids[cursor.num_consumed :]
        draft = (
            list(guess_within(cursor, BUDGET, max_draft_tokens).token_ids)
            if guesses
            else forced_tokens(cursor)[:max_draft_tokens]
        )
        draft = draft[: len(rest) - 1]
        right = next((i for i, token_id in enumerate(draft) if token_id != rest[i]), len(draft))
        for token_id in rest[: right + 1]:
            cursor.advance(token_id)
        if guesses:
            remember(cursor, right + 1)
        num_steps += 1
        num_drafted += len(draft)
        num_right += right
    return len(ids), num_steps, num_drafted, num_right


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--vocabulary", action="append")
    parser.add_argument("--step", type=int, default=1, help="every so manieth case")
    parser.add_argument("--max-draft-tokens", type=int, default=16)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    groups = cases(options.folder, "")[:: options.step]
    print(f"{'vocabulary':24}{'instances':>20}{'drafts of':>16}{'steps left':>12}{'drafted':>10}{'right':>8}")
    for name in options.vocabulary or ["nano"]:
        vocabulary = read_vocabulary(name)
        compiler = Compiler(vocabulary)
        totals = np.zeros((2, 2, 4), np.int64)  # first or later, forced or likely, figures
        counts = [0, 0]
        for _, group in groups:
            try:
                constraint = compiler.json_schema(group["schema"])
            except PhloemError:
                continue
            for number, ids in enumerate(instances(group, vocabulary, constraint)):
                counts[min(number, 1)] += 1
                for guesses in (False, True):
                    figures = write(constraint, ids, options.max_draft_tokens, guesses=guesses)
                    totals[min(number, 1), int(guesses)] += figures
        for order, kind in enumerate(("first", "later")):
            for guesses, source in enumerate(("forced text", "likely text too")):
                tokens, steps, drafted, right = totals[order, guesses].tolist()
                print(
                    f"{Path(name).name[:23]:24}{f'{counts[order]} {kind}':>20}{source:>16}{steps / tokens:>12.1%}"
                    f"{drafted / tokens:>10.1%}{right / max(drafted, 1):>8.1%}"
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
