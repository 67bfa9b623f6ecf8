"""Data with parts that occur more than once, against the text they are written out as."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import phloem
from phloem import json_size
from phloem.errors import ConstraintError, ConstraintTooLarge, InvalidSchema, InvalidStructuralTag
from phloem.fsm import Compiler
from phloem.json_size import MAX_SHARED_TEXT, check_json_size
from phloem.runtime.constrain import spec as constraint_spec

from .fsm.vocabularies import BYTES


def at(data: Any, pointer: str) -> Any:
    for token in pointer.split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        data = data[key] if isinstance(data, dict) else data[int(key)]
    return data


def text_len(data: Any, known: dict[int, int]) -> int:
    """How long the text is, without white space, each part looked at once."""
    if not isinstance(data, (dict, list, tuple)):
        return len(json.dumps(data))
    if id(data) not in known:
        values = list(data.values() if isinstance(data, dict) else data)
        keys = sum(len(json.dumps(key)) + 1 for key in data) if isinstance(data, dict) else 0
        inner = sum(text_len(value, known) for value in values)
        known[id(data)] = 2 + keys + inner + max(len(values) - 1, 0)
    return known[id(data)]


plans = st.lists(st.tuples(st.booleans(), st.lists(st.integers(1, 3), max_size=4)), min_size=1, max_size=40)
"""For each part: whether it is an object, and how far back those of which it is made are."""


def made(plan: list[tuple[bool, list[int]]]) -> list[Any]:
    parts: list[Any] = [{"type": "string"}]
    for is_object, chosen in plan:
        inner = [parts[-min(back, len(parts))] for back in chosen]
        parts.append({"a/b" * index: part for index, part in enumerate(inner)} if is_object else inner)
    return parts


@settings(max_examples=300, deadline=None)
@given(plans)
def test_what_is_refused_is_too_much_text_and_the_place_says_where(plan: list[tuple[bool, list[int]]]) -> None:
    data = made(plan)[-1]
    known: dict[int, int] = {}
    try:
        check_json_size(data, "value", ConstraintError)
    except ConstraintTooLarge as error:
        assert text_len(at(data, error.pointer), known) > MAX_SHARED_TEXT
    else:
        assert text_len(data, known) < 4 * MAX_SHARED_TEXT  # characters between the values are not all counted


@settings(max_examples=200, deadline=None)
@given(plans, st.integers(0, 40))
def test_what_contains_itself_is_refused_where_it_does(plan: list[tuple[bool, list[int]]], index: int) -> None:
    data = made(plan)[-1]
    parts = list(walked(data))
    inner = parts[index % len(parts)]
    if isinstance(inner, dict):
        inner["itself"] = data
    else:
        inner.append(data)
    with pytest.raises(ConstraintError, match=r"contains itself|again and again") as caught:
        check_json_size(data, "value", ConstraintError)
    if "contains itself" in str(caught.value):
        tokens = caught.value.pointer.split("/")
        above = [at(data, "/".join(tokens[:end])) for end in range(1, len(tokens))]
        assert any(part is at(data, caught.value.pointer) for part in above)


def walked(data: Any) -> Iterator[Any]:
    pending, seen = [data], set()
    while pending:
        part = pending.pop()
        if isinstance(part, (dict, list)) and id(part) not in seen:
            seen.add(id(part))
            yield part
            pending += part.values() if isinstance(part, dict) else part


def doubled(part: Any, around: Callable[[Any], Any], times: int = 40) -> Any:
    for _ in range(times):
        part = around(part)
    return part


EXPLODING = {
    "allOf": doubled({}, lambda d: {"allOf": [d, d]}),
    "properties": doubled({}, lambda d: {"properties": {"a": d, "b/c": d}}),
    "const": {"const": doubled((), lambda d: (d, d))},
    "enum": {"enum": doubled([1], lambda d: [d] * 1000, 9)},
    "many values on one level": {"enum": [[[0] * 10_000] * 10_000] * 10_000},
    "dicts of a class of their own": doubled({}, lambda d: OrderedDict(a=d, b=d)),
}


def its_own_part() -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    schema["properties"] = {"children": {"items": [schema, schema]}}
    return schema


def a_list_in_itself() -> dict[str, Any]:
    values: list[Any] = [1]
    values.append(values)
    return {"not": {"enum": values}}


@pytest.mark.parametrize("schema", EXPLODING.values(), ids=EXPLODING)
def test_schemas_that_double_are_refused_with_their_place(schema: Any) -> None:
    for make in (Compiler(BYTES).json_schema, phloem.json_schema):
        with pytest.raises(ConstraintTooLarge, match="again and again") as caught:
            make(schema)
        assert text_len(at(schema, caught.value.pointer), {}) > MAX_SHARED_TEXT
    description = {"structures": [{"begin": "<a>", "end": "</a>", "schema": schema}], "triggers": ["<a>"]}
    for make in (Compiler(BYTES).structural_tag, phloem.structural_tag):
        with pytest.raises(ConstraintTooLarge, match="the structural tag occur") as caught:
            make(description)
        assert caught.value.pointer.startswith("/structures/0/schema")


@pytest.mark.parametrize(
    ("schema", "place"), [(its_own_part(), "/properties/children/items/0"), (a_list_in_itself(), "/not/enum/1")]
)
def test_schemas_that_contain_themselves_are_refused_with_their_place(schema: Any, place: str) -> None:
    for make in (Compiler(BYTES).json_schema, phloem.json_schema):
        with pytest.raises(InvalidSchema, match="contains itself") as caught:
            make(schema)
        assert caught.value.pointer == place
    with pytest.raises(InvalidStructuralTag, match="contains itself"):
        Compiler(BYTES).structural_tag({"format": {"type": "json_schema", "json_schema": schema}})


def test_a_part_may_occur_in_many_places() -> None:
    name = {"type": "string", "maxLength": 3}
    schema = {"properties": {f"name {index}": name for index in range(300)}, "required": ["name 7"]}
    judge, constraint = Draft202012Validator(schema), Compiler(BYTES).json_schema(schema)
    for value in ({"name 7": "a"}, {"name 7": "long"}, {"name 8": "a"}):
        assert constraint.accepts(json.dumps(value, separators=(",", ":")).encode()) == judge.is_valid(value)


def test_what_has_no_part_twice_may_be_as_long_as_it_is() -> None:
    check_json_size({"enum": [[str(index) * 100] for index in range(50_000)]}, "value", ConstraintError)


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=3), inner, max_size=4)),
)


@settings(max_examples=300, deadline=None)
@given(values | plans.map(lambda plan: made(plan)[-1]), st.integers(0, 40))
def test_no_text_is_too_long_that_is_not(data: Any, max_text: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_size, "_MANY", -1)  # few values count as well
        try:
            check_json_size(data, "value", ConstraintError, max_text=max_text)
        except ConstraintTooLarge:
            assert text_len(data, {}) > MAX_SHARED_TEXT or len(json.dumps(data, ensure_ascii=False)) > max_text


@pytest.mark.parametrize("make", [phloem.json_schema, phloem.structural_tag])
def test_what_is_far_too_long_is_not_even_written(make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json, "dumps", None)
    with pytest.raises(ConstraintTooLarge, match="more than 2097152 characters"):
        make({"enum": [f"{index}" * 20 for index in range(50_000)]})
    with pytest.raises(ConstraintTooLarge, match="more than 2097152 characters"):
        make({"allOf": [{"if": {"required": ["a"]}, "then": {}} for _ in range(60_000)]})
    with pytest.raises(ConstraintTooLarge, match="more than 2097152 characters"):
        make({"allOf": [{"if": {"required": ["a" * 40]}}] * 40_000})  # one part, many times


@pytest.mark.parametrize("make", [phloem.json_schema, phloem.structural_tag])
@pytest.mark.parametrize("as_text", [True, False])
def test_a_text_may_have_so_many_characters_and_no_more(make: Callable[..., Any], as_text: bool) -> None:
    most = constraint_spec.MAX_TEXT
    rest = len(json.dumps({"title": ""}))
    for length in (most, most + 1):
        data = {"title": "é" * (length - rest)}
        given = json.dumps(data, ensure_ascii=False) if as_text else data
        if length > most:
            with pytest.raises(ConstraintTooLarge, match=f"has {length} characters|more than {most} characters"):
                make(given)
        else:
            assert len(make(given).source) == most


@pytest.mark.parametrize("options", [["a", 1], [[]], ["a", ["a"]]])
def test_a_choice_is_made_of_texts(options: list[Any]) -> None:
    with pytest.raises(ConstraintError, match="expected text") as caught:
        Compiler(BYTES).choice(options)
    assert caught.value.pointer == f"/{len(options) - 1}"
