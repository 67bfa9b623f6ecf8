"""Inputs made to hurt end in a constraint, or in an error of the right kind that names its place.

How long that takes, and in how much memory, is shown by `bench/bombs.py`; here only the outcome counts.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from phloem.errors import ConstraintError, ConstraintTooLarge, InvalidRegex, InvalidSchema
from phloem.fsm.automaton.automaton import Automaton
from phloem.fsm.compiler import Compiler, Limits
from phloem.fsm.json_schema import schema_to_grammar
from phloem.fsm.network.network import build_network
from phloem.fsm.regex.regex import regex_to_expression

from .vocabularies import BYTES

MANY = {f"property_{index}": {"type": "string"} for index in range(10_000)}


def nested(schema: dict[str, Any], depth: int, wrap: Any) -> dict[str, Any]:
    """A schema inside `depth` others."""
    for _ in range(depth):
        schema = wrap(schema)
    return schema


def definitions(count: int, last: dict[str, Any], body: Any) -> dict[str, Any]:
    """d0 .. d`count`, where the body of each is made from a reference to the next."""
    defs = {f"d{i}": body({"$ref": f"#/$defs/d{i + 1}"}) for i in range(count)}
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{count}": last}}


def chained(count: int) -> dict[str, Any]:
    """If k299 is there, v299 is null, else if k298 is there, v298 is null, else ..."""
    chain: dict[str, Any] = {}
    for depth in range(count):
        then = {"properties": {f"v{depth}": {"type": "null"}}}
        chain = {"if": {"required": [f"k{depth}"]}, "then": then, "else": chain}
    return chain


def tagged(count: int) -> list[dict[str, Any]]:
    """Objects distinguished by a constant."""
    return [{"properties": {"tag": {"const": index}}, "required": ["tag"]} for index in range(count)]


WRITABLE: dict[str, tuple[Any, bytes]] = {
    "tiny steps": ({"type": "number", "multipleOf": 1e-300, "maximum": 1e15}, b"0"),
    "optional properties": ({"properties": MANY, "type": "object"}, b'{"property_3":"x","property_9999":"","z":1}'),
    "properties and no others": (
        {"properties": MANY, "type": "object", "additionalProperties": False},
        b'{"property_0":"","property_9998":"y"}',
    ),
    "objects within each other": (
        nested({"type": "null"}, 1000, lambda inner: {"type": "object", "properties": {"a": inner}, "required": ["a"]}),
        b'{"a":' * 1000 + b"null" + b"}" * 1000,
    ),
    "arrays within each other": (
        nested({"type": "null"}, 1000, lambda inner: {"type": "array", "items": inner, "minItems": 1}),
        b"[" * 1000 + b"null" + b"]" * 1000,
    ),
    "negations within each other": (nested({"type": "null"}, 1000, lambda inner: {"not": inner}), b"null"),
    "a large enum": ({"enum": [f"value {index}" for index in range(20_000)]}, b'"value 19999"'),
    "a chain of allOf": (definitions(300, {"type": "integer"}, lambda ref: {"allOf": [ref, {"minimum": 5}]}), b"17"),
    "doublings by allOf": (definitions(60, {"type": "integer"}, lambda ref: {"allOf": [ref, ref]}), b"17"),
    "doublings by anyOf": (definitions(60, {"type": "integer"}, lambda ref: {"anyOf": [ref, ref]}), b"17"),
    "unions within each other": (
        definitions(3000, {"type": "null"}, lambda ref: {"anyOf": [ref, {"type": "boolean"}]}),
        b"null",
    ),
    "a chain of conditions": (chained(300), b'{"v299":null,"k299":3,"k0":1}'),
    "doublings by properties": (
        definitions(60, {"type": "integer"}, lambda ref: {"type": "object", "properties": {"a": ref, "b": ref}}),
        b'{"a":{"b":{}},"b":{"a":{}}}',
    ),
    "strings distinguished by their patterns": (
        {"oneOf": [{"type": "string", "pattern": f"^{index};"} for index in range(100)]},
        b'"77;"',
    ),
    "a tagged union of thousands": ({"type": "object", "oneOf": tagged(3_000)}, b'{"tag":2999}'),
    "a tagged union that leaves the type open": ({"oneOf": tagged(1_000)}, b'{"tag":7,"more":1}'),
    "an enum of objects": (
        {"enum": [{"a": index, "b": [f"{index}", None]} for index in range(10_000)]},
        b'{"a":9876,"b":["9876",null]}',
    ),
    "a ring of dependentRequired": (
        {"type": "object", "dependentRequired": {f"k{i}": [f"k{(i + 1) % 1000}"] for i in range(1000)}},
        b"{" + b",".join(b'"k%d":0' % i for i in range(1000)) + b"}",
    ),
    "a chain of if, then, else": (
        nested({}, 100, lambda inner: {"if": {"required": ["k"]}, "then": {"required": ["v"]}, "else": inner}),
        b'{"k":1,"v":2}',
    ),
    "not not allOf": (
        nested({"type": "object"}, 100, lambda inner: {"not": {"not": {"allOf": [inner, {"required": ["k"]}]}}}),
        b'{"k":[]}',
    ),
    "anyOf within anyOf": (
        definitions(60, {"type": "null"}, lambda ref: {"anyOf": [ref, {"type": "array", "items": ref}]}),
        b"[[[null,null]]]",
    ),
    "counts that no text reaches": (
        {"items": {"maxItems": 10**9, "items": {"type": "null"}}, "maxItems": 10**12},
        b"[[]]",
    ),
    "lengths that leave the type open": (
        {"anyOf": [{"minLength": 3 * n, "maxLength": 3 * n + 1} for n in range(2000)]},
        b'{"a":"abcd"}',
    ),
    "a list of items that are fixed": (
        {"prefixItems": [{"const": n} for n in range(8_000)], "minItems": 8_000},
        json.dumps(list(range(8_000)), separators=(",", ":")).encode(),
    ),
    "different things to contain": (
        {"allOf": [{"contains": {"const": n}} for n in range(9)], "items": {"type": "integer"}},
        b"[8,7,6,5,4,3,2,1,0]",
    ),
    "a pointer through all levels": (
        {"$ref": "#" + "/not" * 2000, **nested({"type": "null"}, 2000, lambda inner: {"not": inner})},
        b"null",
    ),
}

REFUSED: dict[str, tuple[Any, type[ConstraintError], str]] = {
    "depth beyond the bound": (
        nested({}, 30_000, lambda inner: {"not": inner}),
        ConstraintTooLarge,
        "nested deeper than",
    ),
    "a web of keys that need one another": (
        {"dependentRequired": {f"k{n}": [f"k{(n * 7 + m * 13) % 60}" for m in range(2)] for n in range(60)}},
        ConstraintTooLarge,
        "let fewer keys depend on one another",
    ),
    "keys of very many letters": (
        {"properties": {chr(0x3000 + n): {} for n in range(4000)}},
        ConstraintTooLarge,
        "too many to distinguish from all others",
    ),
    "keys of many letters and a long period": (
        {"properties": {chr(0x3000 + n): {} for n in range(2800)}, "patternProperties": {"^(.{4000})*$": False}},
        ConstraintTooLarge,
        "a combination of patterns or lengths needs more than 2992 states",
    ),
    "a cycle of references": (
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        InvalidSchema,
        "/$defs/a/$ref",
    ),
    "a cycle of allOf": (
        definitions(300, {"$ref": "#/$defs/d0"}, lambda ref: {"allOf": [ref]}),
        InvalidSchema,
        "/$defs/d0",
    ),
    "objects that cannot be distinguished": (
        {"oneOf": [{"properties": {f"k{index}": {"type": "integer"}}} for index in range(300)]},
        ConstraintTooLarge,
        "/oneOf",
    ),
    "strings that cannot be distinguished in time": (
        {"oneOf": [{"type": "string", "pattern": f"^{index};"} for index in range(300)]},
        ConstraintTooLarge,
        "/oneOf",
    ),
    "an enum too large for its kind": (
        {"allOf": [{"enum": [{"a": index} for index in range(10_100)]}, {"minProperties": 1}]},
        ConstraintTooLarge,
        "cases",
    ),
    "keys of which one must be missing": (
        {"type": "object", "not": {"required": [f"k{n}" for n in range(10_100)]}},
        ConstraintTooLarge,
        "/not: conditions on keys need more than",
    ),
    "an array of many items to exclude": (
        {"type": "array", "not": {"const": list(range(30_000))}},
        ConstraintTooLarge,
        "/not/const: an array of 30000 items one by one is too long",
    ),
    "more items than a text can have": ({"minItems": 10**9, "type": "array"}, ConstraintTooLarge, "/minItems"),
    "more to contain than can be counted": (
        {"allOf": [{"contains": {"minimum": n}} for n in range(14)]},
        ConstraintTooLarge,
        "/allOf/",
    ),
    "many conditions": (
        {"allOf": [{"if": {"required": [f"k{i}"]}, "else": {"maxProperties": i}} for i in range(40)]},
        ConstraintTooLarge,
        "/",
    ),
    "patterns that overlap": (
        {"patternProperties": {f"^.{{{n}}}[a-{chr(98 + n % 25)}]": {"minimum": n} for n in range(200)}},
        ConstraintTooLarge,
        "/patternProperties",
    ),
    "schemas that depend on themselves": (
        {"dependentSchemas": {"a": {"$ref": "#"}, "b": {"not": {"$ref": "#"}}}},
        InvalidSchema,
        "applies itself",
    ),
    "a format, a pattern and lengths that multiply": (
        {"format": "uri", "pattern": "^(?=.*a.{20}).*b.{15}$", "minLength": 100, "type": "string"},
        ConstraintTooLarge,
        "/pattern",
    ),
    "too many combinations": (
        {"allOf": [{"anyOf": [{"required": [f"a{i}"]}, {"properties": {f"b{i}": False}}]} for i in range(30)]},
        ConstraintTooLarge,
        "",
    ),
}

PATTERNS: dict[str, tuple[str, str]] = {
    "nested quantifiers": ("((a{1,100}){1,100}){1,100}", "a" * 20),
    "nested stars": ("(a*)*b", "aaab"),
    "nested pluses": ("(x+x+)+y", "xxy"),
    "a distant choice": ("[ab]*a[ab]{30}", "ba" + "b" * 30),
    "repeated repetitions": ("(.{1,1000}){1,1000}", "x" * 50),
    "a nested repetition with something optional": ("(.{1,1000}b?){1,1000}", "xb" * 50),
    "a nested repetition of nothing": ("(?:[ab]{0,500}){0,500}c", "ab" * 50 + "c"),
    "nothing, again and again": ("(?:(?:(?:)*)*)*a", "a"),
    "look-aheads that disagree": ("".join(f"(?=.{{{n}}}[^{chr(97 + n)}])" for n in range(20)) + ".*", "z" * 30),
    "look-behinds in a loop": ("(?:.(?<!a.{8}b))*", "ab" * 4),
    "anchors": ("^" * 50_000 + "a" + "$" * 50_000, "a"),
    "look-aheads for texts that may end": ("(?:(?=.{0,60}$)[ab])*", "ab" * 5),
    "options that each end in anything": ("(?:a.*|" * 2000 + "b" + ")" * 2000, "axy"),
    "a class that says the same again and again": ("[" + r"\p{L}" * 3000 + "]", "é"),
    "classes in any case": ("(?i)" + "".join(f"[{chr(256 + n)}-{chr(4000)}]?" for n in range(200)) + "ß", "ẞ"),
    "nested groups": ("(" * 30_000 + "a" + ")" * 30_000, "a"),
}


@pytest.mark.parametrize("name", WRITABLE)
def test_what_can_be_written_is_built(name: str) -> None:
    schema, text = WRITABLE[name]
    automaton = Automaton(build_network(schema_to_grammar(schema)), BYTES)
    end = automaton.advance_bytes(automaton.start, text)
    assert end and automaton.is_accepting(end)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_is_refused_at_its_place(name: str) -> None:
    schema, kind, place = REFUSED[name]
    with pytest.raises(kind) as caught:
        schema_to_grammar(schema)
    assert place in str(caught.value)


@pytest.mark.parametrize("name", PATTERNS)
def test_patterns_that_explode_elsewhere_are_built(name: str) -> None:
    pattern, text = PATTERNS[name]
    constraint = Compiler(BYTES).regex(pattern)
    assert constraint.cursor().row().any() and constraint.accepts(text.encode())


GRAMMARS: dict[str, tuple[str, str]] = {
    "rules that begin with one another": (
        "\n".join(["root ::= r0", *(f'r{n} ::= r{(n + 1) % 20} "x" | "{n};"' for n in range(20))]),
        "3;" + "x" * 23,
    ),
    "ambiguity without end": ('root ::= e\ne ::= e e | e e e | (e*)* | "a"', "a" * 50),
    "loops of nothing": ('root ::= (((""*)*)*)* a\na ::= (b*)* | ""\nb ::= (a*)* "x"?', "xxx"),
    "a long chain": (
        "root ::= r0\n" + "\n".join(f'r{n} ::= "a" r{n + 1} | "b"' for n in range(2000)) + '\nr2000 ::= "c"',
        "aab",
    ),
    "many literals": ("root ::= " + " | ".join(f'"w{n}"' for n in range(20_000)), "w19999"),
}

REFUSED_GRAMMARS: dict[str, str] = {
    "doublings": "root ::= r0\n" + "\n".join(f"r{n} ::= r{n + 1} r{n + 1}" for n in range(100)) + '\nr100 ::= "a"',
    "recursion hidden after an empty rule": 'root ::= r0\ne ::= "" | e e\n'
    + "\n".join(f"r{n} ::= e r{(n + 1) % 60} e | r{n} r{n} | [a-z]" for n in range(60)),
    "terminals that run into one another": "start: ("
    + " | ".join(f"T{n}" for n in range(60))
    + ")*\n"
    + "\n".join(f"T{n}: /[a-z]{{1,{n + 1}}}x?/" for n in range(60)),
}


def test_repetitions_of_repetitions_are_read_however_deep() -> None:
    assert regex_to_expression("(?:" * 3000 + "ab" + "){0,2}" * 3000)


def test_classes_that_tell_too_many_characters_apart_are_refused_at_their_place() -> None:
    classes = "".join(f"[{chr(0x3400 + n)}-{chr(0x9000)}]" for n in range(6000))
    with pytest.raises(ConstraintTooLarge, match="6001 different classes") as caught:
        schema_to_grammar({"items": {"type": "string", "pattern": classes}})
    assert caught.value.pointer == "/items/pattern"


def test_marks_that_are_too_many_are_refused_at_their_place() -> None:
    triggers = [f"<tool {n:030d}>" for n in range(2000)]
    tags = [{"begin": trigger, "content": {"type": "any_text"}, "end": "</tool>"} for trigger in triggers]
    for description, place in (
        ({"format": {"type": "triggered_tags", "triggers": triggers, "tags": tags}}, "/format"),
        ({"structures": [{**tag, "schema": True} for tag in tags], "triggers": triggers}, "/structures"),
    ):
        with pytest.raises(ConstraintTooLarge, match="marks in free text") as caught:
            Compiler(BYTES).structural_tag(description)
        assert caught.value.pointer == place


def test_a_terminal_that_is_too_large_is_refused_by_its_name() -> None:
    with pytest.raises(ConstraintTooLarge, match=r"grammar, terminal .* the pattern needs"):
        Compiler(BYTES).grammar("start: WIDE+\nWIDE: /[ab]*a[ab]{30}/", "lark")


def test_too_many_positions_are_refused_with_the_pointer_of_their_part() -> None:
    texts = [f"{n}" + "k" * 1000 for n in range(1000)]
    for part, message in (
        ({"enum": texts}, "unfolds to more than"),
        ({"properties": {key: {"type": "null"} for key in texts}}, "the keys that are named need more than"),
    ):
        with pytest.raises(ConstraintTooLarge, match=message) as caught:
            Compiler(BYTES).json_schema({"items": part})
        assert caught.value.pointer in ("", "/items")
        assert str(caught.value).startswith("/")


@pytest.mark.parametrize("name", GRAMMARS)
def test_grammars_that_explode_elsewhere_are_built(name: str) -> None:
    grammar, text = GRAMMARS[name]
    assert Compiler(BYTES).grammar(grammar).accepts(text.encode())


@pytest.mark.parametrize("name", REFUSED_GRAMMARS)
def test_grammars_beyond_all_bounds_are_refused(name: str) -> None:
    compiler = Compiler(BYTES, limits=Limits(max_compile_seconds=None))
    with pytest.raises(ConstraintTooLarge):
        compiler.grammar(REFUSED_GRAMMARS[name])
    assert compiler.regex("a+").cursor().advance(ord("a")), "and the next request is compiled"


def test_brackets_that_are_never_closed_are_refused() -> None:
    with pytest.raises(InvalidRegex):
        Compiler(BYTES).regex("(" * 30_000)


def test_schema_text_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(InvalidSchema, match="nested too deeply"):
        Compiler(BYTES).json_schema('{"not":' * 30_000 + "{}" + "}" * 30_000)


def test_a_schema_too_deep_to_be_known_again_is_compiled_all_the_same() -> None:
    deep = nested({"type": "null"}, 1500, lambda inner: {"type": "array", "items": inner})
    constraint = Compiler(BYTES).json_schema(deep)
    assert constraint.min_tokens() == 2
    try:  # Pythons differ in how deep they write
        written = json.dumps(deep)
    except RecursionError:
        written = ""
    assert constraint.source == written


def test_a_text_that_is_read_in_too_many_ways_names_the_part_of_the_schema() -> None:
    refs = definitions(120, {"type": "null"}, lambda ref: {"anyOf": [ref, {"items": ref}, {"items": {"items": ref}}]})
    schema = {"properties": {"b": {"$ref": "#/$defs/d0"}}, "required": ["b"], "$defs": refs["$defs"]}
    limits = Limits(max_automaton_bytes=6 << 20, max_compile_seconds=None)
    cursor = Compiler(BYTES, limits=limits).json_schema(schema).cursor()
    with pytest.raises(ConstraintTooLarge) as caught:
        for byte in b'{"b":[[[[[[[[':
            cursor.row()
            assert cursor.advance(byte)
        cursor.row()
    assert caught.value.pointer.startswith(("/$defs/", "/properties/b"))
    assert "of the text" in str(caught.value)
