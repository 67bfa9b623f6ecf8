"""Conditions on keys and their values that take no cases: they mean what they mean, and many of them are quick."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import jsonschema
import numpy as np
import pytest

from phloem.errors import ConstraintTooLarge, EmptyLanguage
from phloem.fsm import Compiler
from phloem.fsm.any_json import ExtraKeys
from phloem.fsm.json_schema import Whitespace, branching, compile, schema_order

from ..network.test_any_order import assert_costs_are_exact
from ..vocabularies import BYTES, allowed_ids, brute_force, small_vocabulary
from .walks import num_judged_alike, walk, written

KEYS = "abcd"
ABSENT = object()
VALUES = (ABSENT, None, "x", "y", 1, [])
OBJECTS = [
    {key: value for key, value in zip(KEYS, values, strict=True) if value is not ABSENT}
    for values in itertools.product(VALUES, repeat=len(KEYS))
]
OF_VALUES: tuple[Any, ...] = (
    {"const": "x"},
    {"const": "y"},
    {"const": 1},
    {"const": None},
    {"enum": ["x", "y"]},
    {"enum": ["y", 1]},
    {"type": "string"},
    {"type": ["integer", "null"]},
    {"type": "array"},
    {"not": {"const": "x"}},
    {"minLength": 2},
    True,
    False,
)


def condition(rng: random.Random, depth: int) -> dict[str, Any]:
    """What a schema may say of named keys and their values."""
    found: dict[str, Any] = {}
    for _ in range(rng.randint(1, 2)):
        kinds = ("properties", "required", "not", "anyOf", "allOf", "dependentRequired")
        kind = rng.choice(kinds if depth else kinds[:2])
        if kind == "properties":
            found[kind] = {key: rng.choice(OF_VALUES) for key in some_keys(rng)}
        elif kind == "required":
            found[kind] = some_keys(rng)
        elif kind == "not":
            found[kind] = condition(rng, depth - 1)
        elif kind == "dependentRequired":
            found[kind] = {rng.choice(KEYS): some_keys(rng)}
        else:
            found[kind] = [condition(rng, depth - 1) for _ in range(rng.randint(1, 2))]
    return found


def some_keys(rng: random.Random) -> list[str]:
    return rng.sample(KEYS, rng.randint(1, 2))


def rule(rng: random.Random) -> dict[str, Any]:
    kind = rng.choice(("if", "if", "if", "dependentSchemas", "dependentRequired", "anyOf", "oneOf", "allOf"))
    if kind == "if":
        found = {"if": condition(rng, 1), "then": condition(rng, 1)}
        return {**found, "else": condition(rng, 1)} if rng.random() < 0.3 else found
    if kind == "dependentSchemas":
        return {kind: {rng.choice(KEYS): condition(rng, 1)}}
    if kind == "dependentRequired":
        return {kind: {rng.choice(KEYS): some_keys(rng)}}
    if kind == "allOf":
        return {kind: [rule(rng), rule(rng)]}
    return {kind: [condition(rng, 1), condition(rng, 1)]}


def document(rng: random.Random) -> dict[str, Any]:
    """Some rules for objects whose keys are named in order, and maybe for other values, too."""
    properties = {key: rng.choice(OF_VALUES[:-1]) if rng.random() < 0.3 else True for key in KEYS}
    if rng.random() < 0.5:
        properties[rng.choice(KEYS)] = {"enum": rng.sample(["x", "y", 1, None], rng.randint(1, 3))}
    found: dict[str, Any] = {"properties": properties, "allOf": [rule(rng) for _ in range(rng.randint(1, 5))]}
    options = (
        ("type", "object", 0.7),
        ("required", some_keys(rng), 0.5),
        ("minProperties", rng.randint(1, 2), 0.2),
        ("maxProperties", rng.randint(1, 3), 0.2),
        ("additionalProperties", False, 0.2),
    )
    return {**found, **{name: value for name, value, share in options if rng.random() < share}}


NEVER = 1 << 30
WAYS = {
    "carried by the objects": {"FACTORED_FROM": 0},
    "as cases": {"FACTORED_FROM": NEVER, "MANY_SHEETS": NEVER},
    "as cases, contradictions looked for before": {"FACTORED_FROM": NEVER, "MANY_SHEETS": 0},
}


@pytest.mark.parametrize("extra_keys", ["schema", "never"])
@pytest.mark.parametrize("way", WAYS)
def test_conditions_hold_of_exactly_the_objects_that_a_validator_allows(
    way: str, extra_keys: ExtraKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in WAYS[way].items():
        monkeypatch.setattr(branching, name, value)
    monkeypatch.setattr(schema_order, "MIN_RUN", 1)
    rng, num_taken = random.Random(11), 0
    for _ in range(150):
        taken = num_judged_alike(document(rng), [*rng.sample(OBJECTS, 50), None, 1, "x", []], extra_keys=extra_keys)
        assert taken is not None
        num_taken += taken
    assert 400 < num_taken < 150 * 54 - 400


@pytest.mark.parametrize("extra_keys", ["schema", "never"])
def test_conditions_hold_in_every_order_of_keys(extra_keys: ExtraKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branching, "FACTORED_FROM", 0)
    monkeypatch.setattr(
        compile, "Branching", lambda sites, *, mixes, closes: branching.Branching(sites, closes=closes)
    )  # all conditions are carried that can be, not only where they are too many for cases
    rng, compiler = random.Random(12), Compiler(BYTES)
    num_compiled = num_taken = num_refused = 0
    for _ in range(55):
        schema = document(rng)
        judge = jsonschema.Draft202012Validator(schema)
        try:
            constraint = compiler.json_schema(schema, key_order="any", extra_keys=extra_keys)
        except EmptyLanguage:
            constraint = None
        except ConstraintTooLarge as error:
            assert "any order" in str(error) and 'key_order="schema"' in str(error)
            continue
        num_compiled += 1
        for instance in rng.sample(OBJECTS, 80):
            keys = rng.sample(list(instance), len(instance))
            text = written({key: instance[key] for key in keys})
            taken = constraint is not None and constraint.accepts(text.encode())
            assert taken == judge.is_valid(instance), (schema, text)
            num_taken, num_refused = num_taken + taken, num_refused + (not taken)
            if constraint is not None and keys:
                again = f'{text[:-1]},"{rng.choice(keys)}":{json.dumps(rng.choice(VALUES[1:]))}}}'
                assert not constraint.accepts(again.encode()), (schema, again)
        if constraint is not None:
            for _ in range(3):
                text = walk(constraint, rng, 40)
                assert judge.is_valid(json.loads(text)), (schema, text)
    assert num_compiled > 45 and num_taken > 250 < num_refused


def test_the_cost_of_every_state_is_exact_where_conditions_are_carried_in_any_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(branching, "FACTORED_FROM", 0)
    monkeypatch.setattr(compile, "Branching", lambda sites, *, mixes, closes: branching.Branching(sites, closes=closes))
    rng, compiler, num_compiled = random.Random(13), Compiler(BYTES), 0
    for _ in range(40):
        schema = {**document(rng), "type": "object", "additionalProperties": False}
        schema["properties"] = {key: {"enum": rng.sample(["x", "y", 1, 12, None], 3)} for key in KEYS}
        try:
            constraint = compiler.json_schema(schema, key_order="any")
        except (EmptyLanguage, ConstraintTooLarge):
            continue
        num_compiled += 1
        assert_costs_are_exact(constraint.automaton)
    assert num_compiled > 20


def pairs(number: int, *, side_by_side: bool, names_condition: bool = True) -> dict[str, Any]:
    """If one key is "on", another one must be there: `number` such conditions."""
    properties = [(f"k{i}", f"x{i}") for i in range(number)]
    names = [*itertools.chain(*(properties if side_by_side else zip(*properties, strict=True)))]
    rules = [
        {
            "if": {"properties": {key: {"const": "on"}}, **({"required": [key]} if names_condition else {})},
            "then": {"required": [other]},
        }
        for key, other in properties
    ]
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}, "allOf": rules}


@pytest.mark.parametrize("names_condition", [True, False])
@pytest.mark.parametrize(("number", "side_by_side"), [(10, False), (60, True)])
def test_independent_conditions_are_no_cases(number: int, side_by_side: bool, names_condition: bool) -> None:
    schema = pairs(number, side_by_side=side_by_side, names_condition=names_condition)
    constraint, judge = Compiler(BYTES).json_schema(schema), jsonschema.Draft202012Validator(schema)
    rng, names = random.Random(5), list(schema["properties"])
    verdicts = set()
    for share in (0, 0.5, 0.9, 0.97, 1) * 12:
        instance = {name: rng.choice(("on", "off")) for name in names if rng.random() < share}
        text = json.dumps(instance, separators=(",", ":")).encode()
        verdicts.add(judge.is_valid(instance))
        assert constraint.accepts(text) == judge.is_valid(instance)
    assert verdicts == {True, False}


@pytest.mark.parametrize(("whitespace", "number"), [("compact", 30), ("spaced", 10), ("flexible", 10)])
def test_independent_conditions_are_no_cases_in_any_order(number: int, whitespace: Whitespace) -> None:
    schema = pairs(number, side_by_side=False)
    schema["properties"] |= {f"k{i}": {"enum": ["on", 1, 12, "off"]} for i in range(0, number, 2)}
    for rule in schema["allOf"][1::3]:  # neither kind of value is a list of constants
        (found,) = rule["if"]["properties"].values()
        found.update(maxLength=2, pattern="o")
        del found["const"]
    constraint = Compiler(BYTES).json_schema(schema, key_order="any", whitespace=whitespace)
    judge, rng, names = jsonschema.Draft202012Validator(schema), random.Random(6), list(schema["properties"])
    style, verdicts = "spaced" if whitespace == "spaced" else "compact", set()
    for share in (0, 0.5, 0.9, 0.97, 1) * 12:
        chosen = [name for name in names if rng.random() < share]
        instance = {name: rng.choice(("on", "off")) for name in rng.sample(chosen, len(chosen))}
        verdicts.add(judge.is_valid(instance))
        assert constraint.accepts(written(instance, style).encode()) == judge.is_valid(instance)
    assert verdicts == {True, False}


@pytest.mark.parametrize("extra_keys", ["schema", "never"])
def test_masks_within_budgets_where_a_value_belongs_to_the_text_of_its_key(extra_keys: ExtraKeys) -> None:
    schema = pairs(10, side_by_side=True)
    schema["properties"] |= {f"k{i}": {"enum": ["on", 1, 12, "o", "off", None]} for i in range(0, 10, 3)}
    pieces = [
        b'{"',
        b'"k',
        b'":',
        b'":"',
        b'"on"',
        b"on",
        b'on","',
        b'of"',
        b'",',
        b'1,"',
        b"12",
        b'","x',
        b'""}',
        b"ll",
    ]
    constraint = Compiler(small_vocabulary(pieces)).json_schema(schema, key_order="any", extra_keys=extra_keys)
    judge, rng, lens = jsonschema.Draft202012Validator(schema), random.Random(7), set()
    for seed in range(12):
        cursor, text, budget = constraint.cursor(), b"", constraint.min_tokens() + 7 * seed
        while budget and not cursor.is_finished:
            if extra_keys == "never":  # `brute_force` does not know which unnamed keys have been written
                assert np.array_equal(cursor.row(), brute_force(constraint, cursor.state))
            choices = allowed_ids(cursor.row_within(budget))
            assert choices, f"no token is allowed after {text!r}"
            # rather on than to the end
            token_id = rng.choice([one for one in choices if b"}" not in constraint.vocabulary.tokens[one]] or choices)
            assert cursor.advance(token_id)
            budget -= 1
            text += constraint.vocabulary.tokens[token_id]
        assert cursor.is_finished or cursor.is_accepting
        assert judge.is_valid(json.loads(text)), text
        lens.add(len(json.loads(text)))
    assert len(lens) > 3


def test_what_is_refused_in_any_order_names_the_order_that_takes_it() -> None:
    schema = pairs(12, side_by_side=True, names_condition=False)
    placed = {"properties": {"here": schema}, "required": ["here"]}
    with pytest.raises(ConstraintTooLarge, match=r'/properties/here.*key_order="schema"'):
        Compiler(BYTES).json_schema(placed, key_order="any")
    Compiler(BYTES).json_schema(placed, key_order="schema")


@pytest.mark.parametrize("required", [[], ["kind"]])
def test_two_hundred_conditions_on_one_key_take_a_state_for_each(required: list[str]) -> None:
    number = 200
    rules = [
        {"if": {"properties": {"kind": {"const": f"v{i}"}}, "required": ["kind"]}, "then": {"required": [f"x{i}"]}}
        for i in range(number)
    ]
    names = ["kind", *(f"x{i}" for i in range(number))]
    schema = {"type": "object", "properties": {key: {"type": "string"} for key in names}, "required": required}
    constraint = Compiler(BYTES).json_schema({**schema, "allOf": rules})
    for wanted in (0, 1, 7, 8, 100, 199):
        for given in (0, 1, 7, 8, 100, 199):
            text = f'{{"kind":"v{wanted}","x{given}":""}}'.encode()
            assert constraint.accepts(text) == (wanted == given)
    assert constraint.accepts(b'{"kind":"v200"}')
    assert constraint.accepts(b"{}") == (not required)


def test_conditions_next_to_values_that_are_not_objects() -> None:
    schema = pairs(12, side_by_side=True)
    del schema["type"]
    constraint = Compiler(BYTES).json_schema(schema)
    assert [constraint.accepts(text) for text in (b"1", b'"a"', b"[]", b"{}", b'{"k3":"on"}')] == [True] * 4 + [False]
