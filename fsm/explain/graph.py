"""Graph: an automaton as something to look at, and to be checked against the one that runs.

::

    Graph   nodes 0 .. n-1, one of them the start, some of them accepting
    Edge    source --label--> target

A label is one of two things: *words*, each a way along the edge as one set of bytes per position; or the *name* of
something that is written as a whole (a call of a rule, a text automaton, turns of a loop) in pictures of rules.
`most` bounds how often a loop at a node may be taken.

Immutable. It knows neither automata nor how anything is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

AUTOMATON = "automaton"
"""The title of a graph of all states (others are graphs of rules)."""

Word = tuple[int, ...]
"""One set of bytes (256 bits) per position."""


class Kind(Enum):
    """What an edge stands for."""

    BYTES = "bytes"
    CALL = "call"  # write the rule, then come back: push and pop
    TEXT = "text"  # any text of a regular language
    TURNS = "turns"  # a counted loop, drawn in a graph of its own


@dataclass(frozen=True, slots=True)
class Edge:
    """One way from node to node.

    Attributes:
        words: what is read; empty unless `kind` is BYTES.
        name: what is written otherwise.
        most: how often this edge, a loop, may be taken before the node is left; None: as often as you like.
        num_forced: how many positions at the end of the word must come next once the edge was chosen (compressed
            forms only).
    """

    source: int
    target: int
    words: tuple[Word, ...] = ()
    name: str = ""
    kind: Kind = Kind.BYTES
    most: int | None = None
    num_forced: int = 0


@dataclass(frozen=True, slots=True)
class Graph:
    """See the module's docstring.

    Attributes:
        title: of what it is the picture.
        states: the automaton's state (or the rule's position) after each node.
        accepting: the nodes at which the text (or the rule) may end.
        num_left_out: states that are known and not in this graph.
        is_whole: whether nothing at all was left out.
    """

    title: str
    states: tuple[int, ...]
    edges: tuple[Edge, ...]
    accepting: frozenset[int]
    start: int = 0
    num_left_out: int = 0
    is_whole: bool = True
    open_nodes: frozenset[int] = field(default_factory=frozenset)
    """Nodes from which more leads on than the edges say."""

    @property
    def num_nodes(self) -> int:
        return len(self.states)

    def leaving(self) -> list[list[Edge]]:
        """The edges that leave each node, in order."""
        found: list[list[Edge]] = [[] for _ in self.states]
        for edge in self.edges:
            found[edge.source].append(edge)
        return found

    def beginning(self, max_nodes: int, max_edges: int = 1 << 30) -> Graph:
        """The graph, or its first nodes and edges in breadth-first order, at most `max_nodes` and `max_edges`."""
        if self.num_nodes <= max_nodes and len(self.edges) <= max_edges:
            return self
        leaving = self.leaving()
        order = [self.start]
        known = {self.start}
        kept: list[Edge] = []
        for node in order:
            for edge in leaving[node]:
                if len(kept) == max_edges or (edge.target not in known and len(order) == max_nodes):
                    continue
                kept.append(edge)
                if edge.target not in known:
                    known.add(edge.target)
                    order.append(edge.target)
        return _kept(self, order, kept)


def _kept(graph: Graph, order: list[int], kept: list[Edge]) -> Graph:
    """The graph of some nodes and edges; nodes of which edges are lost become open."""
    number = {node: index for index, node in enumerate(order)}
    lost = set(graph.edges).difference(kept)
    rest = replace(
        graph,
        num_left_out=graph.num_left_out + graph.num_nodes - len(order),
        is_whole=False,
        open_nodes=graph.open_nodes | {edge.source for edge in lost},
    )
    return renumbered(rest, order, number, [moved(edge, number[edge.source], number[edge.target]) for edge in kept])


def renumbered(graph: Graph, kept: Iterable[int], number: Mapping[int, int], edges: Iterable[Edge]) -> Graph:
    """The graph of the nodes `kept`, in this order, and of new edges; `number`: the new ones of those that have one."""
    return replace(
        graph,
        states=tuple(graph.states[node] for node in kept),
        edges=tuple(edges),
        accepting=frozenset(number[node] for node in graph.accepting if node in number),
        start=number[graph.start],
        open_nodes=frozenset(number[node] for node in graph.open_nodes if node in number),
    )


def moved(edge: Edge, source: int, target: int) -> Edge:
    """The same label between other nodes."""
    return Edge(source, target, edge.words, edge.name, edge.kind, edge.most, edge.num_forced)


def is_single(mask: int) -> bool:
    """Whether a set has exactly one byte."""
    return mask != 0 and mask & (mask - 1) == 0


def is_forced(edges: Iterable[Edge]) -> bool:
    """Whether these edges, all that leave a node, are one run of certain bytes."""
    found = list(edges)
    return (
        len(found) == 1
        and found[0].kind is Kind.BYTES
        and len(found[0].words) == 1
        and all(map(is_single, found[0].words[0]))
    )
