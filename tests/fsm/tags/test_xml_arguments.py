"""Arguments as XML: whatever is written reads back as a valid object, and every valid one can be written."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from phloem.errors import ConstraintError, ConstraintTooLarge, EmptyLanguage, InvalidSchema, UnsupportedSchema
from phloem.fsm import Compiler, Constraint
from phloem.fsm.json_schema import XmlMarks, XmlStyle, raw_keys, xml_marks
from phloem.fsm.tags.structural_tags import structural_tag_to_grammar

from ..json_schema.strategies import FEW, KEY_ORDERS, keywords, without_dependencies
from ..json_schema.walks import accepts, judge_of, walk, written
from ..vocabularies import BYTES, brute_force, mixed_vocabulary, random_walk

COMPILER = Compiler(BYTES)
STYLES: tuple[XmlStyle, ...] = get_args(XmlStyle)
FORMS = st.tuples(st.sampled_from(STYLES), st.sampled_from(("between", "before", "never")))
VALUES = st.recursive(keywords(FEW)(st.booleans()), lambda inner: keywords(FEW)(inner), max_leaves=3)
WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "unit": {"anyOf": [{"enum": ["C", "F", "1"]}, {"type": "null"}]},
    },
    "required": ["city"],
}


def constraint_of(schema: Any, style: str = "qwen_xml", **options: Any) -> Constraint:
    form = {"type": "json_schema", "style": style, "json_schema": schema, **options}
    return COMPILER.structural_tag({"format": form})


def type_of(value: Any) -> str:
    """The name of a value's JSON type."""
    if isinstance(value, bool):
        return "boolean"
    kinds = {str: "string", dict: "object", list: "array", type(None): "null"}
    return kinds.get(type(value), "number")


def read_back(text: str, marks: XmlMarks, raw: frozenset[str]) -> dict[str, Any]:
    """The documented rule: text where only a string can be, else JSON if it is JSON, else text."""
    found: dict[str, Any] = {}
    while text:
        mark = marks.joint * bool(found) + marks.before_key
        assert text.startswith(mark), text
        key, _, text = text[len(mark) :].partition(marks.after_key)
        assert key not in found, "no key comes twice"
        is_raw = key in raw
        kind = frozenset[str]()
        if marks.kinds:
            mark, kind = next((mark, kind) for mark, kind in marks.kinds if text.startswith(mark))
            is_raw, text = "string" in kind, text.removeprefix(mark)
        if not is_raw and text[0] in '{["':
            found[key], end = json.JSONDecoder().raw_decode(text)
            assert not kind or type_of(found[key]) in kind
            text = text[end:]
            assert text.startswith(marks.end)
            text = text[len(marks.end) :]
            continue
        value, mark, text = text.partition(marks.end)
        assert mark
        found[key] = value
        if not is_raw:
            try:
                found[key] = json.loads(value)
                assert not kind or type_of(found[key]) in kind
            except ValueError:
                assert not kind
    return found


def spelt(instance: dict[str, Any], marks: XmlMarks, raw: frozenset[str]) -> str:
    """An object as XML, every string with quotes that is not raw.

    A raw key has strings only, so a reader takes anything else under it for its text: `1` for `"1"`.
    """

    def value_text(key: str, value: Any) -> str:
        for mark, kind in marks.kinds:
            if type_of(value) in kind:
                return f"{mark}{value if isinstance(value, str) else written(value)}"
        return str(value) if key in raw and isinstance(value, str) else written(value)

    arguments = (
        marks.before_key + key + marks.after_key + value_text(key, value) + marks.end for key, value in instance.items()
    )
    return marks.joint.join(arguments)


@settings(max_examples=120, deadline=None)
@given(keywords(FEW)(VALUES), FORMS, KEY_ORDERS, st.integers(0, 1 << 30))
def test_whatever_is_written_reads_back_as_a_valid_object(schema: Any, form: Any, key_order: str, seed: int) -> None:
    style, breaks = form
    schema = {"$defs": {"p": {"type": ["string", "null"]}, "q": {"enum": ["a", 1, "1"]}}, **schema, "type": "object"}
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    judge, marks = judge_of(schema), xml_marks(style, breaks)
    try:
        constraint = constraint_of(schema, style, line_breaks=breaks, any_order=key_order == "any")
    except (UnsupportedSchema, EmptyLanguage, InvalidSchema, ConstraintTooLarge):
        return
    raw = raw_keys(schema, marks)
    for turn in range(3):
        text = walk(constraint, random.Random(seed + turn), 60)
        judge.validate(read_back(text, marks, raw))


OBJECTS = st.dictionaries(st.sampled_from("abc"), st.sampled_from([*FEW.scalars, [], [1], {"a": "b"}]), max_size=3)
COUNTS: dict[str, Any] = {
    "required": st.lists(st.sampled_from("abc"), unique=True),
    "minProperties": st.integers(0, 2),
    "maxProperties": st.integers(0, 3),
    "dependentRequired": st.dictionaries(st.sampled_from("abc"), st.just(["b"]), max_size=2),
}


RAW_B = {"a": True, "b": {"type": "string"}, "c": True}


@settings(max_examples=120, deadline=None)
@example(RAW_B, {"required": ["b"]}, [{"a": None, "b": 1}, {"a": None, "b": "1"}], ("qwen_xml", "between"), "any")
@example(RAW_B, {"required": ["b"]}, [{"b": [1]}, {"b": None}, {"a": "1"}], ("deepseek_xml", "never"), "schema")
@given(
    st.fixed_dictionaries(dict.fromkeys("abc", VALUES)).map(without_dependencies),
    st.fixed_dictionaries({}, optional=COUNTS),
    st.lists(OBJECTS, min_size=4, max_size=8),
    FORMS,
    KEY_ORDERS,
)
def test_an_object_of_named_keys_can_be_written_exactly_if_it_is_valid(
    values: Any, counts: Any, instances: Any, form: Any, key_order: str
) -> None:
    style, breaks = form
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$defs": {"p": {"type": ["string", "null"]}, "q": {"enum": ["a", 1, "1"]}},
        "type": "object",
        "properties": values,
        **counts,
    }
    judge, marks = judge_of(schema), xml_marks(style, breaks)
    try:
        constraint = constraint_of(schema, style, line_breaks=breaks, any_order=key_order == "any")
    except EmptyLanguage:
        assert not any(map(judge.is_valid, instances))
        return
    except (UnsupportedSchema, InvalidSchema, ConstraintTooLarge):
        return
    raw = raw_keys(schema, marks)
    for instance in instances:
        texts = [spelt(dict(order), marks, raw) for order in itertools.permutations(instance.items())]
        taken = [accepts(constraint, text) for text in texts]
        meant = read_back(texts[0], marks, raw)
        if judge.is_valid(instance):
            assert meant == instance
        if not judge.is_valid(meant):
            assert not any(taken), instance
        else:
            assert all(taken) if key_order == "any" else any(taken), instance


@pytest.mark.parametrize(
    ("text", "is_allowed"),
    [
        ("<parameter=city>\nOslo\n</parameter>", True),
        ("<parameter=city>\n\n\n\n</parameter>", True),
        ("<parameter=city>\n\n</parameter>", False),
        ('<parameter=city>\n"a" \\ <b> </param </parameter\n</parameter>', True),
        ("<parameter=city>\na</parameter>b\n</parameter>", False),
        ("<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n3\n</parameter>", True),
        ("<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n0\n</parameter>", False),
        ('<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n"3"\n</parameter>', False),
        ("<parameter=days>\n3\n</parameter>\n<parameter=city>\nOslo\n</parameter>", False),
        ("<parameter=city>\nOslo\n</parameter>\n<parameter=city>\nOslo\n</parameter>", False),
        ("<parameter=city>\nOslo\n</parameter>\n<parameter=other>\nx\n</parameter>", False),
        ("<parameter=city>\nOslo\n</parameter>\n<parameter=unit>\nC\n</parameter>", True),
        ('<parameter=city>\nOslo\n</parameter>\n<parameter=unit>\n"C"\n</parameter>', True),
        ("<parameter=city>\nOslo\n</parameter>\n<parameter=unit>\n1\n</parameter>", False),
        ('<parameter=city>\nOslo\n</parameter>\n<parameter=unit>\n"1"\n</parameter>', True),
        ("<parameter=city>\nOslo\n</parameter>\n<parameter=unit>\nnull\n</parameter>", True),
        ("<parameter=city>Oslo</parameter>", False),
        ("", False),
    ],
)
def test_the_layout_of_qwen(text: str, is_allowed: bool) -> None:
    assert accepts(constraint_of(WEATHER), text) is is_allowed
    older = COMPILER.structural_tag({"format": {"type": "qwen_xml_parameter", "json_schema": WEATHER}})
    assert accepts(older, text) is is_allowed


@pytest.mark.parametrize(
    ("style", "breaks", "text"),
    [
        ("qwen_xml", "before", "\n<parameter=city>\nUr\n</parameter>\n<parameter=days>\n3\n</parameter>"),
        ("qwen_xml", "never", "<parameter=city>Ur</parameter><parameter=days>3</parameter>"),
        (
            "glm_xml",
            "between",
            "<arg_key>city</arg_key>\n<arg_value>Ur</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>",
        ),
        (
            "glm_xml",
            "never",
            "<arg_key>city</arg_key><arg_value>Ur</arg_value><arg_key>days</arg_key><arg_value>3</arg_value>",
        ),
        ("minimax_xml", "between", '<parameter name="city">Ur</parameter>\n<parameter name="days">3</parameter>'),
        (
            "deepseek_xml",
            "between",
            '<｜DSML｜parameter name="city" string="true">Ur</｜DSML｜parameter>\n'
            '<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>',
        ),
        (
            "kimi_k3_xml",
            "between",
            '<|open|>argument key="city" type="string"<|sep|>Ur<|close|>argument<|sep|>'
            '<|open|>argument key="days" type="number"<|sep|>3<|close|>argument<|sep|>',
        ),
        (
            "cohere_xml",
            "between",
            '<cofl:value name="city" type="raw">Ur</cofl:value><cofl:value name="days" type="json">3</cofl:value>',
        ),
    ],
)
def test_the_layouts_of_the_others(style: str, breaks: str, text: str) -> None:
    constraint = constraint_of(WEATHER, style, line_breaks=breaks)
    assert accepts(constraint, text)
    assert not accepts(constraint, text.replace("3", "x"))


ANY_OF_ALL = ("a", 1, 1.5, True, None, [1], {"b": "c"})


@pytest.mark.parametrize("style", ["kimi_k3_xml", "cohere_xml", "deepseek_xml"])
def test_a_value_is_what_the_mark_says(style: XmlStyle) -> None:
    """Of all values under all marks those are written whose mark has their type, and whose type is allowed."""
    marks = xml_marks(style)
    for allowed in ANY_OF_ALL:
        constraint = constraint_of({"type": "object", "properties": {"a": {"const": allowed}}}, style)
        for value, (mark, kind) in itertools.product(ANY_OF_ALL, marks.kinds):
            body = value if isinstance(value, str) and "string" in kind else written(value)
            text = f"{marks.before_key}a{marks.after_key}{mark}{body}{marks.end}"
            is_same = type(value) is type(allowed) and value == allowed
            assert accepts(constraint, text) == (is_same and type_of(value) in kind), text


@pytest.mark.parametrize(("style", "key"), [("kimi_k3_xml", "a&b"), ("kimi_k3_xml", 'a"'), ("cohere_xml", "a<b")])
def test_keys_that_would_need_entities_are_refused(style: str, key: str) -> None:
    with pytest.raises(UnsupportedSchema) as caught:
        constraint_of({"type": "object", "properties": {key: {"type": "string"}}}, style)
    assert caught.value.pointer == f"/format/json_schema/properties/{key}"


def test_kimi_writes_its_three_special_tokens_as_them() -> None:
    spellings = {mark: bytes([0xF8 + number]) for number, mark in enumerate(("<|open|>", "<|close|>", "<|sep|>"))}
    form = {"type": "json_schema", "style": "kimi_k3_xml", "json_schema": WEATHER}
    grammar = structural_tag_to_grammar({"format": form}, spell_special=lambda name: spellings.get(str(name)))
    cursor = COMPILER.from_grammar(grammar).cursor()
    data = b'\xf8argument key="city" type="string"\xfaOslo\xf9argument\xfa'
    assert all(cursor.advance(byte) for byte in data) and cursor.is_accepting


@pytest.mark.parametrize(
    "text", ["7", " 7\n", "[\x1c", "-1.5e3", "null", "True", "NaN", "[1", '"a', '{"a": 1}', "(1)", "0x1F"]
)
def test_text_that_may_be_read_as_a_value_gets_quotes_where_other_values_can_be(text: str) -> None:
    only = constraint_of({"type": "object", "properties": {"a": {"type": "string"}}})
    either = constraint_of({"type": "object", "properties": {"a": {"type": ["string", "array"]}}})
    assert accepts(only, f"<parameter=a>\n{text}\n</parameter>")
    assert not accepts(either, f"<parameter=a>\n{text}\n</parameter>")
    assert accepts(either, f"<parameter=a>\n{json.dumps(text)}\n</parameter>")
    assert accepts(either, "<parameter=a>\n2024-01-01 nullable 7up\n</parameter>")


def test_a_key_has_quotes_everywhere_if_it_may_be_something_else_in_some_object() -> None:
    options = [{"properties": {"a": {"type": kind}}, "required": ["a"]} for kind in ("string", "integer")]
    schema = {"type": "object", "anyOf": options}
    constraint = constraint_of(schema)
    assert raw_keys(schema, xml_marks("qwen_xml")) == frozenset()
    assert accepts(constraint, '<parameter=a>\n"7"\n</parameter>') and accepts(
        constraint, "<parameter=a>\nb\n</parameter>"
    )
    assert accepts(constraint, "<parameter=a>\n7\n</parameter>")


STRINGS = [
    {"pattern": "^[ab]+$", "maxLength": 3},
    {"format": "date"},
    {"minLength": 2, "maxLength": 3000},
    {"enum": ["a b", "</x>", 'say "hi"\n']},
    {"not": {"pattern": "x"}, "maxLength": 9},
]


@pytest.mark.parametrize("tests", STRINGS)
def test_what_a_schema_asks_of_a_string_is_asked_of_the_text_without_quotes(tests: Any) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", **tests}}, "required": ["a"]}
    constraint, marks, judge = constraint_of(schema), xml_marks("qwen_xml"), judge_of(schema)
    assert raw_keys(schema, marks) == {"a"}
    for seed in range(5):
        judge.validate(read_back(walk(constraint, random.Random(seed), 40), marks, frozenset("a")))
    for text in ("ab", "abab", "2024-02-29", "2024-02-30", "a", "y" * 3001, "a b", "</x>", 'say "hi"\n', "x", "é\n\n"):
        assert accepts(constraint, f"<parameter=a>\n{text}\n</parameter>") == judge.is_valid({"a": text}), text


@pytest.mark.parametrize("style", STYLES)
def test_masks_are_those_of_brute_force(style: str) -> None:
    properties = {"a": {"type": ["string", "null"]}, "b": {"type": "string", "maxLength": 4}, "c": {"items": {}}}
    form = {"type": "json_schema", "style": style, "json_schema": {"properties": properties}}
    tag = {"type": "tag", "begin": "<f>", "content": form, "end": "</f>"}
    constraint = Compiler(mixed_vocabulary(600, 5)).structural_tag({"format": tag})
    rng = random.Random(style)
    for _ in range(6):
        text, _ = random_walk(constraint, rng, 60)
        cursor = constraint.cursor()
        for byte in text:
            assert np.array_equal(cursor.row(), brute_force(constraint, cursor.state))
            assert cursor.advance(byte)


def test_marks_that_are_special_tokens_are_written_as_them() -> None:
    marks = ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
    spellings = {mark: bytes([0xF8 + number]) for number, mark in enumerate(marks)}
    form = {"type": "json_schema", "style": "glm_xml", "json_schema": WEATHER}
    grammar = structural_tag_to_grammar({"format": form}, spell_special=lambda name: spellings.get(str(name)))
    constraint = COMPILER.from_grammar(grammar)
    data = b"\xf8city\xf9\n\xfaOslo\xfb\n\xf8days\xf9\n\xfa3\xfb"
    cursor = constraint.cursor()
    assert all(cursor.advance(byte) for byte in data) and cursor.is_accepting
    assert not accepts(constraint, "<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>")


@pytest.mark.parametrize(
    ("schema", "options", "pointer"),
    [
        ({"type": "object"}, {"line_breaks": "some"}, "/format/line_breaks"),
        ({"additionalProperties": {"type": "string"}}, {}, "/format/json_schema"),
        ({"properties": {"a": {}}, "patternProperties": {"^x": {"type": "null"}}}, {}, "/format/json_schema"),
        ({"properties": {"a": {}}, "minProperties": 2}, {}, "/format/json_schema/minProperties"),
        ({"properties": {"a>b": {}}}, {}, "/format/json_schema/properties/a>b"),
        ({"properties": {" a": {}}}, {}, "/format/json_schema/properties/ a"),
        ({"properties": {"": {}}}, {}, "/format/json_schema/properties/"),
        ({"properties": {"a": {"type": "wizard"}}}, {}, "/format/json_schema/properties/a/type"),
        ({"type": "array"}, {}, "/format/json_schema"),
    ],
)
def test_what_cannot_be_written_as_xml_is_refused_with_its_place(schema: Any, options: Any, pointer: str) -> None:
    with pytest.raises(ConstraintError) as caught:
        constraint_of(schema, **options)
    assert caught.value.pointer == pointer


@pytest.mark.parametrize("schema", [True, {"type": "object"}, {"properties": {}}, {"additionalProperties": True}])
def test_keys_that_are_not_named_are_not_written(schema: Any) -> None:
    constraint = constraint_of(schema)
    assert accepts(constraint, "") and constraint.min_tokens() == 0
    assert not accepts(constraint, "<parameter=a>\nb\n</parameter>")
