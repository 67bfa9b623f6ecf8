"""Pictures are faithful: what is drawn is what the automaton does, no more and no less."""

from __future__ import annotations

import itertools
import math
import random
import re
from xml.etree import ElementTree

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from phloem.errors import ConstraintTooLarge
from phloem.fsm import Compiler, Limits
from phloem.fsm.explain import Edge, Graph
from phloem.fsm.explain.exploring import explore
from phloem.fsm.explain.folding import fold
from phloem.fsm.explain.labels import columns, label, legend_of
from phloem.fsm.explain.layout import RADIUS, Box, layout
from phloem.fsm.explain.picture_key import picture_key
from phloem.fsm.explain.rules import entries, is_recursive, rule_graphs
from phloem.fsm.explain.svg import Picture, picture
from phloem.fsm.explain.terminal import draw
from phloem.fsm.network.expression import Alternation, ByteSet, Expression, Grammar, Literal, Repeat, Rule, Sequence

from ..vocabularies import BYTES
from .reading import accepts, rules_accept

COMPILER = Compiler(BYTES)
SMALL = Compiler(BYTES, limits=Limits(max_automaton_bytes=2 << 20))
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2, "maxLength": 9},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "mood": {"enum": ["good", "bad", "sad"]},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
REGULAR = {
    "date": COMPILER.regex(r"[0-9]{4}-[0-9]{2}"),
    "unicode": COMPILER.regex(r"[a-zäöü€𝄞]{1,3}|\\x"),
    "word": COMPILER.regex(r"[α-ω]@[а-яx]"),
    "counted": COMPILER.regex(r"x{2,7}y"),
    "choice": COMPILER.choice(["red", "green", "grey", "blue", "bl"]),
    "person": COMPILER.json_schema(PERSON),
    "formats": COMPILER.json_schema({"type": "string", "format": "uuid"}),
    "any string": COMPILER.json_schema({"type": "string"}),
}


@pytest.mark.parametrize("name", REGULAR)
def test_edges_are_exactly_the_transitions(name: str) -> None:
    """Every byte that may follow, at a node and inside every character, is on an edge and leads to its target."""
    automaton = REGULAR[name].automaton
    graph = explore(automaton, "automaton")
    assert graph.is_whole and graph.states[graph.start] == automaton.start
    for node, edges in enumerate(graph.leaving()):
        assert (node in graph.accepting) == automaton.is_accepting(graph.states[node])
        _check_inside(
            automaton, graph, graph.states[node], [(word, edge.target) for edge in edges for word in edge.words]
        )


def _check_inside(automaton: object, graph: Graph, state: int, ways: list[tuple[tuple[int, ...], int]]) -> None:
    """The first sets of the ways are together the live bytes, and each byte leads on as they say."""
    assert hasattr(automaton, "live_bytes") and hasattr(automaton, "advance_bytes")
    live = sum(1 << byte for byte in automaton.live_bytes(state).nonzero()[0].tolist())
    drawn = 0
    for word, _ in ways:
        drawn |= word[0]
    assert drawn == live
    by_target: dict[int, list[tuple[tuple[int, ...], int]]] = {}
    for byte in range(256):
        rest = [(word[1:], target) for word, target in ways if word[0] >> byte & 1]
        if not rest:
            continue
        following = automaton.advance_bytes(state, bytes([byte]))
        if any(not word for word, _ in rest):
            assert len(rest) == 1 and graph.states[rest[0][1]] == following
        elif following not in by_target:
            by_target[following] = rest
            _check_inside(automaton, graph, following, rest)
        else:
            assert sorted(by_target[following]) == sorted(rest)


@pytest.mark.parametrize("name", REGULAR)
def test_the_compressed_form_spells_the_same_texts(name: str) -> None:
    constraint = REGULAR[name]
    graph = explore(constraint.automaton, "automaton")
    compressed = fold(graph)
    assert compressed.num_nodes <= graph.num_nodes
    texts = _texts(graph)
    assert texts
    for text in texts:
        for changed in (text, text[:-1], text + text[-1:], text.replace(b"e", b"f"), text.replace(b"0", b"00", 1)):
            wanted = constraint.accepts(changed)
            assert accepts(graph, changed) == accepts(compressed, changed) == wanted, changed


def _texts(graph: Graph) -> set[bytes]:
    """Texts of random walks along the edges."""
    rng = random.Random(5)
    leaving = graph.leaving()
    found: set[bytes] = set()
    for _ in range(300):
        node, text = graph.start, b""
        for _ in range(200):
            if node in graph.accepting and (not leaving[node] or rng.random() < 0.3):
                found.add(text)
                break
            edge = rng.choice(leaving[node])
            word = rng.choice(edge.words)
            text += bytes(rng.choice([byte for byte in range(256) if mask >> byte & 1]) for mask in word)
            node = edge.target
    return found


PATTERNS = st.recursive(
    st.sampled_from(["a", "b", "ab", "[ab]", "ba"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda two: two[0] + two[1]),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["*", "?", "{2}", "{1,4}", "{3,}", "{0,5}"])).map(
            lambda p: f"(?:{p[0]}){p[1]}"
        ),
    ),
    max_leaves=6,
)
SHORT = [bytes(text) for n in range(8) for text in itertools.product(b"ab", repeat=n)]


@settings(max_examples=60, deadline=None)
@given(PATTERNS)
def test_any_regex_is_drawn_as_it_is(pattern: str) -> None:
    graph = explore(COMPILER.regex(pattern).automaton, "automaton")
    compressed = fold(graph)
    for text in SHORT:
        wanted = re.fullmatch(pattern, text.decode()) is not None
        assert accepts(graph, text) == accepts(compressed, text) == wanted, text


BODIES = st.recursive(
    st.sampled_from([Literal(b"a"), Literal(b"ab"), ByteSet(3 << ord("a")), Literal(b""), Rule("r")]),
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: Sequence(tuple(parts))),
        st.lists(inner, min_size=2, max_size=3).map(lambda options: Alternation(tuple(options))),
        st.tuples(inner, st.integers(0, 2), st.integers(0, 2)).map(lambda p: Repeat(p[0], p[1], p[1] + p[2])),
    ),
    max_leaves=5,
)


@settings(max_examples=60, deadline=None)
@given(BODIES)
def test_any_rules_are_drawn_as_they_are(body: Expression) -> None:
    """A rule that calls itself between two letters, around anything."""
    rules = {"r": Alternation((Literal(b"b"), Sequence((Literal(b"a"), body, Literal(b"b")))))}
    constraint = SMALL.from_grammar(Grammar(rules, "r"))
    network = constraint.automaton.network
    names = {entry: f"rule {index}" for index, entry in enumerate(entries(network))}
    for compress in (False, True):
        graphs = rule_graphs(network, names.__getitem__, str)
        drawn = {graph.title: fold(graph) if compress else graph for graph in graphs}
        assert all(graph.is_whole for graph in graphs) and len(graphs) == len(names)
        for text in SHORT[:127]:
            try:
                wanted = constraint.accepts(text)
            except ConstraintTooLarge:  # too many ways to nest what may be empty
                assume(False)
            assert rules_accept(drawn, "rule 0", text) == wanted, text


def test_recursion_is_distinguished_from_mere_rules() -> None:
    assert is_recursive(COMPILER.grammar('root ::= "(" root ")" | "x"').automaton.network)
    assert is_recursive(COMPILER.grammar('root ::= "a" b "c" | "x"\nb ::= "b" root').automaton.network)
    assert is_recursive(COMPILER.json_object().automaton.network)
    assert not is_recursive(COMPILER.grammar('root ::= b b\nb ::= "b" c\nc ::= [0-9]').automaton.network)
    last = {"a": Sequence((Literal(b"a"), Alternation((Rule("b"), Literal(b"")))))}
    last["b"] = Sequence((Literal(b"b"), Rule("a")))
    network = COMPILER.from_grammar(Grammar(last, "a")).automaton.network
    assert len(entries(network)) == 2 and not is_recursive(network)
    assert not is_recursive(COMPILER.json_schema(PERSON).automaton.network)


@pytest.mark.parametrize(
    ("pattern", "labels"),
    [
        ("[0-9]{4}-[0-9]", ["[0-9]{4}'-'", "[0-9]"]),
        ("a|b|d", ["[abd]"]),
        ("yes|no", ["'no'", "'yes'"]),
        (r"[^a]", ["[^a]"]),
        (r"(?s:.)", ["any character"]),
        (r"[\]\\^-]", [r"[\-\\-\^]"]),
        (r"\n", [r"'\n'"]),
        ("é", ["'é'"]),
        ("[à-ü]", ["[à-ü]"]),
        ("x{0,9}y", ["'x' ≤ 9×", "'y'"]),
        ("\x07", [r"'\x07'"]),
    ],
)
def test_labels_read_as_people_write(pattern: str, labels: list[str]) -> None:
    graph = fold(explore(COMPILER.regex(pattern).automaton, "automaton"))
    assert sorted(label(edge) for edge in graph.edges) == sorted(labels)


def test_a_character_of_a_json_string_has_a_name() -> None:
    graph = fold(explore(REGULAR["any string"].automaton, "automaton"))
    assert {label(edge) for edge in graph.edges} == {"""'"'""", "character"}


def test_what_is_cut_off_is_counted_and_its_neighbours_are_open() -> None:
    whole = explore(REGULAR["person"].automaton, "automaton")
    part = whole.beginning(10)
    assert part.num_nodes == 10 and part.num_left_out == whole.num_nodes - 10 and not part.is_whole
    lost = {edge.source for edge in whole.edges if edge.source < 10 <= edge.target}
    assert {whole.states[node] for node in lost} == {part.states[node] for node in part.open_nodes}
    assert whole.beginning(whole.num_nodes) is whole
    cut = explore(REGULAR["person"].automaton, "automaton", max_nodes=10)
    assert cut.num_nodes == 10 and cut.open_nodes and not cut.is_whole


@pytest.mark.parametrize("width", [60, 80, 100, 120])
@pytest.mark.parametrize("name", REGULAR)
def test_the_terminal_shows_every_edge_once_within_its_width(name: str, width: int) -> None:
    graph = explore(REGULAR[name].automaton, "automaton")
    for shown in (graph, fold(graph)):
        legend = legend_of([shown], 24)
        out = draw(shown, legend, width=width)
        assert max(map(columns, out)) <= width
        arrows = sum(line.count("──▶") + line.count("↺") for line in out)
        assert arrows == len(shown.edges)
        text = "\n".join(out)
        assert all(re.search(rf"\b{node}\b", text) for node in range(shown.num_nodes))
        assert all(f"◎ {node}" in text for node in shown.accepting)


@pytest.mark.parametrize("name", REGULAR)
def test_svg_shows_every_label_and_no_two_overlap(name: str) -> None:
    graph = fold(explore(REGULAR[name].automaton, "automaton")).beginning(40)
    found = picture([graph], 34, title="<a>", notes=["a note with <angles> & more"])
    root = ElementTree.fromstring(found.document)
    texts = {"".join(element.itertext()) for element in root.iter(f"{SVG}text")}
    for edge in graph.edges:
        assert any(label(edge) in text for text in texts)
    assert "a note with <angles> & more" in texts and root.findtext(f"{SVG}title") == "<a>"
    assert found._repr_svg_() == found.document
    _check_picture(found, graph)


SVG = "{http://www.w3.org/2000/svg}"
LOOKS = {"style", "script", "class", "id", "onload"}


@settings(max_examples=40, deadline=None)
@given(PATTERNS, st.integers(2, 9), st.integers(1, 12))
def test_any_automaton_is_a_picture_with_each_state_and_edge_once(pattern: str, nodes: int, edges: int) -> None:
    whole = fold(explore(COMPILER.regex(pattern).automaton, "automaton"))
    graph = whole.beginning(nodes, edges)
    assert graph.num_nodes <= nodes and len(graph.edges) <= edges
    assert (graph is whole) == (whole.num_nodes <= nodes and len(whole.edges) <= edges) == (not graph.open_nodes)
    found = picture([graph], 12)
    assert found == picture([graph], 12)
    _check_picture(found, graph)


def _check_picture(found: Picture, graph: Graph) -> None:
    """No looks but attributes, nothing out of the view, and heads whose tips lie on the circles of their targets."""
    _check_boxes([box for _, box in found.texts], found.width, found.height)
    root = ElementTree.fromstring(found.document)
    assert root.get("role") == "img" and root[0].tag == f"{SVG}title" and root[1].tag == f"{SVG}desc"
    for element in root.iter():
        assert not LOOKS & {*element.attrib, element.tag.removeprefix(SVG)}
    drawing = next(group for group in root.findall(f"{SVG}g") if "transform" in group.attrib)
    lines, circles, heads, numbers = drawing.findall(f"{SVG}g")
    assert len(lines) == len(heads) == len(graph.edges) + 1
    assert [text.text for text in numbers] == [str(node) for node in range(graph.num_nodes)]
    centres = [(float(c.attrib["cx"]), float(c.attrib["cy"])) for c in circles if float(c.attrib["r"]) == RADIUS]
    assert len(centres) == graph.num_nodes and len(circles) == graph.num_nodes + len(graph.accepting)
    targets = sorted([graph.start, *(edge.target for edge in graph.edges)])
    reached: list[int] = []
    for head in heads:
        x, y = map(float, re.findall(r"[-0-9.]+", head.attrib["d"])[:2])
        near = [node for node, (a, b) in enumerate(centres) if abs(math.hypot(x - a, y - b) - RADIUS) < 0.2]
        reached += near
        assert len(near) == 1
    assert sorted(reached) == targets


def test_forced_text_has_one_colour_whatever_its_length() -> None:
    text = "because the quick brown fox jumps over the lazy dog and sleeps"
    graph = fold(explore(COMPILER.regex(f"[0-9]{{4}}-(yes|no), {text}[.!]").automaton, "automaton"))
    root = ElementTree.fromstring(picture([graph], 34).document)
    forced = {element.text for element in root.iter(f"{SVG}tspan")}
    assert {"'-'", "es'", "o'"} <= forced and any(part and "…" in part for part in forced)
    titles = ["".join(element.itertext()) for element in root.iter(f"{SVG}title")]
    assert f"', {text}'" in titles
    assert len({element.get("fill") for element in root.iter(f"{SVG}tspan")}) == 1


def test_the_key_of_a_picture_has_what_is_in_it() -> None:
    for pattern, texts in (("abc", {"forced: nothing to decide"}), ("ab|cd", {"forced: nothing to decide", "chosen"})):
        graph = fold(explore(COMPILER.regex(pattern).automaton, "automaton"))
        always = {"start", "may end here", "a dead end, not allowed"}
        assert {entry.text for entry in picture_key([graph])} == texts | always


def test_classes_of_every_script_have_their_names() -> None:
    graph = fold(explore(COMPILER.regex(r"\d\w").automaton, "automaton"))
    assert [label(edge) for edge in graph.edges] == [r"\d", r"\w"]
    assert "digits of every script" in picture([graph], 34).document


def _check_boxes(boxes: list[Box], width: float, height: float) -> None:
    for index, box in enumerate(boxes):
        assert 0 <= box.left <= box.right <= width and 0 <= box.top <= box.bottom <= height
        assert not any(_overlap(box, other) for other in boxes[index + 1 :])


def _overlap(one: Box, other: Box) -> bool:
    return one.left < other.right and other.left < one.right and one.top < other.bottom and other.top < one.bottom


@settings(max_examples=80, deadline=None)
@given(
    st.integers(1, 9).flatmap(
        lambda n: st.lists(
            st.tuples(st.integers(0, n - 1), st.integers(0, n - 1), st.integers(1, 30)), max_size=16
        ).map(lambda edges: (n, edges))
    ),
    st.sampled_from([300.0, 2000.0]),
)
def test_any_graph_is_laid_out_without_overlaps(drawn: tuple[int, list[tuple[int, int, int]]], width: float) -> None:
    """Cycles, loops, parallel edges and nodes that nothing leads to included."""
    num_nodes, rows = drawn
    edges = tuple(Edge(source, target, ((1 << 97,),)) for source, target, _ in rows)
    graph = Graph("any", tuple(range(num_nodes)), edges, frozenset({0}))
    placed = layout(graph, [size for _, _, size in rows], max_width=width)
    boxes = [route.text for route in placed.routes]
    _check_boxes([*boxes], placed.width, placed.height)
    nodes = [(x - 15, y - 15, x + 15, y + 15) for x, y in placed.centres]
    for index, (left, top, right, bottom) in enumerate(nodes):
        assert left >= 0 and top >= 0 and right <= placed.width and bottom <= placed.height
        for a, b, c, d in nodes[index + 1 :]:
            assert right <= a or c <= left or bottom <= b or d <= top
        for box in boxes:
            assert right <= box.left or box.right <= left or bottom <= box.top or box.bottom <= top
    for route, (source, target, _) in zip(placed.routes, rows, strict=True):
        assert not route.points if source == target else route.points[0] == placed.centres[source]
        assert not route.points if source == target else route.points[-1] == placed.centres[target]
