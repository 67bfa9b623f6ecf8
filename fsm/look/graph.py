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

from collections.abc import Iterable
from dataclasses import dataclass, field
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

    def beginning(self, max_nodes: int) -> Graph:
        """The graph itself, or its first nodes in breadth-first order with the edges among them."""
        if self.num_nodes <= max_nodes:
            return self
        leaving = self.leaving()
        order = [self.start]
        known = {self.start}
        for node in order:
            for edge in leaving[node]:
                if edge.target not in known and len(order) < max_nodes:
                    known.add(edge.target)
                    order.append(edge.target)
        return _kept(self, order)


def _kept(graph: Graph, order: list[int]) -> Graph:
    """The graph of some nodes; those of which edges are lost become open."""
    number = {node: index for index, node in enumerate(order)}
    edges: list[Edge] = []
    open_nodes = {number[node] for node in graph.open_nodes if node in number}
    for edge in graph.edges:
        if edge.source not in number:
            continue
        if edge.target in number:
            edges.append(moved(edge, number[edge.source], number[edge.target]))
        else:
            open_nodes.add(number[edge.source])
    return Graph(
        graph.title,
        tuple(graph.states[node] for node in order),
        tuple(edges),
        frozenset(number[node] for node in graph.accepting if node in number),
        number[graph.start],
        graph.num_left_out + graph.num_nodes - len(order),
        False,
        frozenset(open_nodes),
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
