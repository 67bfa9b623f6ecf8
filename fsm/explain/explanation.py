"""Explanation: everything that can be said about a constraint.

`explain` compiles the constraint afresh, with a clock in hand, and looks at it from all sides: pictures, what each
keyword demands and by what means, what is forced, how short a text can be, what masks cost. It changes nothing that
requests use. Figures of time are of this process; everything else is the same every time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

from ..any_json import ExtraKeys, KeyOrder, Whitespace, json_grammar
from ..constraint import Constraint
from ..grammars import Syntax, text_to_grammar
from ..json_schema import schema_to_grammar
from ..json_schema.demands import demands
from ..masks.mask_store import MaskStore
from ..network.expression import Alternation, Embed, Grammar, Literal
from ..network.network import Network, build_network
from ..network.walks import parts_of
from ..regex.regex import regex_to_expression
from ..resources import NO_RESOURCES, Resources
from ..tags.special_tokens import SpellSpecial
from ..tags.structural_tags import structural_tag_to_grammar
from ..text.text_table import text_table
from ..vocabulary.vocabulary import Vocabulary
from .blame import blame
from .exploring import explore
from .folding import fold
from .graph import AUTOMATON, Graph
from .labels import language_label
from .measuring import Timings, walk
from .report import MAX_DRAWN, Explanation
from .rules import is_recursive, rule_graphs
from .shortest import shortest
from .stepping import step_through

MAX_AUTOMATON_BYTES = 64 << 20
STORE_BYTES = 64 << 20
MAX_RULES = 24  # graphs of rules
MAX_FOLDED = 4000  # nodes of a graph: what is beyond them is left out of its compressed form


def explain(
    vocabulary: Vocabulary,
    kind: str,
    source: object,
    *,
    whitespace: Whitespace = "compact",
    key_order: KeyOrder = "schema",
    extra_keys: ExtraKeys = "schema",
    syntax: Syntax = "auto",
    text: str | None = None,
    resources: Resources = NO_RESOURCES,
) -> Explanation:
    """Compiles a constraint and explains it.

    Args:
        kind: "regex", "choice", "json_schema", "json_object", "json_value", "grammar" or "structural_tag".
        source: pattern or grammar text, a sequence of options, or a schema or structural tag as json.loads gives it.
        whitespace, key_order, extra_keys, syntax: layout of JSON, order of the keys under a schema and whether others
            may follow, notation of grammar text.
        text: a text to go through, step by step.
        resources: schemas by URI that a schema may refer to.

    Raises:
        ConstraintError: as for compiling it.
    """
    layout = _Layout(whitespace, key_order, extra_keys, syntax, vocabulary.spell_special, resources)
    grammar, constraint, names, timings = _compiled(vocabulary, kind, source, layout)
    network = constraint.automaton.network
    masks, samples = walk(constraint)
    row_bytes, automaton_bytes = constraint.caches.masks.store.num_bytes, constraint.num_bytes  # before more is found
    schema = cast("dict[str, Any] | bool", source) if kind == "json_schema" else None
    known, annotations = demands(schema, key_order, resources) if schema is not None else ([], [])
    steps, repeats = (None, False) if text is None else step_through(constraint, text, names)
    if steps is not None and steps.leaves and text is not None and schema is not None:
        how = whitespace, key_order, extra_keys, resources
        reasons = blame(vocabulary, schema, text, steps.num_bytes, *how, repeats=repeats)
        steps = replace(steps, reasons=tuple(reasons))
    graphs, num_states = _graphs(constraint, grammar, names)
    compressed = tuple(fold(graph.beginning(MAX_FOLDED)) for graph in graphs)
    return Explanation(
        kind,
        constraint.source,
        is_recursive(network),
        len(network.entries),
        network.num_nodes,
        len(network.texts),
        num_states,
        graphs,
        compressed,
        tuple(known),
        tuple(annotations),
        _runs(compressed),
        shortest(constraint),
        constraint.min_tokens(),
        timings,
        masks,
        automaton_bytes,
        row_bytes,
        samples,
        steps,
        extra_keys if schema is not None else None,
    )


def _compiled(
    vocabulary: Vocabulary, kind: str, source: object, layout: _Layout
) -> tuple[Grammar, Constraint, dict[int, str], Timings]:
    """The constraint, with a first row of its mask; its grammar, and the names of its rules."""
    clock = _Clock()
    places: dict[str, str] = {}
    grammar = _grammar(kind, source, layout, places)
    grammar_ms = clock.lap()
    network = build_network(grammar)
    network_ms = clock.lap()
    store = MaskStore(vocabulary, STORE_BYTES)
    constraint = Constraint(network, kind, shown_source(kind, source), store, MAX_AUTOMATON_BYTES)
    constraint.cursor().row()
    return grammar, constraint, _rule_names(network, places), Timings(grammar_ms, network_ms, clock.lap())


def shown_source(kind: str, source: Any) -> str:
    """The description as text."""
    return source if kind in ("regex", "grammar") else json.dumps(source, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class _Layout:
    whitespace: Whitespace
    key_order: KeyOrder
    extra_keys: ExtraKeys
    syntax: Syntax
    spell_special: SpellSpecial
    resources: Resources


def _grammar(kind: str, source: Any, layout: _Layout, places: dict[str, str]) -> Grammar:
    whitespace, keys = layout.whitespace, (layout.key_order, layout.extra_keys)
    makers: dict[str, Callable[[], Grammar]] = {
        "regex": lambda: Grammar({"text": regex_to_expression(source)}, "text"),
        "choice": lambda: Grammar({"text": Alternation(tuple(Literal(o.encode()) for o in source))}, "text"),
        "json_schema": lambda: schema_to_grammar(
            source,
            whitespace=whitespace,
            key_order=keys[0],
            extra_keys=keys[1],
            places=places,
            resources=layout.resources,
        ),
        "json_object": lambda: json_grammar("object", whitespace),
        "json_value": lambda: json_grammar("value", whitespace),
        "grammar": lambda: text_to_grammar(source, layout.syntax, spell_special=layout.spell_special),
        "structural_tag": lambda: structural_tag_to_grammar(
            source, whitespace=whitespace, spell_special=layout.spell_special
        ),
    }
    return makers[kind]()


def _rule_names(network: Network, places: dict[str, str]) -> dict[int, str]:
    """A name for every rule by its entry: that of the grammar, or for schemas the place in the schema."""
    found: dict[int, str] = {}
    used: set[str] = set()
    for name, entry in network.entries.items():
        wanted = (places[name] or "schema").removeprefix("/") if name in places else name
        if wanted.isdigit():
            wanted = f"rule {wanted}"
        shown = wanted if wanted not in used else f"{wanted} ({name})"
        used.add(shown)
        found[entry] = shown
    return found


def _graphs(constraint: Constraint, grammar: Grammar, names: dict[int, str]) -> tuple[tuple[Graph, ...], int | None]:
    """What is drawn, and the number of states if they could be counted."""
    automaton, network = constraint.automaton, constraint.automaton.network
    whole, num_states = None, None
    if not is_recursive(network):
        whole = explore(automaton, AUTOMATON)
        num_states = whole.num_nodes if whole.is_whole else None
        # of tags the rules say more than states of free text, each of which may be the beginning of a mark
        if whole.is_whole and (constraint.kind != "structural_tag" or whole.num_nodes <= MAX_DRAWN):
            return (whole,), num_states
    bodies: dict[int, str] = {}

    def name(entry: int) -> str:
        return names.get(entry) or bodies.setdefault(entry, f"turn {len(bodies) + 1}")

    texts: dict[str, int] = {}
    labels: dict[int, str] = {}
    known = _text_labels(grammar)

    def text_name(index: int) -> str:
        if index not in labels:
            wanted = known.get(id(network.texts[index]), "text")
            texts[wanted] = texts.get(wanted, 0) + 1
            labels[index] = wanted if texts[wanted] == 1 else f"{wanted} ({texts[wanted]})"
        return labels[index]

    found = tuple(rule_graphs(network, name, text_name, MAX_RULES))
    # the beginning of an automaton with too many states says more than "a text" alone
    says_little = sum(graph.num_nodes for graph in found) <= 2
    return (whole,) if whole is not None and says_little else found, num_states


def _text_labels(grammar: Grammar) -> dict[int, str]:
    """What each text automaton of a grammar writes, by the identity of its table."""
    found: dict[int, str] = {}
    for body in grammar.rules.values():
        for part in parts_of(body):
            if isinstance(part, Embed):
                found.setdefault(id(text_table(part.language)), language_label(part.language))
    return found


def _runs(graphs: tuple[Graph, ...]) -> tuple[bytes, ...]:
    found: set[bytes] = set()
    for graph in graphs:
        for edge in graph.edges:
            if edge.num_forced > 1:
                tail = edge.words[0][-edge.num_forced :]
                found.add(bytes(mask.bit_length() - 1 for mask in tail))
    return tuple(sorted(found, key=lambda run: (-len(run), run)))


class _Clock:
    def __init__(self) -> None:
        self._at = time.perf_counter()

    def lap(self) -> float:
        """Milliseconds since the last lap."""
        before, self._at = self._at, time.perf_counter()
        return (self._at - before) * 1000
