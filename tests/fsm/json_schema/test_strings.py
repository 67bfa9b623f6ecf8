"""Strings of several alternatives, against `jsonschema`."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from phloem.fsm import Compiler

from ..vocabularies import BYTES


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9) | st.none(), st.sampled_from(["", "^[ab]*$", "^.*a$"])),
        min_size=2,
        max_size=6,
    )
)
def test_alternatives_that_differ_in_lengths_alone_are_their_union(
    alternatives: list[tuple[int, int | None, str]],
) -> None:
    options = []
    for least, most, pattern in alternatives:
        option: dict[str, Any] = {"type": "string", "minLength": least}
        option |= {} if most is None else {"maxLength": most}
        options.append(option | ({"pattern": pattern} if pattern else {}))
    schema = {"anyOf": options}
    judge = Draft202012Validator(schema)
    texts = [ending.rjust(length, filler) for length in range(12) for ending in ("a", "b", "") for filler in "ax"]
    if not any(judge.is_valid(text) for text in texts):
        return
    constraint = Compiler(BYTES).json_schema(schema)
    for text in texts:
        assert constraint.accepts(json.dumps(text).encode()) == judge.is_valid(text), text


def test_thousands_of_lengths_are_one_text() -> None:
    constraint = Compiler(BYTES).json_schema(
        {"anyOf": [{"type": "string", "minLength": n, "maxLength": n} for n in range(2000)]}
    )
    assert len(constraint.texts) == 1
    assert constraint.accepts(b'"' + b"a" * 1999 + b'"') and not constraint.accepts(b'"' + b"a" * 2000 + b'"')
