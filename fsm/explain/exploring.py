"""Exploring: the states of an automaton as a graph, as far as a budget goes.

The automaton reads bytes; a reader of pictures thinks in characters. So a state in the middle of a character (inside
its UTF-8 bytes, or inside a JSON escape) is not a node: the whole spelling is one edge, with its words. Nothing else
is changed: every word of every edge leads the automaton from the source's state to the target's, and every way that
the automaton has is a word of an edge.

It makes states in the automaton that it looks at. Cost: about 2 µs per byte that may follow.
"""

from __future__ import annotations

from ..automaton.automaton import Automaton
from ..columns import K_TEXT
from .graph import Edge, Graph, Word

MAX_NODES = 1500
MAX_STEPS = 400_000  # bytes tried

Ways = dict[int, tuple[Word, ...]]
"""By target state: the words that lead there."""


def explore(automaton: Automaton, title: str, *, max_nodes: int = MAX_NODES) -> Graph:
    """The states that can be reached from the start, in breadth-first order."""
    explorer = _Explorer(automaton)
    numbers = {automaton.start: 0}
    order = [automaton.start]
    edges: list[Edge] = []
    open_nodes: set[int] = set()
    for source, state in enumerate(order):
        if explorer.num_steps > MAX_STEPS:
            open_nodes.update(range(source, len(order)))
            break
        for target, words in explorer.ways(state).items():
            number = numbers.get(target)
            if number is None:
                if len(order) >= max_nodes:
                    open_nodes.add(source)
                    continue
                number = numbers[target] = len(order)
                order.append(target)
            edges.append(Edge(source, number, words))
    accepting = frozenset(number for state, number in numbers.items() if automaton.is_accepting(state))
    return Graph(title, tuple(order), tuple(edges), accepting, 0, 0, not open_nodes, frozenset(open_nodes))


class _Explorer:
    def __init__(self, automaton: Automaton) -> None:
        self.automaton = automaton
        self.num_steps = 0
        self._kind = automaton.network.kind.tolist()
        self._arg = automaton.network.arg.tolist()
        self._inside: dict[int, bool] = {}
        self._ways: dict[int, Ways] = {}

    def ways(self, state: int) -> Ways:
        """Where whole characters lead from a state. Characters are short, so the recursion is, too."""
        known = self._ways.get(state)
        if known is not None:
            return known
        masks: dict[tuple[int, Word], int] = {}
        for byte in self.automaton.live_bytes(state).nonzero()[0].tolist():
            self.num_steps += 1
            target = self.automaton.advance_bytes(state, bytes([byte]))
            if not self.is_inside(target):
                masks[target, ()] = masks.get((target, ()), 0) | 1 << byte
                continue
            for end, words in self.ways(target).items():
                for word in words:
                    masks[end, word] = masks.get((end, word), 0) | 1 << byte
        found: dict[int, list[Word]] = {}
        for (target, rest), mask in masks.items():
            found.setdefault(target, []).append((mask, *rest))
        ways = {target: tuple(sorted(words, key=_order)) for target, words in found.items()}
        if self.is_inside(state):
            self._ways[state] = ways
        return ways

    def is_inside(self, state: int) -> bool:
        """Whether a character has begun and not ended."""
        found = self._inside.get(state)
        if found is None:
            found = self._inside[state] = not self.automaton.is_accepting(state) and all(
                self._kind[node] == K_TEXT and sub % self.automaton.network.texts[self._arg[node]].num_nodes
                for node, sub, _ in self.automaton.configurations(state)
            )
        return found


def _order(word: Word) -> tuple[int, tuple[int, ...]]:
    return len(word), tuple(mask & -mask for mask in word)
