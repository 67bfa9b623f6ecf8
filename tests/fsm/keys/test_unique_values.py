"""No list has an item twice, whatever its items are: masks are compared bit for bit with what can become valid."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phloem.errors import ConstraintTooLarge, EmptyLanguage, UnsupportedSchema
from phloem.fsm import Compiler, Vocabulary
from phloem.fsm.json_schema import KeyOrder

from ..vocabularies import allowed_ids
from .judging import Judge, pairs

WORDS = [
    b'"a"', b'"a":', b'{"a":', b'{"a":1', b'},{"a":1', b'},{"a":', b'"},{"', b'1,', b',1', b'1,1', b'1,1]', b'[1',
    b'],[', b'],[1]', b'[[1],[1]]', b'[]', b'{}', b'{},{}', b'1]', b'1}', b'1}]', b'1},', b'"a":1}', b'"b":1',
    b',"b":1}', b'10', b'0.5', b'true', b',true', b'true]', b'"}', b'"}]', b']]', b'}]', b'1,"b"', b'{"a":1},{"a":1}',
    b'-1', b'.5', b'"a",',
]  # fmt: skip
TOKENS = [*(bytes([byte]) for byte in range(256)), *WORDS, b""]
EOS = len(TOKENS) - 1
ALPHABET = b'{}[]":,abeflnrstu01.-'

LIST: Any = {"type": "array", "uniqueItems": True}
AN_INTEGER: Any = {"type": "integer", "minimum": 0}
CLOSED: Any = {
    "type": "object",
    "properties": {"a": {"type": "boolean"}, "b": {"enum": [1, 10]}},
    "additionalProperties": False,
}
SCHEMAS: dict[str, Any] = {
    "numbers": LIST | {"items": {"type": "number", "minimum": -2}},
    "two whole numbers or more": LIST | {"items": AN_INTEGER, "minItems": 2},
    "objects of few values": LIST | {"items": CLOSED, "maxItems": 3},
    "objects": LIST | {"items": CLOSED | {"properties": {"a": AN_INTEGER, "b": {"const": True}}, "required": ["a"]}},
    "two objects or three": LIST | {"items": CLOSED | {"properties": {"a": AN_INTEGER}}, "minItems": 2, "maxItems": 3},
    "objects with any keys": LIST | {"items": {"type": "object", "additionalProperties": {"const": 1}}},
    "numbers or words": LIST | {"items": {"anyOf": [AN_INTEGER, {"type": "boolean"}, {"type": "string"}]}},
    "lists of numbers": LIST | {"items": {"type": "array", "items": AN_INTEGER, "maxItems": 2}},
    "unique lists of words": LIST | {"items": LIST | {"items": {"anyOf": [CLOSED, {"type": "null"}]}, "maxItems": 2}},
    "behind a fixed one": LIST | {"prefixItems": [{"const": 1}, AN_INTEGER], "items": {"type": ["integer", "boolean"]}},
    "some word among numbers": LIST
    | {"items": {"anyOf": [AN_INTEGER, {"enum": ["a", "b"]}]}, "contains": {"const": "a"}},
    "one object at the most": LIST | {"items": {"anyOf": [AN_INTEGER, CLOSED]}, "contains": CLOSED, "maxContains": 1},
    "anything": LIST,
}
# lists that may also be read in a way in which items may come twice; and the texts in which they do so
LOOSE: dict[str, Any] = {
    "numbers, or few that may come twice": (
        {"anyOf": [LIST | {"items": AN_INTEGER}, {"type": "array", "items": {"enum": [1, 10]}, "maxItems": 3}]},
        [f"[{','.join(chosen)}]" for count in (2, 3) for chosen in itertools.product(("1", "10"), repeat=count)],
    ),
    "objects, or one that comes twice, and then a word": (
        {
            "anyOf": [
                LIST | {"items": {"anyOf": [CLOSED, {"const": "b"}]}},
                {"type": "array", "prefixItems": [CLOSED, CLOSED, {"const": "b"}], "items": False, "minItems": 3},
            ]
        },
        [
            f'[{text},{text},"b"]'
            for text in (
                *("{}", '{"a":true}', '{"a":false}', '{"b":1}', '{"b":10}'),
                *(f'{{"a":{word},"b":{number}}}' for word in ("true", "false") for number in (1, 10)),
            )
        ],
    ),
    "two lists of which the inner may repeat": (
        {"anyOf": [LIST | {"items": LIST | {"items": AN_INTEGER}}, {"const": [[1, 1]]}, {"const": [[1], [1]]}]},
        ["[[1,1]]", "[[1],[1]]"],
    ),
}
ALL = SCHEMAS | {name: schema for name, (schema, _) in LOOSE.items()}


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return Compiler(Vocabulary(TOKENS, [EOS]))


def repeats(text: str, depth: int) -> bool:
    """Whether a list of a text that has begun has an item twice, or an object a key, by reading what is complete.

    Args:
        depth: in how many brackets, its own one counted, a list may be whose items must differ.
    """
    decoder, open_lists, position = json.JSONDecoder(object_pairs_hook=pairs), list[Any](), 0
    while position < len(text):
        if text[position] == "[":
            open_lists.append([])
        elif text[position] == "{":
            open_lists.append({})
        elif text[position] in "]}":
            open_lists.pop()
        elif text[position] == '"':
            return False  # it has not ended
        if text[position] in "[]{},:" and position + 1 < len(text) and text[position + 1] not in "]}":
            try:
                value, end = decoder.raw_decode(text, position + 1)
            except ValueError as error:
                if "twice" in str(error):
                    return True
            else:
                if text[end : end + 1] in (",", "]") and text[position] in "[," and isinstance(open_lists[-1], list):
                    known = json.dumps(value, sort_keys=True)
                    if known in open_lists[-1] and len(open_lists) <= depth:
                        return True
                    open_lists[-1].append(known)
                elif text[position] in "{," and isinstance(open_lists[-1], dict) and end < len(text):
                    if value in open_lists[-1]:
                        return True
                    open_lists[-1][value] = None
                if not isinstance(value, (dict, list)):
                    position = end - 1
        position += 1
    return False


def judge_of(compiler: Compiler, name: str, key_order: KeyOrder = "schema") -> Judge:
    repeating = [text.encode() for text in LOOSE[name][1]] if name in LOOSE else []
    depth = 1 if name in ("lists of numbers", "anything") else 9
    constraint = compiler.json_schema(ALL[name], key_order=key_order)

    def repeats_something(text: bytes) -> bool:
        return repeats(text.decode(errors="replace"), depth)

    return Judge(constraint, ALL[name], TOKENS, ALPHABET, repeating, repeats_something, spare=8)


@pytest.mark.parametrize("name", ALL)
def test_masks_are_those_of_valid_texts(compiler: Compiler, name: str) -> None:
    judge_of(compiler, name).check_masks(6, 9)


@pytest.mark.parametrize("key_order", ["schema", "any"])
@pytest.mark.parametrize("name", ALL)
def test_within_any_budget_the_text_ends_and_is_valid(compiler: Compiler, name: str, key_order: KeyOrder) -> None:
    judge_of(compiler, name, key_order).check_budgets(30 if key_order == "schema" else 10)


@pytest.mark.parametrize("name", ["anything", "two lists of which the inner may repeat", "objects of few values"])
def test_cursors_that_went_back_remember_their_own_items(compiler: Compiler, name: str) -> None:
    judge_of(compiler, name).check_going_back(150)


def test_items_of_a_list_that_may_repeat_come_in_one_token_though_it_began_as_one_that_may_not(
    compiler: Compiler,
) -> None:
    looser = {"type": "array", "prefixItems": [AN_INTEGER], "items": CLOSED}
    schema = LIST | {"items": {"anyOf": [LIST | {"items": AN_INTEGER}, looser]}}
    cursor = compiler.json_schema(schema).cursor()
    for token in (b"[", b"[", b"1", b",", b"{},{}", b"]", b",", b"[", b"1", b",", b"{},{}"):
        token_id = TOKENS.index(token)
        assert token_id in allowed_ids(cursor.row())
        assert cursor.advance(token_id)
    assert TOKENS.index(b"]") not in allowed_ids(cursor.row())


kinds = st.sampled_from([
    AN_INTEGER, CLOSED, {"type": "boolean"}, {"type": "string"}, {"type": "number"}, {"const": None},
    {"enum": [1, 1.5, "a", [1]]}, {"type": "object"}, {"type": "string", "maxLength": 1},
    {"type": "integer", "minimum": 0, "maximum": 3}, {"$ref": "#"}, True,
])  # fmt: skip
bounds = st.fixed_dictionaries({}, optional={"minItems": st.integers(0, 3), "maxItems": st.integers(1, 4)})


def around(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Lists that are mostly unique, closed objects and alternatives of what is given."""
    lists = st.builds(
        lambda items, first, is_unique, ends: {
            "type": "array", "items": items, "uniqueItems": is_unique, **ends,
            **({"prefixItems": first} if first else {}),
        },
        inner, st.lists(inner, max_size=2), st.sampled_from([True, True, True, False]), bounds,
    )  # fmt: skip
    objects = st.builds(
        lambda named, required: CLOSED | {"properties": named, "required": ["a"] if required and "a" in named else []},
        st.dictionaries(st.sampled_from("ab"), inner, max_size=2), st.booleans(),
    )  # fmt: skip
    return lists | lists | objects | st.lists(inner, min_size=2, max_size=2).map(lambda options: {"anyOf": options})


@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=60)
@given(st.recursive(kinds, around, max_leaves=6), st.sampled_from(("schema", "any")), st.randoms(use_true_random=False))
def test_whatever_the_items_are_every_text_ends_and_is_valid(
    compiler: Compiler, schema: Any, key_order: KeyOrder, chance: random.Random
) -> None:
    schema = {"type": "array", "items": schema, "uniqueItems": True, "maxItems": 4}
    try:
        constraint = compiler.json_schema(schema, key_order=key_order)
    except (UnsupportedSchema, EmptyLanguage):
        return
    judge = Judge(constraint, schema, TOKENS, ALPHABET, [], lambda text: False, spare=0)
    for _ in range(4):
        try:
            judge.check_walk(chance, chance.randrange(40))
        except ConstraintTooLarge as error:
            assert "nested too deeply" in str(error)


def test_a_search_that_would_nest_without_end_is_given_up_at_its_place(compiler: Compiler) -> None:
    """Three different lists, two of which have three different lists, two of which ..."""
    three = {"type": "array", "uniqueItems": True, "minItems": 3, "maxItems": 3}
    items = three | {
        "prefixItems": [three | {"items": {"$ref": "#"}}],
        "items": {"anyOf": [{"$ref": "#"}, {"type": "object"}]},
    }
    cursor = compiler.json_schema({"type": "array", "items": items, "uniqueItems": True, "maxItems": 4}).cursor()
    assert cursor.advance(ord("[")) and cursor.advance(ord("["))
    with pytest.raises(ConstraintTooLarge, match=r"/items.*nested too deeply"):
        cursor.row_within(40)


def test_lists_may_be_nested_deeper_than_pythons_calls(compiler: Compiler) -> None:
    cursor = compiler.json_schema({"type": "array", "items": {"$ref": "#"}, "uniqueItems": True}).cursor()
    assert all(cursor.advance(ord(byte)) for byte in "[" * 1100 + "]" * 1100)
    assert cursor.is_accepting


VALUES: list[Any] = [1, 2, 3, 10, True, None, "a", "", [], {}, [1], [True], 1.5, {"a": True}, {"a": True, "b": 1}]
containers = st.sampled_from([
    {"const": 1}, {"type": "integer"}, {"type": "string"}, {"const": {}}, {"enum": [1, "a"]}, {"type": "object"},
    {"type": "array"}, {"type": "integer", "minimum": 3},
])  # fmt: skip
containing = st.fixed_dictionaries(
    {"items": kinds, "contains": containers, "maxItems": st.integers(1, 5)},
    optional={
        "minContains": st.integers(0, 3),
        "maxContains": st.integers(1, 3),
        "minItems": st.integers(0, 4),
        "allOf": st.builds(lambda goal: [{"contains": goal}], containers),
        "prefixItems": st.lists(kinds, min_size=1, max_size=2),
    },
)


@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=60)
@given(
    containing,
    st.lists(st.lists(st.sampled_from(VALUES), max_size=4), max_size=30),
    st.sampled_from(("schema", "any")),
    st.randoms(use_true_random=False),
)
def test_lists_that_contain_something_and_differ_end_and_are_valid(
    compiler: Compiler, schema: Any, lists: list[Any], key_order: KeyOrder, chance: random.Random
) -> None:
    schema = LIST | schema
    try:
        constraint = compiler.json_schema(schema, key_order=key_order)
    except UnsupportedSchema:
        return
    except EmptyLanguage:
        assert not any(map(jsonschema.Draft202012Validator(schema).is_valid, lists))
        return
    judge = Judge(constraint, schema, TOKENS, ALPHABET, [], lambda text: False, spare=0)
    for _ in range(3):
        judge.check_walk(chance, chance.randrange(40))
    for value in lists:
        text = json.dumps(value, separators=(",", ":")).encode()
        assert constraint.accepts(text) == judge.is_valid(text), text


@pytest.mark.parametrize(
    ("items", "count"),
    [
        ({"enum": ["a", [], {}]}, 3),
        ({"enum": [[1], [2]]}, 2),
        (CLOSED, 9),
        ({"type": "array", "items": {"type": "boolean"}, "maxItems": 1}, 3),
    ],
)
def test_all_values_that_there_are_can_be_asked_for_and_not_one_more(
    compiler: Compiler, items: Any, count: int
) -> None:
    schema = LIST | {"items": items, "minItems": count}
    judge = Judge(compiler.json_schema(schema), schema, TOKENS, ALPHABET, [], lambda text: False, spare=0)
    for seed in range(3):
        assert len(json.loads(judge.check_walk(random.Random(seed), seed))) == count
    with pytest.raises((UnsupportedSchema, EmptyLanguage)):
        compiler.json_schema(schema | {"minItems": count + 1})
