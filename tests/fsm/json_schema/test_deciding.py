"""Conditions that are decided without a case for each; what they mean: `test_factoring`."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from phloem.errors import ConstraintTooLarge
from phloem.fsm import Compiler

from ..vocabularies import BYTES
from .walks import num_judged_alike


def test_a_hundred_conditions_on_one_key_are_no_more_cases_than_constants() -> None:
    count = 100
    schema = {
        "type": "object",
        "properties": {"kind": {"enum": [f"k{n}" for n in range(count)]}},
        "required": ["kind"],
        "allOf": [
            {
                "if": {"properties": {"kind": {"const": f"k{n}"}}},
                "then": {"required": [f"f{n}"], "properties": {f"f{n}": {"const": n}}},
            }
            for n in range(count)
        ],
    }
    constraint = Compiler(BYTES).json_schema(schema)
    for n in (0, 57, 99):
        assert constraint.accepts(b'{"kind":"k%d","f%d":%d}' % (n, n, n))
        assert not constraint.accepts(b'{"kind":"k%d","f%d":%d}' % (n, n, n + 1))
        assert not constraint.accepts(b'{"kind":"k%d"}' % n)


def test_listed_strings_lose_what_other_conditions_refuse() -> None:
    words = ["a", "ab", "abc", "b", "bc", "\u00e9", "", "aaaa"]
    tests: list[dict[str, Any]] = [
        {"enum": ["a", "ab", "b", "\u00e9", "aaaa"]},
        {"not": {"enum": ["ab", "zz"]}},
        {"not": {"const": "b"}},
        {"minLength": 1},
        {"maxLength": 2},
        {"pattern": "^a"},
        {"not": {"pattern": "b$"}},
        {"maxLength": 10**9},
    ]
    for size in (1, 2, 3):
        for chosen in itertools.combinations(tests, size):
            assert (
                num_judged_alike({"type": "string", "enum": words, "allOf": list(chosen)}, [*words, "zz"]) is not None
            )


def test_only_the_strictest_bounds_on_a_number_count() -> None:
    rng = random.Random(3)
    names = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
    for _ in range(60):
        whole = rng.random() < 0.5
        parts = [{rng.choice(names): rng.randint(-4, 4) / (1 if whole else 2)} for _ in range(rng.randint(2, 5))]
        values = [n if whole else n / 2 for n in range(-10, 11)]
        assert num_judged_alike({"type": "integer" if whole else "number", "allOf": parts}, values) is not None


def test_keys_that_imply_one_another_too_often_are_refused_with_their_place() -> None:
    ring = {f"k{n}": [f"k{(n + 1) % 1200}"] for n in range(1200)}
    schema = {"properties": {"a": {"type": "object", "dependentRequired": ring}}}
    with pytest.raises(ConstraintTooLarge, match=r"^/properties/a: the keys imply one another"):
        Compiler(BYTES).json_schema(schema, key_order="any")


def test_too_many_patterns_on_one_string_are_refused_with_their_place() -> None:
    patterns = [{"pattern": f"[^{chr(97 + n % 26)}]{{0,{n}}}x"} for n in range(300)]
    with pytest.raises(ConstraintTooLarge, match=r"^/items: .* states"):
        Compiler(BYTES).json_schema({"items": {"type": "string", "allOf": patterns}})


def test_very_many_triggers_in_free_text_are_refused() -> None:
    structures = [{"begin": f"<t{n}>", "schema": True, "end": "</t>"} for n in range(1000)]
    with pytest.raises(ConstraintTooLarge, match="1000 marks"):
        Compiler(BYTES).structural_tag({"structures": structures, "triggers": [f"<t{n}>" for n in range(1000)]})


def test_look_aheads_that_pile_up_are_refused_soon() -> None:
    pattern = "".join(f"(?=.{{{n}}}[^{chr(97 + n % 26)}])" for n in range(40)) + ".*"
    with pytest.raises(ConstraintTooLarge, match=r"^/pattern: .*determinise"):
        Compiler(BYTES).json_schema({"type": "string", "pattern": pattern})
