"""What is said about a constraint agrees with the engine that enforces it."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.errors import UnsupportedSchema
from phloem.fsm import Compiler, Vocabulary
from phloem.fsm.explain import Explanation, as_data, explain, lines
from phloem.fsm.explain.labels import columns, label
from phloem.fsm.foresight import forced_bytes
from phloem.fsm.json_schema.demands import demands

from ..vocabularies import small_vocabulary

PIECES = [b'{"', b'":', b'","', b'"}', b"name", b"age", b"Ada", b"12", b"true", b"20", b"-0"]


def spell(text: str) -> list[int]:
    """Longest piece first: a tokenizer of its own kind."""
    data, ids = text.encode(), []
    while data:
        piece = max((p for p in PIECES if data.startswith(p)), key=len, default=data[:1])
        ids.append(256 + PIECES.index(piece) if piece in PIECES else piece[0])
        data = data[len(piece) :]
    return ids


_PLAIN = small_vocabulary(PIECES)
VOCABULARY = Vocabulary(_PLAIN.tokens, _PLAIN.eos_ids, spell)
COMPILER = Compiler(VOCABULARY)

NODE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"id": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
            "required": ["id"],
            "additionalProperties": False,
        }
    },
}
PERSON: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Person",
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Z]", "maxLength": 20, "minlength": 1},
        "age": {"type": "integer", "minimum": 0, "maximum": 130, "maxLength": 3},
        "mail": {"type": "string", "format": "email"},
        "hue": {"type": "string", "format": "colour"},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
CASES: dict[str, tuple[str, Any]] = {
    "regex": ("regex", "[0-9]{4}-[0-9]{2}|Ada"),
    "choice": ("choice", ["true", "trust", "age", "aged"]),
    "person": ("json_schema", PERSON),
    "node": ("json_schema", NODE),
    "object": ("json_object", None),
    "grammar": ("grammar", 'root ::= "(" root ")" | [0-9]+'),
}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[str, Explanation]:
    kind, source = CASES[request.param]
    return request.param, explain(VOCABULARY, kind, source)


def test_the_figures_are_the_engines(case: tuple[str, Explanation]) -> None:
    name, found = case
    kind, source = CASES[name]
    constraint = getattr(COMPILER, kind)(*(() if source is None else (source,)))
    assert found.min_tokens == constraint.min_tokens()
    assert found.num_positions == constraint.automaton.network.num_nodes
    assert found.num_texts == len(constraint.automaton.network.texts)
    assert found.is_recursive == (name in ("node", "object", "grammar"))
    assert (found.num_states is None) == found.is_recursive
    assert found.timings.total > 0 and found.masks.num_masks > 0
    assert found.automaton_bytes > 0 and found.row_bytes > 0
    for sample in found.samples:
        state = constraint.automaton.advance_bytes(constraint.automaton.start, sample.encode())
        assert constraint.automaton.is_accepting(state)


def test_the_shortest_text_belongs_to_it_and_its_runs_are_forced(case: tuple[str, Explanation]) -> None:
    name, found = case
    kind, source = CASES[name]
    constraint = getattr(COMPILER, kind)(*(() if source is None else (source,)))
    automaton, best = constraint.automaton, found.shortest
    assert best.text is not None and len(best.text) == automaton.min_bytes(automaton.start)
    assert automaton.is_accepting(automaton.advance_bytes(automaton.start, best.text))
    cursor = constraint.cursor()
    forced, position = [], 0
    while position < len(best.text):
        run = forced_bytes(cursor)
        if run:
            forced.append(run)
        step = len(run) or 1
        assert all(cursor.advance(byte) for byte in best.text[position : position + step])
        position += step
    assert forced == list(best.runs) and best.num_forced_bytes == sum(map(len, forced))
    assert best.num_tokens == len(spell(best.text.decode()))
    assert 0 <= best.num_drafted_tokens <= best.num_tokens


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "minItems": 4},
        {"type": "object", "additionalProperties": {"type": "null"}, "minProperties": 3},
    ],
)
def test_texts_that_are_shown_repeat_neither_items_nor_keys(schema: dict[str, Any]) -> None:
    found, constraint = explain(VOCABULARY, "json_schema", schema), COMPILER.json_schema(schema)
    automaton = constraint.automaton
    assert found.shortest.text is not None and constraint.accepts(found.shortest.text)
    assert automaton.min_bytes(automaton.start) < len(found.shortest.text) < automaton.min_bytes(automaton.start) + 9
    assert found.shortest.num_tokens > 0
    assert all(constraint.accepts(sample.encode()) for sample in found.samples)


def test_runs_of_the_picture_are_forced_in_the_automaton(case: tuple[str, Explanation]) -> None:
    """What an edge says is forced must come next, whatever was chosen at the fork before; and it is not too little."""
    name, found = case
    if found.is_recursive:
        return
    kind, source = CASES[name]
    automaton = getattr(COMPILER, kind)(source).automaton
    before = _ways_to_nodes(found)
    for edge in found.compressed[0].edges:
        head = bytes((mask & -mask).bit_length() - 1 for mask in edge.words[0])
        free = len(head) - edge.num_forced
        if edge.num_forced:
            assert len(edge.words) == 1
            state = automaton.advance_bytes(automaton.start, before[edge.source] + head[:free])
            assert automaton.forced_run(state, edge.num_forced)[0] == head[free:]
            assert head[free:] in found.runs or edge.num_forced == 1
        elif len(edge.words) == 1 and edge.most is None:
            state = automaton.advance_bytes(automaton.start, before[edge.source] + head[:-1])
            assert not automaton.forced_run(state, 1)[0]


def _ways_to_nodes(found: Explanation) -> dict[int, bytes]:
    """A text that leads to each node of the compressed form, loops not taken."""
    graph = found.compressed[0]
    leaving = graph.leaving()
    ways, order = {graph.start: b""}, [graph.start]
    for node in order:
        for edge in leaving[node]:
            if edge.target not in ways:
                word = edge.words[0]
                ways[edge.target] = ways[node] + bytes((mask & -mask).bit_length() - 1 for mask in word)
                order.append(edge.target)
    return ways


def test_everything_drawn_is_reported(case: tuple[str, Explanation]) -> None:
    _, found = case
    data = json.loads(json.dumps(as_data(found)))
    assert [len(graph["edges"]) for graph in data["compressed"]] == [len(graph.edges) for graph in found.compressed]
    assert data["compressed"][0]["edges"][0]["label"] == label(found.compressed[0].edges[0])
    assert data["min_tokens"] == found.min_tokens and data["num_states"] == found.num_states
    for width in (60, 80, 100):
        assert max(map(columns, lines(found, width=width))) <= width
    assert str(found) == "\n".join(lines(found))
    assert "<svg" in found.svg().document


def test_every_keyword_is_either_enforced_or_an_annotation() -> None:
    enforced, annotations = demands(PERSON)
    pointers = [demand.pointer for demand in enforced if " ∧ " not in demand.keyword] + [a.pointer for a in annotations]
    assert len(pointers) == len(set(pointers))
    assert set(pointers) == {p for p in _keywords(PERSON, "") if p != "/$schema"}
    silent = {note.pointer: note.reason for note in annotations}
    assert "did you mean minLength?" in silent["/properties/name/minlength"]
    assert "numbers" not in silent["/properties/age/maxLength"] and "strings" in silent["/properties/age/maxLength"]
    assert "'colour'" in silent["/properties/hue/format"]
    assert set(silent) == {
        "/title",
        "/properties/name/minlength",
        "/properties/age/maxLength",
        "/properties/hue/format",
    }


def _keywords(schema: Any, pointer: str) -> list[str]:
    found: list[str] = []
    for name, value in schema.items():
        found.append(f"{pointer}/{name}")
        if name == "properties":
            for key, below in value.items():
                found += _keywords(below, f"{pointer}/{name}/{key}")
        elif isinstance(value, dict):
            found += _keywords(value, f"{pointer}/{name}")
    return found


def test_tags_are_drawn_as_marks_and_what_stands_between_them() -> None:
    schema = {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city", "days"]}
    content = {"type": "json_schema", "style": "qwen_xml", "json_schema": schema}
    tag = {"type": "tag", "begin": "<call>", "content": content, "end": "</call>"}
    found = explain(VOCABULARY, "structural_tag", {"format": tag})
    drawn = "\n".join(lines(found))
    for shown in (
        r"'<parameter=city>\n' ──▶",
        r" = '\n</parameter>\n<parameter=days>\n'",
        "‹integer› ──▶",
        "'</call>' ──▶",
    ):
        assert shown in drawn
    assert found.num_states is not None and found.num_states > 40


def test_sizes_of_products_are_said() -> None:
    enforced, _ = demands(PERSON)
    how = {demand.pointer: demand.how for demand in enforced if " ∧ " in demand.keyword}
    assert how["/properties/name"] == "product of 21 states"
    assert how["/properties/age"].startswith("product of ")


def test_a_definition_that_nothing_refers_to_demands_nothing() -> None:
    enforced, annotations = demands({"$defs": {"x": {"type": "string", "title": "x"}}, "type": "null"})
    assert [demand.pointer for demand in enforced] == ["/type"] and not annotations


def test_what_cannot_be_enforced_is_refused_as_ever() -> None:
    with pytest.raises(UnsupportedSchema) as caught:
        explain(VOCABULARY, "json_schema", {"type": "array", "not": {"uniqueItems": True}})
    assert caught.value.pointer == "/not/uniqueItems"


TEXTS = st.text(alphabet="(1)x0", max_size=9)


@settings(max_examples=60, deadline=None)
@given(TEXTS)
def test_stepping_stops_at_the_first_byte_that_is_refused(text: str) -> None:
    steps = explain(VOCABULARY, "grammar", CASES["grammar"][1], text=text).steps
    assert steps is not None
    automaton = COMPILER.grammar(CASES["grammar"][1]).automaton
    data = text.encode()
    alive = [n for n in range(len(data) + 1) if n == 0 or automaton.advance_bytes(automaton.start, data[:n])]
    assert steps.num_bytes == max(alive) == steps.column
    assert steps.leaves == (max(alive) < len(data))
    state = automaton.advance_bytes(automaton.start, data[: steps.num_bytes])
    assert steps.is_complete == automaton.is_accepting(state)
    live = automaton.live_bytes(state)
    assert (steps.allowed == "") == (not live.any())
    assert all(rule == "root" for rule in steps.rules)


def test_a_caret_stands_before_the_character_and_not_inside_it() -> None:
    found = explain(VOCABULARY, "regex", "aé+b", text="aéèb")
    assert found.steps is not None and found.steps.num_bytes == 3 and found.steps.column == 2
    out = lines(found)
    row = next(index for index, line in enumerate(out) if line == "  aéèb")
    assert out[row + 1] == "    ^"
    long = explain(VOCABULARY, "regex", "a*", text="a" * 300 + "x" + "a" * 300)
    out = lines(long, width=80)
    caret = next(index for index, line in enumerate(out) if line.strip() == "^")
    assert out[caret - 1][out[caret].index("^")] == "x" and len(out[caret - 1]) <= 80


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"name":"ada"', "at /name: /properties/name/pattern"),
        ('{"name":"A' + 20 * "a", "/properties/name/maxLength"),
        ('{"name":7', 'at /name: /properties/name/type: "string"'),
        ('{"name":"A","age":131', "at /age: /properties/age/maximum: 130"),
        ('{"name":"A","age":-1', "at /age: /properties/age/minimum: 0"),
        ('{"name":"A","age":1.5', 'at /age: /properties/age/type: "integer"'),
        ('{"name":"A"}', '/required: "age" has not been written'),
        ('{"name":"A","mail":"x', '/required: "age" comes before "mail"'),
        ('{"age":1', '/required: "name" comes before "age"'),
        ('{"name":"A","age":1,"name":"A"', 'the key "name" was written already'),
        ('{"name":"A","age":1,"tags":[],"hue":"x"', 'keys come in the order of the schema: "hue" before "tags"'),
        ('{"name":"A","age":1,"boss":1', '/additionalProperties: "boss" is no key of the schema'),
        ('{"name":"A","age":1,"tags":["a","b","a","b"]', "/properties/tags/maxItems"),
        ('{"name":"A","age":1,"tags":["c"]', "at /tags/0: /properties/tags/items/enum"),
        ('{"name":"A","age":1,"mail":"x"', "/properties/mail/format"),
        ('{"name": "A"', "white space is compact"),
        ('{"name":"A\\/"', "one spelling"),
        ('{"name":"A","age":1}x', "the value is complete"),
    ],
)
def test_the_keyword_at_fault_is_named(text: str, reason: str) -> None:
    steps = explain(VOCABULARY, "json_schema", PERSON, text=text).steps
    assert steps is not None and steps.leaves
    assert any(reason in found for found in steps.reasons), steps.reasons


@pytest.mark.parametrize(
    ("text", "refused", "reason", "allowed"),
    [
        ('{"a":[1,2,1', "]", "in the array at /a: /properties/a/uniqueItems: item 2 is the same as item 0", "[.0-9Ee]"),
        ('{"a":[[],10,[', "]", "/properties/a/uniqueItems: item 2 is the same as item 0", '["\\-0-9[fnt{]'),
        ('{"b":[{"c":true},{"c":', "t", "/b/uniqueItems: item 1 can only become the same as item 0", "[[fn]"),
        ('{"b":[{"c":[]},{"c":[1,1', "]", "/c/anyOf/0/uniqueItems: item 1 is the same as item 0", "[.0-9Ee]"),
        ('{"d":["a","b","a', '"', "/properties/d/uniqueItems: item 2 is the same as item 0", None),
        ('{"e":[{"f":true},{"f":false}', ",", "/properties/e/uniqueItems: no value is left that differs", "']'"),
    ],
)
def test_the_item_that_would_come_twice_is_named(text: str, refused: str, reason: str, allowed: str | None) -> None:
    unique: Any = {"type": "array", "uniqueItems": True}
    closed: Any = {"type": "object", "additionalProperties": False}
    options: Any = {"anyOf": [unique, {"type": ["null", "boolean"]}]}
    properties = {
        "a": unique,
        "b": unique | {"items": closed | {"properties": {"c": options}, "required": ["c"]}},
        "d": unique | {"items": {"type": "string"}},
        "e": unique | {"items": closed | {"properties": {"f": {"type": "boolean"}}, "required": ["f"]}},
    }
    schema = {"type": "object", "properties": properties}
    steps = explain(VOCABULARY, "json_schema", schema, text=text + refused).steps
    assert steps is not None and steps.leaves and steps.num_bytes == len(text), steps
    assert any(reason in found for found in steps.reasons), steps.reasons
    assert allowed in (None, steps.allowed)
    assert all(not token[1:].startswith(refused) for token in steps.tokens), steps.tokens


def test_items_and_open_objects_are_explained() -> None:
    schema = {"properties": {"a": {"type": "array", "items": {"type": "object"}, "minItems": 1}}, "required": ["a"]}
    steps = explain(VOCABULARY, "json_schema", schema | {"type": "object"}, text='{"a":[]').steps
    assert steps is not None and steps.reasons == ("in the array at /a: /properties/a/minItems: 1",)
    steps = explain(VOCABULARY, "json_schema", schema | {"type": "object"}, text='{"b":1').steps
    assert steps is not None
    assert steps.reasons == ('in the object at /: /required: "a" comes before keys without a name',)


def test_keys_in_any_order_are_not_blamed_for_their_order() -> None:
    text = '{"age":1,"name":"A","boss":1}'
    found = explain(VOCABULARY, "json_schema", PERSON, key_order="any", text=text)
    assert found.steps is not None and found.steps.num_bytes == text.index("boss")
    assert found.steps.reasons == ('in the object at /: /additionalProperties: "boss" is no key of the schema',)
    assert any("any order" in demand.how for demand in found.demands)
    assert explain(VOCABULARY, "json_schema", PERSON, key_order="any", text=text[:19] + "}").steps.is_complete  # type: ignore[union-attr]


def test_long_lengths_are_counted_and_said_so() -> None:
    schema = {"type": "string", "pattern": "^[a-z]*$", "maxLength": 50_000}
    found = explain(VOCABULARY, "json_schema", schema, text='"a1')
    assert any("counted separately" in demand.how for demand in found.demands)
    assert found.num_states is None and not found.is_recursive
    assert found.steps is not None and found.steps.reasons == ('/pattern: "^[a-z]*$"',)


def test_a_shortest_output_that_is_too_long_is_counted_in_tokens() -> None:
    found = explain(VOCABULARY, "regex", "a{70000}")
    assert found.shortest.text is None
    assert f"the shortest output has {found.min_tokens:,} tokens; it is not shown" in "\n".join(lines(found))


def test_of_alternatives_all_are_named_and_references_are_followed() -> None:
    schema = {
        "anyOf": [{"type": "integer", "minimum": 5}, {"$ref": "#/$defs/word"}],
        "$defs": {"word": {"type": "string", "maxLength": 1}},
    }
    steps = explain(VOCABULARY, "json_schema", schema, text="true").steps
    assert steps is not None
    assert list(steps.reasons) == ['/anyOf/0/type: "integer"', '/$defs/word/type: "string"']
    steps = explain(VOCABULARY, "json_schema", schema, text='"ab"').steps
    assert steps is not None and "/$defs/word/maxLength: 1" in steps.reasons
    steps = explain(VOCABULARY, "json_schema", NODE, text='{"id":1,"kids":[{"id":2},{"id":x').steps
    assert steps is not None and steps.reasons[0].startswith("at /kids/1/id: /$defs/node/properties/id/type")
    assert steps.rules[0] == "$defs/node" and len(steps.rules) == 3


def test_random_damage_is_always_explained() -> None:
    rng = random.Random(3)
    good = '{"name":"Ada","age":12,"mail":"a@b.de","hue":"red","tags":["a","b"]}'
    for position, new in itertools.product(range(len(good)), '"}x'):
        if rng.random() < 0.93:
            continue
        text = good[:position] + new + good[position + 1 :]
        steps = explain(VOCABULARY, "json_schema", PERSON, text=text).steps
        assert steps is not None
        assert bool(steps.reasons) == steps.leaves
        assert not steps.leaves or "together allow nothing" not in steps.reasons[0]
