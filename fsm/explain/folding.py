"""Folding: the compressed form of a graph. The same language with fewer nodes.

::

    0. equal        nodes with the same future become one
    1. counted      a chain of nodes that differ only in how often the same label was read
                    becomes one node with a loop "at most n times"
    2. repeated     a label that must be read n times in a row becomes one edge  [0-9]{4}
    3. forced       bytes that must come next are appended to the edge that leads to them  '","age":'

A node goes only if nothing but one edge leads to it, nothing but one leaves it and the text cannot end there; so what
is lost is a place where there was nothing to decide. What jump-forward reads (`Automaton.forced_run`) is the run of
single bytes at the end of an edge, and on along edges of single bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from .graph import Edge, Graph, Kind, Word, is_forced, is_single, moved, renumbered

MAX_ROUNDS = 100  # of refinement
COUNTED_FROM = 3  # nodes in a chain for which a counter is easier to read


def fold(graph: Graph) -> Graph:
    """The compressed form."""
    # runs first: nodes inside a run are not to be joined with those of another run that ends alike
    joined = _joined(_appended(_appended(_counted(_marked(graph)), _repeats), _forces))
    return _appended(_appended(_counted(joined), _repeats), _forces)


def _marked(graph: Graph) -> Graph:
    """The same graph, knowing what of its edges is forced: all of it, or the end of a character spelt like no other."""
    edges: list[Edge] = []
    for node, leaving in enumerate(graph.leaving()):
        may_end = node in graph.accepting or node in graph.open_nodes
        words = [word for edge in leaving for word in edge.words]
        for edge in leaving:
            num_forced = 0
            if len(edge.words) == 1 and node not in graph.open_nodes:
                num_forced = _num_forced(edge.words[0], words, may_end or len(leaving) > 1)
            edges.append(replace(edge, num_forced=num_forced))
    return replace(graph, edges=tuple(edges))


def _num_forced(word: Word, words: list[Word], has_choice: bool) -> int:
    """How many positions at the end of a word are certain once those before have been read."""
    count = 0
    while count < len(word) - has_choice and is_single(word[-1 - count]):
        count += 1
    while count > 0:
        begin = word[: len(word) - count]
        alike = [o for o in words if o != word and all(a & b for a, b in zip(begin, o, strict=False))]
        if not alike:
            break
        count -= 1
    return count


def _joined(graph: Graph) -> Graph:
    """Nodes with the same future as one: Moore's refinement, from "may end here" on."""
    leaving = graph.leaving()
    group = [1 if node in graph.accepting else 0 for node in range(graph.num_nodes)]
    for node in graph.open_nodes:
        group[node] = node + 2  # whose future is not known
    num_groups = len(set(group))
    for _ in range(MAX_ROUNDS):
        numbers: dict[object, int] = {}
        refined: list[int] = []
        for node, edges in enumerate(leaving):
            future = (group[node], frozenset(moved(edge, 0, group[edge.target]) for edge in edges))
            refined.append(numbers.setdefault(future, len(numbers)))
        group = refined
        if len(numbers) == num_groups:
            break
        num_groups = len(numbers)
    else:
        return graph  # long chains take a round per node, and little can be joined in them
    if num_groups == graph.num_nodes:
        return graph
    first: dict[int, int] = {}
    for node, number in enumerate(group):
        first.setdefault(number, node)
    kept = list(first.values())
    place = {number: index for index, number in enumerate(first)}
    places = [place[number] for number in group]
    edges = [edge for node in kept for edge in _parallel(leaving[node], places)]
    return renumbered(graph, kept, dict(enumerate(places)), edges)


def _parallel(edges: list[Edge], place: list[int]) -> list[Edge]:
    """The edges of a node, moved; what now leads to the same node is one edge."""
    words: dict[tuple[int, int | None], dict[Word, int]] = {}
    forced: dict[tuple[int, int | None], int] = {}
    found: list[Edge] = []
    for edge in edges:
        source, target = place[edge.source], place[edge.target]
        if edge.kind is not Kind.BYTES:
            found.append(moved(edge, source, target))
            continue
        masks = words.setdefault((target, edge.most), {})
        key = (target, edge.most)
        # after a choice of first bytes all but the first can be forced
        forced[key] = min(forced[key], edge.num_forced, len(edge.words[0]) - 1) if key in forced else edge.num_forced
        for first, *rest in edge.words:
            masks[tuple(rest)] = masks.get(tuple(rest), 0) | first
    for (target, most), masks in words.items():
        ways = tuple((first, *rest) for rest, first in masks.items())
        found.append(
            Edge(place[edges[0].source], target, ways, most=most, num_forced=forced[target, most] * (len(ways) == 1))
        )
    return found


class _Table:
    """A graph while nodes are taken out of it."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.leaving = graph.leaving()
        self.entering = [0] * graph.num_nodes
        for edge in graph.edges:
            self.entering[edge.target] += 1
        self.gone: set[int] = set()

    def is_inner(self, node: int) -> bool:
        """Whether one edge leads to the node, one leaves it, and the text cannot end there."""
        return (
            self.entering[node] == 1
            and len(self.leaving[node]) == 1
            and node != self.graph.start
            and node not in self.graph.accepting
            and node not in self.graph.open_nodes
            and self.leaving[node][0].target != node
        )

    def finish(self) -> Graph:
        kept = [node for node in range(self.graph.num_nodes) if node not in self.gone]
        number = {node: index for index, node in enumerate(kept)}
        edges = [moved(edge, number[node], number[edge.target]) for node in kept for edge in self.leaving[node]]
        return renumbered(self.graph, kept, number, edges)


def _appended(graph: Graph, belongs: Callable[[Edge, Edge], bool]) -> Graph:
    """Takes out inner nodes whose leaving edge belongs to the entering one."""
    table = _Table(graph)
    for node in range(graph.num_nodes):
        if node in table.gone:
            continue
        for index, edge in enumerate(table.leaving[node]):
            while edge.kind is Kind.BYTES and edge.target not in (node, graph.start) and len(edge.words) == 1:
                if not table.is_inner(edge.target):
                    break
                (following,) = table.leaving[edge.target]
                if not belongs(edge, following):
                    break
                table.gone.add(edge.target)
                word = (*edge.words[0], *following.words[0])
                # a run goes on in the following edge only if that is forced from its beginning
                goes_on = following.num_forced == len(following.words[0])
                num_forced = following.num_forced + (edge.num_forced if goes_on else 0)
                edge = Edge(node, following.target, (word,), num_forced=num_forced)
            table.leaving[node][index] = edge
    return table.finish()


def _forces(_: Edge, following: Edge) -> bool:
    return following.most is None and is_forced((following,))


def _repeats(edge: Edge, following: Edge) -> bool:
    """Whether the label goes on as it began; single bytes are left to `_forces`."""
    return (
        following.kind is Kind.BYTES
        and following.most is None
        and len(following.words) == 1
        and len(following.words[0]) == 1
        and set(edge.words[0]) == set(following.words[0])
    )


def _counted(graph: Graph) -> Graph:
    table = _Table(graph)
    targets = {edge.target for edge in graph.edges}
    failed: set[tuple[int, tuple[Word, ...]]] = set()
    for node in sorted(targets | {graph.start}):
        if node in table.gone:
            continue
        for chain_edge in table.leaving[node]:
            if (node, chain_edge.words) in failed:
                continue
            chain, is_chain = _chain(table, node, chain_edge)
            if not is_chain:  # a chain that begins further on ends in the same place
                failed.update((member, chain_edge.words) for member in chain)
            elif len(chain) >= COUNTED_FROM:
                loop = Edge(node, node, chain_edge.words, most=len(chain) - 1)
                # the edges of the last of them: all but the one that counts
                rest = (replace(edge, source=node, num_forced=0) for edge in table.leaving[chain[-1]])
                table.leaving[node] = [loop, *rest]
                table.gone.update(chain[1:])
                break
    for node in range(graph.num_nodes):
        if node in table.gone:
            table.leaving[node] = []
    return table.finish()


def _chain(table: _Table, first: int, step: Edge) -> tuple[list[int], bool]:
    """Nodes from `first` on, each reached from the one before by the same label, and whether all else is equal."""
    graph = table.graph
    if step.kind is not Kind.BYTES or step.most is not None:
        return [], False
    rest = _others(table, first, step)
    chain = [first]
    edge: Edge | None = step
    while edge is not None:
        node = edge.target
        is_fit = table.entering[node] == 1 and node not in (first, graph.start) and node not in graph.open_nodes
        if not is_fit or (node in graph.accepting) != (first in graph.accepting) or node in table.gone:
            return chain, False
        chain.append(node)
        edge = next((e for e in table.leaving[node] if e.words == step.words and e.kind is Kind.BYTES), None)
        if edge is None or edge.target == node:
            break
        if _others(table, node, edge) != rest:
            return chain[:-1], False
    if edge is not None or _others(table, chain[-1], None) != rest:
        return chain, False
    return chain, True


def _others(table: _Table, node: int, but: Edge | None) -> frozenset[Edge]:
    """What leaves a node besides one edge, as seen from nowhere."""
    return frozenset(replace(edge, source=0, num_forced=0) for edge in table.leaving[node] if edge is not but)
