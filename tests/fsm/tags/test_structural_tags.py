"""Tags in free text: every short text judged by a parser written from the definition, formats one by one, mistakes."""

from __future__ import annotations

import itertools
import json
import random
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.errors import ConstraintError, EmptyLanguage, InvalidStructuralTag
from phloem.fsm import Compiler
from phloem.fsm.foresight import forced_bytes
from phloem.fsm.text.free_text import first_marks, free_text, text_until

from ..vocabularies import BYTES, accepts, brute_force, mixed_vocabulary, random_walk, small_vocabulary, words
from .definition import is_written

COMPILER = Compiler(BYTES)
PIECES = Compiler(small_vocabulary([b"ab", b"<a", b"a<", b"b<", b"ba", b"aab", b"bc", b"ca"]))
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
    "additionalProperties": False,
}
CALLS: dict[str, Any] = {
    "type": "structural_tag",
    "structures": [
        {"begin": "<function=weather>", "schema": WEATHER, "end": "</function>"},
        {"begin": "<function=count>", "schema": {"type": "integer"}, "end": "</function>"},
    ],
    "triggers": ["<function="],
}


marks = st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=3, unique=True).map(tuple)


@settings(max_examples=60, deadline=None)
@given(marks)
def test_free_text_holds_no_mark_and_ends_at_the_first(marks: tuple[str, ...]) -> None:
    free = free_text(marks)
    untils = {ends: text_until(marks, ends) for ends in first_marks(marks)}
    for word in words("abc", 5):
        assert free.accepts(word) == (not any(mark in word for mark in marks))
        completed = frozenset(mark for mark in marks if word.endswith(mark))
        is_first = bool(completed) and not any(mark in word[:-1] for mark in marks)
        for ends, until in untils.items():
            assert until.accepts(word) == (is_first and completed == ends), (marks, word)


MARKS = st.text("ab<", min_size=1, max_size=3)
TEXTS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.sampled_from(["c", "c*", "[ab]", "", "a|bc", "(ab)+", "[^a]*"]).map(lambda p: {"type": "regex", "pattern": p}),
    MARKS.map(lambda text: {"type": "const_string", "value": text}),
    st.fixed_dictionaries(
        {"type": st.just("any_text")},
        optional={"excludes": st.lists(MARKS, min_size=1, max_size=2), "max_chars": st.integers(0, 3)},
    ),
)


def tags(content: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    end = st.one_of(MARKS, MARKS, st.just(""))
    ends = st.one_of(end, st.lists(end, min_size=1, max_size=2))
    return st.fixed_dictionaries({"type": st.just("tag"), "begin": MARKS, "content": content, "end": ends})


@st.composite
def triggered(draw: st.DrawFn, content: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    form: dict[str, Any] = {"type": "triggered_tags", "tags": draw(st.lists(tags(content), min_size=1, max_size=3))}
    form["triggers"] = [tag["begin"][: draw(st.integers(1, len(tag["begin"])))] for tag in form["tags"]]
    form.update({name: draw(st.booleans()) for name in ("at_least_one", "stop_after_first")})
    return {**form, "excludes": draw(st.lists(MARKS, max_size=1))}


def larger(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    def form(kind: str, **keys: Any) -> st.SearchStrategy[dict[str, Any]]:
        return st.fixed_dictionaries({"type": st.just(kind), **keys})

    elements, flag = st.lists(inner, min_size=1, max_size=3), st.booleans()
    least, most = st.integers(0, 2), st.sampled_from([-1, 2, 3])
    listed = {"tags": st.lists(tags(inner), min_size=1, max_size=2), "separator": st.sampled_from(["", "c", "a"])}
    return st.one_of(
        triggered(inner),
        triggered(inner),
        tags(inner),
        form("sequence", elements=elements),
        form("or", elements=elements),
        form("repeat", content=inner, min=least, max=most),
        form("dispatch", rules=st.dictionaries(MARKS, inner, min_size=1, max_size=2).map(rules_of), loop=flag),
        form("tags_with_separator", **listed, at_least_one=flag, stop_after_first=flag),
    )


def rules_of(contents: dict[str, Any]) -> list[Any]:
    return [[mark, content] for mark, content in contents.items()]


@settings(max_examples=120, deadline=None)
@given(st.recursive(TEXTS, larger, max_leaves=4), st.randoms(use_true_random=False))
def test_every_text_is_judged_as_defined(form: dict[str, Any], rng: random.Random) -> None:
    description = {"type": "structural_tag", "format": form}
    try:
        constraint = COMPILER.structural_tag(description)
    except EmptyLanguage:
        assert not any(is_written(form, word) for word in words("ab<c", 3))
        return
    for word in words("ab<c", 3):
        assert constraint.accepts(word.encode()) == is_written(form, word), (form, word)
    constraint = PIECES.structural_tag(description)
    for more in (0, 1, 4, 12):
        text, _ = random_walk(constraint, rng, max(1, constraint.min_tokens() + more))
        assert is_written(form, text.decode()), (form, text)
        changed = text.decode().replace(rng.choice("ab<c"), rng.choice("ab<c"), 1)
        assert COMPILER.structural_tag(description).accepts(changed.encode()) == is_written(form, changed), changed


@pytest.mark.parametrize(
    ("text", "is_allowed"),
    [
        ("", True),
        ("No function is needed, <functio", True),
        ("<function=", False),
        ('Yes. <function=weather>{"city":"Oslo"}</function>', True),
        ('<function=weather>{"city":"Oslo","days":3}</function> and <function=count>7</function>.', True),
        ('<function=weather>{"days":3}</function>', False),
        ("<function=count>x</function>", False),
        ("<function=other>1</function>", False),
        ("<<function=count>1</function><", True),
    ],
)
def test_the_older_form_constrains_calls_and_nothing_else(text: str, is_allowed: bool) -> None:
    assert accepts(COMPILER.structural_tag(CALLS), text) is is_allowed
    assert accepts(COMPILER.structural_tag(json.dumps(CALLS)), text) is is_allowed


def test_what_is_certain_inside_a_tag_is_forced() -> None:
    cursor = COMPILER.structural_tag(CALLS).cursor()
    for byte in b"free text <function=w":
        assert forced_bytes(cursor) == b"" or cursor.num_consumed > len("free text <function=")
        assert cursor.advance(byte)
    assert forced_bytes(cursor) == b'eather>{"city":"'


def tagged(content: Any, end: Any = "</t>") -> dict[str, Any]:
    return {"type": "tag", "begin": "<t>", "content": content, "end": end}


FREE = {"type": "any_text"}


@pytest.mark.parametrize(
    ("form", "allowed", "refused"),
    [
        ({"type": "json_schema", "json_schema": {"type": "integer"}}, ["7"], ["7.5"]),
        (
            {"type": "json_schema", "json_schema": WEATHER, "any_order": True},
            ['{"days":1,"city":"Ur"}', '{"city":"Ur"}'],
            ['{"days":1}'],
        ),
        ({"type": "grammar", "grammar": 'root ::= "(" root ")" | "x"'}, ["((x))"], ["(x"]),
        (FREE, ["", "anything\n"], []),
        ({"type": "any_text", "max_chars": 2}, ["", "äö"], ["abc"]),
        ({"type": "optional", "content": {"type": "const_string", "value": "a"}}, ["", "a"], ["aa"]),
        ({"type": "star", "content": {"type": "const_string", "value": "a"}}, ["", "aaa"], ["b"]),
        ({"type": "plus", "content": {"type": "const_string", "value": "a"}}, ["a", "aaa"], [""]),
        (tagged(FREE, ["</t>", "</u>"]), ["<t>x</t>", "<t>x</u>"], ["<t>x</u></t>"]),
    ],
)
def test_formats_besides_the_definition(form: dict[str, Any], allowed: list[str], refused: list[str]) -> None:
    constraint = COMPILER.structural_tag({"type": "structural_tag", "format": form})
    assert [text for text in allowed if not accepts(constraint, text)] == []
    assert [text for text in refused if accepts(constraint, text)] == []


def test_masks_agree_with_brute_force_in_free_text_and_inside_tags() -> None:
    constraint = Compiler(mixed_vocabulary(1500, 3)).structural_tag(CALLS)
    automaton = constraint.automaton
    text = b'A caf\xc3\xa9. <func <function=weather>{"city":"S\xc3\xa3o \\"P","days":12}</function> <function=count>'
    state = automaton.start
    for byte in text:
        assert (constraint.caches.masks.row(state).bits == brute_force(constraint, state)).all()
        state = automaton.advance_bytes(state, bytes([byte]))
        assert state


@pytest.mark.parametrize("budget", [14, 20, 60])
def test_walks_end_in_texts_whose_calls_are_valid(budget: int) -> None:
    constraint = Compiler(mixed_vocabulary(300, 5)).structural_tag({**CALLS, "at_least_one": True})
    rng = random.Random(budget)
    shortest = constraint.min_tokens()
    for _ in range(40):
        data, ended = random_walk(constraint, rng, shortest + budget)
        calls = re.findall(r"<function=(\w+)>(.*?)</function>", data.decode(), re.DOTALL)
        assert ended and calls
        for name, arguments in calls:
            value = json.loads(arguments)
            assert isinstance(value, int) if name == "count" else isinstance(value["city"], str)


@pytest.mark.parametrize(
    ("description", "pointer"),
    [
        ({}, ""),
        ({"format": {"type": "wizard"}}, "/format/type"),
        ({"format": {"type": "const_string"}}, "/format/value"),
        ({"format": {"type": "token", "token": 5}}, "/format/token"),
        ({"format": {"type": "exclude_token"}}, "/format/type"),
        ({"format": {"type": "any_text", "max_tokens": 5}}, "/format/max_tokens"),
        ({"format": {"type": "any_text", "excludes": ["x", "\ud800"]}}, "/format/excludes"),
        ({"format": {"type": "const_string", "value": "\udfff"}}, "/format/value"),
        ({"format": {"type": "tag", "begin": "<", "content": FREE, "end": "\udc00"}}, "/format/end"),
        ({"format": {"type": "dispatch", "rules": [["\ud800", FREE]]}}, "/format/rules/0/0"),
        ({"format": {"type": "dispatch", "rules": [["a"]]}}, "/format/rules/0"),
        ({"format": {"type": "any_text", "excludes": [1]}}, "/format/excludes"),
        ({"format": {"type": "any_text", "excludes": [""]}}, "/format/excludes"),
        ({"format": {"type": "triggered_tags", "triggers": ["<"], "tags": []}}, "/format/tags"),
        ({"format": {"type": "repeat", "content": FREE, "min": 3, "max": 2}}, "/format"),
        ({"format": {"type": "repeat", "content": FREE, "min": -2, "max": 2}}, "/format/min"),
        ({**CALLS, "at_least_one": "yes"}, "/at_least_one"),
        ({"format": {"type": "json_schema", "json_schema": True, "style": "yaml"}}, "/format/style"),
        ({"format": {"type": "sequence", "elements": []}}, "/format/elements"),
        ({"format": {"type": "sequence", "elements": [FREE, 3]}}, "/format/elements/1"),
        ({"format": {"type": "regex", "pattern": "("}}, "/format/pattern, offset 0"),
        ({"format": {"type": "grammar", "grammar": "root ::= x"}}, "/format/grammar, line 1, column 10"),
        ({"format": {"type": "json_schema", "json_schema": {"type": "wizard"}}}, "/format/json_schema/type"),
        ({"structures": [{"begin": "<a>", "schema": {}, "end": "x"}], "triggers": ["<b"]}, "/structures/0/begin"),
        ({"structures": [{"begin": "<a>", "end": "x"}], "triggers": ["<a"]}, "/structures/0/schema"),
        ({"structures": [{"begin": "<a>", "schema": {}, "end": "x"}], "triggers": []}, "/triggers"),
        ({"structures": [{"begin": 5, "schema": {}, "end": "x"}], "triggers": ["a"]}, "/structures/0/begin"),
    ],
)
def test_mistakes_are_named_with_their_place(description: dict[str, Any], pointer: str) -> None:
    with pytest.raises(ConstraintError) as caught:
        COMPILER.structural_tag(description)
    assert caught.value.pointer == pointer


def test_endless_nesting_is_refused() -> None:
    form: dict[str, Any] = FREE
    for _ in range(100):
        form = {"type": "optional", "content": form}
    with pytest.raises(InvalidStructuralTag, match="nested deeper"):
        COMPILER.structural_tag({"format": form})
    with pytest.raises(InvalidStructuralTag, match="not JSON"):
        COMPILER.structural_tag("{")


def test_the_keys_of_a_tag_may_come_in_any_order_and_be_none_but_the_named_ones() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
    texts = ['<f>{"a":1,"b":2}</f>', '<f>{"b":2,"a":1}</f>', '<f>{"a":1,"x":0}</f>']
    for any_order, extra_keys in itertools.product((False, True), ("schema", "never")):
        options = {"any_order": any_order, "extra_keys": extra_keys}
        older = {"structures": [{"begin": "<f>", "schema": schema, "end": "</f>", **options}], "triggers": ["<f>"]}
        content = {"type": "json_schema", "json_schema": schema, **options}
        newer = {"format": {"type": "tag", "begin": "<f>", "content": content, "end": "</f>"}}
        for description in (older, newer):
            constraint = COMPILER.structural_tag(description)
            assert [accepts(constraint, text) for text in texts] == [True, any_order, extra_keys == "schema"]
    with pytest.raises(InvalidStructuralTag) as caught:
        COMPILER.structural_tag({"format": {"type": "json_schema", "json_schema": schema, "extra_keys": "some"}})
    assert caught.value.pointer == "/format/extra_keys"
