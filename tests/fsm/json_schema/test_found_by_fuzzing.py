"""Schemas that once went wrong, kept as they were found."""

from __future__ import annotations

import json

import pytest

from phloem.errors import UnsupportedSchema
from phloem.fsm import Compiler, Vocabulary

COMPILER = Compiler(Vocabulary([bytes([byte]) for byte in range(256)] + [b""], [256]))
DRAFT = {"$schema": "https://json-schema.org/draft/2020-12/schema"}


def accepts(schema: dict[str, object], value: object) -> bool:
    cursor = COMPILER.json_schema({**DRAFT, **schema}).cursor()
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return all(cursor.advance(byte) for byte in text.encode()) and cursor.is_accepting


def test_an_unevaluated_keyword_that_is_absent_evaluates_nothing() -> None:
    schema = {"allOf": [{"unevaluatedItems": False}], "unevaluatedProperties": False}
    assert not accepts(schema, {"a": 0})
    assert accepts(schema, {})


def test_a_negated_negation_of_a_number_is_itself() -> None:
    schema = {"type": "number", "not": {"unevaluatedItems": False, "not": {"exclusiveMaximum": 0}}}
    assert accepts(schema, -1)
    assert not accepts(schema, 0)


def test_a_key_in_which_only_some_validators_find_a_pattern_fulfils_what_is_asked_either_way() -> None:
    word = {"patternProperties": {"^\\w+$": {"type": "object"}}}  # é is a word in Python, and none in ECMA-262
    assert accepts(word, {"é": {}})
    assert not accepts(word, {"é": 1})
    assert not accepts({**word, "additionalProperties": False}, {"é": {}})
    assert not accepts({**word, "properties": {"é": {"minimum": 1}}}, {"é": 1})
    end = {"patternProperties": {"a$": {"type": "object"}}}  # Python's $ also stands before a last line break
    assert not accepts(end, {"a\n": 1})
    assert accepts(end, {"a\nb": 1})


def test_a_key_in_doubt_proves_neither_that_a_key_is_matched_nor_that_one_is_not() -> None:
    word = {"patternProperties": {"^\\w+$": False}}
    assert not accepts(word, {"é": 1})
    assert not accepts({"not": word}, {"é": 1})
    assert accepts({"not": word}, {"a": 1})
    other = {"not": {**word, "additionalProperties": False}}
    assert not accepts(other, {})
    assert accepts(other, {"-": 1})


def test_a_pattern_that_python_and_ecma_262_read_differently_holds_for_both() -> None:
    brackets = {"type": "string", "pattern": "^\\[[^]]*\\]$"}  # [^] is any character, or the beginning of [^]]
    assert accepts(brackets, "[x]")
    assert not accepts(brackets, "[]")
    assert not accepts(brackets, "[x]]")
    times = {"type": "string", "pattern": "^(a{,2}|b)$"}
    assert accepts(times, "b")
    assert not accepts(times, "aa")
    assert not accepts(times, "a{,2}")
    assert not accepts({"type": "string", "not": times}, "aa")


@pytest.mark.parametrize("pattern", ["^a{,2}$", "^[^]a]$", "^[]a]+$", "^x{,}$"])
def test_a_pattern_under_which_no_text_suits_both_is_refused_with_its_place(pattern: str) -> None:
    with pytest.raises(UnsupportedSchema, match="one thing in ECMA-262 and another in Python") as caught:
        COMPILER.json_schema({"properties": {"a": {"pattern": pattern}}})
    assert caught.value.pointer == "/properties/a/pattern"


def test_options_of_a_one_of_are_apart_only_if_they_are_for_every_reader() -> None:
    word = {"type": "string", "pattern": "^\\w$"}
    assert not accepts({"oneOf": [word, {"const": "é"}]}, "é")  # in Python, é is a word: both options hold
    assert accepts({"oneOf": [word, {"const": "é"}]}, "a")
    end = {"type": "string", "pattern": "\n$"}  # what stands before a last line break is an end in Python
    assert not accepts({"oneOf": [{"type": "string", "pattern": "^a$"}, end]}, "a\n")
    assert not accepts({"oneOf": [{"type": "string", "pattern": "^a{1,99}$"}, end]}, "a\n")
    assert accepts({"oneOf": [{"type": "string", "pattern": "^a{1,99}$"}, end]}, "b\n")


def test_multiples_that_are_not_written_are_multiples_all_the_same() -> None:
    large = {"oneOf": [{"not": {"maximum": 1e17}}, {"type": "number", "multipleOf": 0.1}]}
    assert not accepts(large, 10**30)  # both options hold, though no multiple of 0.1 has that many digits here
    assert accepts(large, 0.5)


def test_no_number_is_written_of_which_a_quotient_in_floats_says_otherwise() -> None:
    assert not accepts({"not": {"multipleOf": 0.3}}, 2**53)
    assert not accepts({"not": {"multipleOf": 0.003}}, 100000000000001)
    assert accepts({"not": {"multipleOf": 0.003}}, 1.001)


def test_a_bound_beyond_the_floats_that_are_dense_holds_for_its_float_as_well() -> None:
    assert not accepts({"minimum": 1e300}, 10**300)  # the float lies above it
    assert not accepts({"exclusiveMinimum": 1e300}, 10**300 + 1)
    assert accepts({"minimum": 1e17}, 10**17)
    assert not accepts({"maximum": 1e23}, 10**23)  # and this one below


def test_no_comma_is_offered_where_all_keys_that_can_have_a_value_are_written() -> None:
    nothing = {"type": "object", "required": ["a"], "dependentSchemas": {"a": {"type": "array"}}}
    schema = {"type": "object", "patternProperties": {"^(ab|ba)$": {}}, "additionalProperties": nothing}
    cursor = COMPILER.json_schema({**DRAFT, **schema}).cursor()
    assert all(map(cursor.advance, b'{"ab":1,"ba":null'))
    assert [byte for byte in range(256) if cursor.row()[byte >> 5] >> (byte & 31) & 1] == [ord("}")]


def test_a_negation_of_a_negated_constant_is_the_constant() -> None:
    closed = {"unevaluatedProperties": False}
    assert [value for value in (1, 2, "1") if accepts({"not": {**closed, "not": {"const": 1}}}, value)] == [1]
    below = {"not": {**closed, "minimum": 5, "not": {"const": 9}}}
    assert [value for value in (1, 4.5, 5, 9, "a") if accepts(below, value)] == [1, 4.5, 9]
    assert [value for value in ("a", "b", 1) if accepts({"not": {**closed, "not": {"const": "a"}}}, value)] == ["a"]
