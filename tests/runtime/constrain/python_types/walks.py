"""What a model that knows nothing writes under the constraint of a type, and whether a text may be written."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

import phloem as ph
from phloem.fsm import Compiler, Constraint, Vocabulary

END = 256
COMPILER = Compiler(Vocabulary([bytes([byte]) for byte in range(END)] + [b""], [END]))
MOST_ASCII = 0.7
"""Else nearly every character of a text would be one of several bytes."""


def compiled(kind: Any) -> Constraint:
    spec = ph.json_schema(kind)
    return COMPILER.json_schema(str(spec.source), extra_keys=spec.extra_keys, whitespace="compact")


def written(constraint: Constraint, rng: Random, max_tokens: int) -> str:
    """A text of at most n bytes."""
    cursor, data = constraint.cursor(), bytearray()
    for left in range(max(max_tokens, constraint.min_tokens()), 0, -1):
        allowed = np.flatnonzero(np.unpackbits(cursor.row_within(left).view(np.uint8), bitorder="little")).tolist()
        plain = [token_id for token_id in allowed if token_id < 128 or token_id == END]
        token_id = rng.choice(plain if plain and rng.random() < MOST_ASCII else allowed)
        assert cursor.advance(token_id)
        if token_id == END:
            break
        data.append(token_id)
    return data.decode()


def takes(constraint: Constraint, text: str) -> bool:
    cursor = constraint.cursor()
    return all(cursor.advance(byte) for byte in text.encode()) and cursor.is_accepting
