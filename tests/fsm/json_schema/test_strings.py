"""Strings of several alternatives, against `jsonschema`."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.fsm import Compiler, Vocabulary
from phloem.fsm.json_schema.lengths import joined
from phloem.fsm.text.dfa import of_lengths

from ..vocabularies import BYTES
from .walks import num_judged_alike

TOKENS = [b'"', b"a", b"aaa", b"aaaaaaa", b'a"', b'aaaa"', b'"aa', "é".encode(), "aéa".encode()]
OTHERS = [bytes((byte,)) for byte in range(256) if byte not in b'"a']
PIECES = Vocabulary([*TOKENS, b"", *OTHERS], [9])


@settings(deadline=None)  # the first one waits for compiled loops
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
    texts = [ending.rjust(length, filler) for length in range(12) for ending in ("a", "b", "") for filler in "ax"]
    assert num_judged_alike({"anyOf": options}, texts) is not None


def test_thousands_of_lengths_are_one_text() -> None:
    constraint = Compiler(BYTES).json_schema(
        {"anyOf": [{"type": "string", "minLength": n, "maxLength": n} for n in range(2000)]}
    )
    assert len(constraint.texts) == 1
    assert constraint.accepts(b'"' + b"a" * 1999 + b'"') and not constraint.accepts(b'"' + b"a" * 2000 + b'"')


lengths = st.sets(st.integers(0, 90), min_size=2, max_size=30)


def strings_of(lengths: set[int], endless_from: int | None, **others: Any) -> dict[str, Any]:
    options: list[dict[str, Any]] = [{"type": "string", "minLength": n, "maxLength": n, **others} for n in lengths]
    return {"anyOf": options + ([] if endless_from is None else [{"minLength": endless_from, **others}])}


@settings(deadline=None)
@given(lengths, st.integers(80, 120) | st.none(), st.sampled_from(["", "^[ab]*$", "^(ab)*a?$", "^a*b{0,3}$"]))
def test_lengths_with_gaps_are_exactly_those(found: set[int], endless_from: int | None, pattern: str) -> None:
    schema = strings_of(found, endless_from, **({"pattern": pattern} if pattern else {}))
    constraint = Compiler(BYTES).json_schema(schema)
    for length in range(130):
        has_length = length in found or (endless_from is not None and length >= endless_from)
        for text in ("a" * length, ("ab" * length)[:length], "a" * (length - 1) + "b" * (length > 0), "x" * length):
            is_valid = has_length and re.search(pattern, text) is not None
            assert constraint.accepts(json.dumps(text).encode()) == is_valid, text


@settings(deadline=None)
@given(lengths, st.integers(80, 120) | st.none(), st.lists(st.integers(0, 8), max_size=12))
def test_masks_over_lengths_with_gaps_are_those_of_brute_force(
    found: set[int], endless_from: int | None, choices: list[int]
) -> None:
    def goes_on(text: bytes) -> bool:
        """Whether the text begins some string of these lengths."""
        written = text.decode()
        if not written.startswith('"'):
            return not written
        inner = written[1:]
        is_closed = inner.endswith('"')
        length = len(inner) - is_closed
        if '"' in inner[:length]:
            return False
        is_endless = endless_from is not None and (length >= endless_from or not is_closed)
        return is_endless or (length in found if is_closed else length <= max(found))

    constraint = Compiler(PIECES).json_schema(strings_of(found, endless_from))
    cursor, text = constraint.cursor(), b""
    for choice in choices:
        allowed = np.flatnonzero(np.unpackbits(cursor.row().view(np.uint8), bitorder="little"))
        allowed = allowed[allowed < 10]
        expected = [i for i in range(9) if goes_on(text + PIECES.tokens[i])]
        if cursor.is_accepting:
            expected = [9]
        assert allowed.tolist() == expected, text
        if cursor.is_accepting:
            return
        token = expected[choice % len(expected)]
        assert cursor.advance(token)
        text += PIECES.tokens[token]


@settings(deadline=None)
@given(lengths, st.integers(0, 5), st.randoms())
def test_texts_of_lengths_with_gaps_end_within_their_budget(found: set[int], more: int, rng: Any) -> None:
    constraint = Compiler(PIECES).json_schema(strings_of(found, None))
    budget = constraint.min_tokens() + more
    cursor, text = constraint.cursor(), b""
    for left in range(budget, 0, -1):
        if cursor.is_accepting:
            break
        allowed = np.flatnonzero(np.unpackbits(cursor.row_within(left).view(np.uint8), bitorder="little"))
        token = int(rng.choice(allowed))
        assert cursor.advance(token)
        text += PIECES.tokens[token]
    assert len(json.loads(text)) in found


@pytest.mark.parametrize("pattern", ["", "^[a-z]*$", "^([a-z]+ )*[a-z]*!?$"])
def test_thousands_of_lengths_with_gaps_are_one_text(pattern: str) -> None:
    constraint = Compiler(BYTES).json_schema(
        strings_of(set(range(0, 6000, 3)), None, **({"pattern": pattern} if pattern else {}))
    )
    assert len(constraint.texts) == 1
    assert constraint.accepts(b'"' + b"a" * 5250 + b'"') and not constraint.accepts(b'"' + b"a" * 5251 + b'"')


@settings(deadline=None)
@given(lengths, st.sampled_from(["", "^[ab]*$", "^(ab)*a?$"]))
def test_keys_and_different_items_of_lengths_with_gaps(found: set[int], pattern: str) -> None:
    names = strings_of(found, None, **({"pattern": pattern} if pattern else {}))
    keys, lists = {"type": "object", "propertyNames": names}, {"type": "array", "items": names, "uniqueItems": True}
    compiler = Compiler(BYTES)
    objects, arrays = compiler.json_schema(keys), compiler.json_schema(lists)
    for length in range(95):
        for text in (("ab" * length)[:length], "x" * length):
            is_name, written = length in found and re.search(pattern, text) is not None, json.dumps(text)
            assert objects.accepts(f"{{{written}:1}}".encode()) == is_name, text
            assert arrays.accepts(f"[{written}]".encode()) == is_name, text
            assert not arrays.accepts(f"[{written},{written}]".encode()), text


bounds = st.tuples(st.integers(0, 60), st.integers(0, 60) | st.none())


@given(st.lists(bounds, min_size=1, max_size=20), st.integers(0, 70))
def test_only_lengths_up_to_a_limit_are_counted_together(found: list[tuple[int, int | None]], limit: int) -> None:
    options = joined([(("pattern", "x"), ("length", *bound)) for bound in found], lambda _: limit)
    for length in range(70):
        taken = 0
        for _, *tests in options:
            for kind, *arguments in tests:
                spans = arguments[0] if kind == "lengths" else [arguments]
                taken += any(least <= length and (most is None or length <= most) for least, most in spans)
                assert kind == "length" or of_lengths(spans).accepts("x" * length) == any(
                    least <= length and (most is None or length <= most) for least, most in spans
                )
            taken += not tests
        assert taken == any(least <= length and (most is None or length <= most) for least, most in found)
    counted = [test for tests in options for test in tests if test[0] == "lengths"]
    assert len(counted) <= 1
    assert all((least if most is None else most) <= limit for _, spans in counted for least, most in spans)
