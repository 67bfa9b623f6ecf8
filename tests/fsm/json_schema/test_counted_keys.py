"""Bounds on the number of keys, some of which can have no value: instances are judged alike, and no walk gets stuck."""

from __future__ import annotations

import json
from itertools import permutations, product
from random import Random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phloem.errors import EmptyLanguage, UnsupportedSchema
from phloem.fsm.json_schema import KeyOrder, Whitespace

from .strategies import KEY_ORDERS
from .walks import accepts, constraint_of, judge_of, walk, written

KEYS = ("a", "b", "ab", "x", "y")
NULL = {"type": "null"}
ENDLESS = {"$ref": "#/$defs/endless"}
IMPOSSIBLE: tuple[Any, ...] = (
    False,
    {"type": "array", "items": {"enum": ["a"]}, "minItems": 2, "uniqueItems": True},
    ENDLESS,
    {"type": "array", "prefixItems": [ENDLESS], "minItems": 1},
    {"type": "object", "additionalProperties": ENDLESS, "minProperties": 1},
    {
        "type": "object",
        "patternProperties": {"^.$": ENDLESS},
        "propertyNames": {"enum": ["a", "bb"]},
        "minProperties": 3,
    },
)
DEFINITIONS = {"endless": {"type": "object", "properties": {"x": ENDLESS}, "required": ["x"]}}

INSTANCES = [
    {key: value for key, value in zip(KEYS, chosen, strict=True) if value is not ...}
    for chosen in product((..., None, 0), repeat=len(KEYS))
    if ... in chosen
]

values = st.sampled_from((*IMPOSSIBLE, NULL, NULL, {"const": 0}, {"enum": [None, 0]}))
keys = st.sampled_from(KEYS)
few_keys = st.lists(keys, max_size=2, unique=True)


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, Any]:
    """Objects with bounds on their keys, some of whose values are impossible."""
    schema: dict[str, Any] = {"type": "object", "$defs": DEFINITIONS}
    patterns = st.sampled_from(("^[ab]$", "^a", "^[xy]$", "b$", "^..?$"))
    drawn: dict[str, st.SearchStrategy[Any]] = {
        "properties": st.dictionaries(keys, values, max_size=3),
        "patternProperties": st.dictionaries(patterns, values, max_size=2),
        "additionalProperties": values,
        "propertyNames": st.sampled_from(({"enum": ["a", "b"]}, {"enum": ["a", "ab", "x"]}, {"pattern": "^[abxy]$"})),
        "required": few_keys,
        "minProperties": st.integers(1, 4),
        "maxProperties": st.integers(0, 4),
        "not": st.just({"additionalProperties": NULL}),
    }
    for keyword in draw(st.lists(st.sampled_from(sorted(drawn)), min_size=2, unique=True)):
        schema[keyword] = draw(drawn[keyword])
    return schema


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(schemas(), KEY_ORDERS, st.sampled_from(("compact", "spaced")), st.randoms(use_true_random=False))
def test_keys_that_can_have_no_value_do_not_count(
    schema: Any, key_order: KeyOrder, whitespace: Whitespace, rng: Random
) -> None:
    try:
        grammar = constraint_of(schema, whitespace, key_order)
    except EmptyLanguage:
        grammar = None
    except UnsupportedSchema:
        return
    judge = judge_of(schema)
    for instance in rng.sample(INSTANCES, 50):
        orders = permutations(instance.items()) if grammar else ()
        taken = [accepts(grammar, written(dict(order), whitespace)) for order in orders]
        enough = all if key_order == "any" and "not" not in schema else any
        valid = judge.is_valid(instance)
        assert (enough(taken) if valid and taken else any(taken)) == valid, written(instance)
    for _ in range(3 if grammar else 0):
        text = walk(grammar, rng, 30)
        assert judge.is_valid(json.loads(text)), text
