"""Keys that no schema names and items that must differ, at random: whatever is written is valid, and all that is valid
can be written.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phloem.errors import ConstraintTooLarge, EmptyLanguage, UnsupportedSchema
from phloem.fsm import Compiler, Constraint, Vocabulary
from phloem.fsm.json_schema import KeyOrder, Whitespace

from ..vocabularies import allowed_ids
from .judging import Judge

WORDS = [
    b'"a"', b'"ab"', b'""', b'"a",', b'","', b'","a"', b',"', b'["', b'["a"', b'a"', b'a":', b'":', b'":1',
    b'":1,"', b'{"', b'{"a":', b'"a":1', b'"a":1,"b":', b',"c":1', b',"c":', b'{"c":1', b'1,"', b'1}', b'1},{"',
    b'"],["', b'"]', b'"}', b'[]', b'{}', b'"a","a"', b'"a","b"', b'aa', b'\\"', b'true', b'1,1', b'1,', b'[1',
    b'cd', b'd":', b'c":1,"d":1', b'"]}',
    b', "', b'": ', b'"a": 1', b', "c": 1', b', ', b' ', b'\n', b'"a", "a"', b'",', b'"],',
]  # fmt: skip
TOKENS = [*(bytes([byte]) for byte in range(256)), *WORDS, b""]
EOS = len(TOKENS) - 1
ALPHABET = b'{}[]":,abcdex1true'

strings: st.SearchStrategy[Any] = st.sampled_from([
    {"type": "string"}, {"type": "string", "pattern": "^[ab]{0,2}$"}, {"type": "string", "pattern": "^(a|b.*)$"},
    {"type": "string", "maxLength": 1}, {"type": "string", "minLength": 2, "maxLength": 5}, {"enum": ["a", "ab", ""]},
])  # fmt: skip
scalars = strings | st.sampled_from([{"type": "boolean"}, {"enum": [1, True, "a"]}, {"const": 1}, {"enum": [[1], {}]}])
counts = st.integers(0, 3)


def without_minimum(schema: dict[str, Any]) -> dict[str, Any]:
    """Of few keys no number is asked for: those count, too, of which it only shows late that they can have no value."""
    if "propertyNames" in schema or "patternProperties" in schema:
        schema.pop("minProperties", None)
    return schema


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Lists, mostly of items that differ, objects with keys that are not named, and alternatives of both."""
    lists = st.fixed_dictionaries(
        {"type": st.just("array"), "items": inner, "uniqueItems": st.sampled_from([True, True, False])},
        optional={"minItems": counts, "maxItems": st.integers(1, 4), "prefixItems": st.lists(inner, max_size=2)},
    )
    objects = st.fixed_dictionaries(
        {"type": st.just("object"), "additionalProperties": inner | st.just(False)},
        optional={
            "properties": st.dictionaries(st.sampled_from(["a", "ab", "c"]), inner, max_size=2),
            "patternProperties": st.dictionaries(st.sampled_from(["^[cd]$", "^e", "^(a|cd.)$"]), inner, max_size=2),
            "propertyNames": strings,
            "required": st.lists(st.sampled_from(["a", "c", "d"]), max_size=1),
            "minProperties": counts,
            "maxProperties": st.integers(1, 4),
        },
    ).map(without_minimum)
    return (
        lists
        | lists
        | objects
        | objects
        | st.lists(inner, min_size=2, max_size=2).map(lambda options: {"anyOf": options})
    )


schemas = st.recursive(containers(scalars), containers, max_leaves=4)
VALUES: list[Any] = ["", "a", "b", "ab", "ba", "aa", 1, True, False, [1], {}, "xx"]
values = st.recursive(
    st.sampled_from(VALUES),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["a", "ab", "b", "c", "d", "e", "ee", "cda", ""]), inner, max_size=4)
    ),
    max_leaves=6,
)
key_orders = st.sampled_from(["schema", "any"])


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return Compiler(Vocabulary(TOKENS, [EOS]))


def compiled(
    compiler: Compiler, schema: Any, key_order: KeyOrder, whitespace: Whitespace = "compact"
) -> Constraint | None:
    """The constraint; None if the schema is refused, or said to have no valid instance."""
    try:
        return compiler.json_schema(schema, key_order=key_order, whitespace=whitespace)
    except (UnsupportedSchema, EmptyLanguage, ConstraintTooLarge):
        return None


def judge_of(constraint: Constraint, schema: Any) -> Judge:
    return Judge(constraint, schema, ALPHABET)


@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=150)
@given(schemas, key_orders, st.sampled_from(["compact", "spaced", "flexible"]), st.randoms(use_true_random=False))
def test_every_text_ends_and_is_valid(
    compiler: Compiler, schema: Any, key_order: KeyOrder, whitespace: Whitespace, chance: random.Random
) -> None:
    constraint = compiled(compiler, schema, key_order, whitespace)
    if constraint is not None:
        for _ in range(4):
            judge_of(constraint, schema).check_walk(chance, chance.randrange(40))


@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=150)
@given(schemas, key_orders, st.lists(values, max_size=40))
def test_what_is_valid_is_taken_and_nothing_else(
    compiler: Compiler, schema: Any, key_order: KeyOrder, instances: list[Any]
) -> None:
    constraint = compiled(compiler, schema, key_order)
    if constraint is None:
        return
    judge = judge_of(constraint, schema)
    for value in instances:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
        is_taken, is_valid = constraint.accepts(text), judge.is_valid(text)
        assert is_taken == is_valid or (key_order == "schema" and not is_taken), text


@pytest.mark.parametrize("key_order", ["schema", "any"])
def test_a_token_that_ends_a_value_begins_no_member_where_no_key_is_left(
    compiler: Compiler, key_order: KeyOrder
) -> None:
    """No value fulfils what is asked of all other keys, which only shows when all is compiled."""
    nothing = {"type": "object", "required": ["a"], "dependentSchemas": {"a": {"type": "array"}}}
    schema = {"type": "object", "patternProperties": {"^(ab|ba)$": {"type": "string"}}, "additionalProperties": nothing}
    for text, may_go_on in ((b'{"ab":"a', True), (b'{"ab":"a","ba":"b', False)):
        cursor = compiler.json_schema(schema, key_order=key_order).cursor()
        assert all(map(cursor.advance, text))
        allowed = {TOKENS[token_id] for token_id in allowed_ids(cursor.row())}
        assert (b'",' in allowed, b'","' in allowed) == (may_go_on, may_go_on), text
        assert {b"a", b'"', b'"}'} <= allowed
