"""Layout: where the nodes and labels of a graph stand, in the manner of Sugiyama, Tagawa and Toda (1981).

::

    1. edges that lead back (depth-first) are turned round for the layout
    2. ranks: longest path from the start; a label has a rank of its own between its two nodes, so that room is kept
       for it and no two texts can overlap; long edges get bends in the ranks between
    3. order within ranks: barycentres, up and down, the order with the fewest crossings is kept
    4. positions: each box as near to its neighbours as the others in its rank allow (isotonic regression)

"Along" is the direction of reading, "across" the other one; `layout` picks left to right, or top to bottom where
that would be wider than `max_width`. Units are pixels. It knows sizes and not what is written.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from .graph import Graph

RADIUS = 15.0
LINE = 17.0  # height of a text
CELL = 7.9  # width of one column of text
GAP_ALONG = 19.0
GAP_ACROSS = 12.0
MAX_SLACK = 30.0  # added where a line has a long way across
LOOP = 26.0  # how far a loop stands out
SWEEPS = 12
STARTS = 12  # orders that sweeps begin from
MAX_RESTARTED = 160  # nodes, labels and bends


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle."""

    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True, slots=True)
class Route:
    """How one edge is drawn.

    Attributes:
        edge: its index in the graph.
        points: from the source's circle to the target's, (x, y) each; empty for a loop.
        text: the room of its label.
    """

    edge: int
    points: tuple[tuple[float, float], ...]
    text: Box


@dataclass(frozen=True, slots=True)
class Layout:
    """A graph in place: centres of nodes, routes of edges, size of the whole."""

    centres: tuple[tuple[float, float], ...]
    routes: tuple[Route, ...]
    width: float
    height: float
    is_upright: bool


@dataclass(slots=True)
class _Item:
    """A node, a label or a bend; `before` and `after` is its room across, seen from its line."""

    along: float
    before: float
    after: float
    rank: int
    neighbours: list[int]
    is_bend: bool = False
    across: float = 0.0


def layout(graph: Graph, labels: Sequence[int], *, max_width: float = 860.0) -> Layout:
    """The place of everything; `labels` are the widths of the edges' labels in columns."""
    flat = _Plan(graph, labels, is_upright=False).layout()
    if flat.width <= max_width:
        return flat
    upright = _Plan(graph, labels, is_upright=True).layout()
    return upright if upright.width < flat.width else flat


class _Plan:
    def __init__(self, graph: Graph, labels: Sequence[int], *, is_upright: bool) -> None:
        self.graph = graph
        self.widths = [columns * CELL for columns in labels]
        self.is_upright = is_upright
        self.loops: list[list[int]] = [[] for _ in graph.states]
        for index, edge in enumerate(graph.edges):
            if edge.source == edge.target:
                self.loops[edge.source].append(index)
        self.items: list[_Item] = [self._node(node) for node in range(graph.num_nodes)]
        self.chains: dict[int, tuple[list[int], int, bool]] = {}  # items of an edge, its label's item, turned round

    def layout(self) -> Layout:
        ranks, turned = _ranks(self.graph)
        for item, rank in zip(self.items, ranks, strict=True):
            item.rank = 2 * rank
        for index, edge in enumerate(self.graph.edges):
            if edge.source != edge.target:
                self._thread(index, index in turned)
        layers: list[list[int]] = [[] for _ in range(1 + max(item.rank for item in self.items))]
        for index, item in enumerate(self.items):
            layers[item.rank].append(index)
        layers = _ordered(layers, self.items)
        _place(layers, self.items)
        return self._finish(self._along(layers))

    def _node(self, node: int) -> _Item:
        size = 2 * RADIUS
        room = RADIUS
        texts = [self.widths[index] for index in self.loops[node]]
        if not texts:
            return _Item(size, RADIUS, RADIUS, 0, [])
        if self.is_upright:
            return _Item(max(size, LINE * len(texts)), RADIUS, room + LOOP + max(texts) + 6, 0, [])
        return _Item(max(size, *texts), room + LOOP + LINE * len(texts), RADIUS, 0, [])

    def _label(self, index: int, rank: int) -> _Item:
        width = self.widths[index]
        if self.is_upright:
            return _Item(LINE + 4, 4.0, width + 10, rank, [], is_bend=True)
        return _Item(width + 4, LINE + 4, 4.0, rank, [], is_bend=True)

    def _thread(self, index: int, is_turned: bool) -> None:
        """Label and bends of an edge, from the lower rank to the higher."""
        edge = self.graph.edges[index]
        first, last = (edge.target, edge.source) if is_turned else (edge.source, edge.target)
        low, high = self.items[first].rank, self.items[last].rank
        label_rank = high - 1 if is_turned else low + 1
        chain = [first]
        label = -1
        for rank in range(low + 1, high):
            if rank == label_rank:
                item = self._label(index, rank)
                label = len(self.items)
            else:
                item = _Item(0.0, 3.0, 3.0, rank, [], is_bend=True)
            self.items.append(item)
            chain.append(len(self.items) - 1)
        chain.append(last)
        for one, other in itertools.pairwise(chain):
            self.items[one].neighbours.append(other)
            self.items[other].neighbours.append(one)
        self.chains[index] = (chain, label, is_turned)

    def _along(self, layers: list[list[int]]) -> list[tuple[float, float]]:
        """Begin and end of every rank along the direction of reading."""
        found: list[tuple[float, float]] = []
        position = 4.0
        for number, layer in enumerate(layers):
            size = max(self.items[index].along for index in layer)
            found.append((position, position + size))
            steepest = max(
                (
                    abs(self.items[index].across - self.items[other].across)
                    for index in layer
                    for other in self.items[index].neighbours
                    if self.items[other].rank == number + 1
                ),
                default=0.0,
            )
            position += size + GAP_ALONG + min(steepest / 5, MAX_SLACK)
        return found

    def _finish(self, along: list[tuple[float, float]]) -> Layout:
        least = min(item.across - item.before for item in self.items) - 4
        for item in self.items:
            item.across -= least
        depth = max(item.across + item.after for item in self.items) + 4
        centres = [self._point(sum(along[item.rank]) / 2, item.across) for item in self.items[: self.graph.num_nodes]]
        routes = [self._route(index, along, centres) for index in range(len(self.graph.edges))]
        length = along[-1][1] + 4
        width, height = (depth, length) if self.is_upright else (length, depth)
        return Layout(tuple(centres), tuple(routes), width, height, self.is_upright)

    def _point(self, along: float, across: float) -> tuple[float, float]:
        return (across, along) if self.is_upright else (along, across)

    def _route(self, index: int, along: list[tuple[float, float]], centres: list[tuple[float, float]]) -> Route:
        edge = self.graph.edges[index]
        if edge.source == edge.target:
            return Route(index, (), self._loop_text(index, centres[edge.source]))
        chain, label, is_turned = self.chains[index]
        points: list[tuple[float, float]] = []
        for position in chain:
            item = self.items[position]
            begin, end = along[item.rank]
            if position < self.graph.num_nodes:
                points.append(self._point((begin + end) / 2, item.across))
            else:
                points += [self._point(begin, item.across), self._point(end, item.across)]
        item = self.items[label]
        begin, end = along[item.rank]
        x, y = self._point((begin + end) / 2, item.across)
        width = self.widths[index]
        if self.is_upright:
            text = Box(x + 6, y - LINE / 2, x + 6 + width, y + LINE / 2)
        else:
            text = Box(x - width / 2, y - 3 - LINE, x + width / 2, y - 3)
        return Route(index, tuple(points[::-1] if is_turned else points), text)

    def _loop_text(self, index: int, centre: tuple[float, float]) -> Box:
        x, y = centre
        place = self.loops[self.graph.edges[index].source].index(index)
        count = len(self.loops[self.graph.edges[index].source])
        width = self.widths[index]
        if self.is_upright:
            left = x + RADIUS + LOOP
            top = y - LINE * count / 2 + LINE * place
            return Box(left, top, left + width, top + LINE)
        bottom = y - RADIUS - LOOP + 2 - LINE * place
        return Box(x - width / 2, bottom - LINE, x + width / 2, bottom)


def _ranks(graph: Graph) -> tuple[list[int], set[int]]:
    """The rank of every node, and the edges that are turned round so that all others lead to a higher rank."""
    leaving: list[list[tuple[int, int]]] = [[] for _ in graph.states]
    for index, edge in enumerate(graph.edges):
        if edge.source != edge.target:
            leaving[edge.source].append((index, edge.target))
    turned: set[int] = set()
    order: list[int] = []
    mark = [0] * graph.num_nodes
    for root in (graph.start, *range(graph.num_nodes)):
        if mark[root]:
            continue
        mark[root] = 1
        path = [(root, iter(leaving[root]))]
        while path:
            node, rest = path[-1]
            step = next(rest, None)
            if step is None:
                mark[node] = 2
                order.append(node)
                path.pop()
            elif mark[step[1]] == 1:
                turned.add(step[0])
            elif mark[step[1]] == 0:
                mark[step[1]] = 1
                path.append((step[1], iter(leaving[step[1]])))
    ranks = [0] * graph.num_nodes
    for node in reversed(order):
        for index, target in leaving[node]:
            if index not in turned:
                ranks[target] = max(ranks[target], ranks[node] + 1)
    return ranks, turned


def _ordered(layers: list[list[int]], items: list[_Item]) -> list[list[int]]:
    """The order with the fewest crossings, from several beginnings, since sweeps only find what is near to one."""
    best, fewest = _swept(layers, items)
    for start in range(1, STARTS if len(items) <= MAX_RESTARTED else 1):
        if fewest == 0:
            break
        mixed = [sorted(layer, key=lambda index: (index * start * 7919 % 101, index)) for layer in layers]
        found, count = _swept(mixed, items)
        if count < fewest:
            best, fewest = found, count
    return best


def _swept(start: list[list[int]], items: list[_Item]) -> tuple[list[list[int]], int]:
    """The best order of some sweeps of barycentres, and how many crossings it has."""
    layers = [layer.copy() for layer in start]
    best, fewest = [layer.copy() for layer in layers], _crossings(layers, items)
    for sweep in range(SWEEPS):
        if fewest == 0:
            break
        down = sweep % 2 == 0
        numbers = range(1, len(layers)) if down else range(len(layers) - 2, -1, -1)
        for number in numbers:
            other = layers[number - 1 if down else number + 1]
            place = {index: position for position, index in enumerate(other)}
            centre: dict[int, float] = {}
            for position, index in enumerate(layers[number]):
                near = [place[n] for n in items[index].neighbours if n in place]
                centre[index] = sum(near) / len(near) if near else float(position)
            layers[number].sort(key=centre.__getitem__)
        count = _crossings(layers, items)
        if count < fewest:
            best, fewest = [layer.copy() for layer in layers], count
    return best, fewest


def _crossings(layers: list[list[int]], items: list[_Item]) -> int:
    total = 0
    for layer, following in itertools.pairwise(layers):
        place = {index: position for position, index in enumerate(following)}
        ends = [sorted(place[n] for n in items[index].neighbours if n in place) for index in layer]
        seen: list[int] = []
        for targets in ends:
            for target in targets:
                total += sum(1 for other in seen if other > target)
            seen += targets
    return total


def _place(layers: list[list[int]], items: list[_Item]) -> None:
    """Sets `across`: near to the neighbours, in order and with room between."""
    for layer in layers:
        position = 0.0
        for index in layer:
            items[index].across = position + items[index].before
            position += items[index].before + items[index].after + GAP_ACROSS
    for sweep in range(4 * SWEEPS):
        down = sweep % 2 == 0
        for number in range(len(layers)) if down else range(len(layers) - 1, -1, -1):
            wanted: list[float] = []
            weights: list[float] = []
            for index in layers[number]:
                item = items[index]
                near = item.neighbours
                if sweep < 2 * SWEEPS:  # first from one side only, so that what belongs together comes together
                    near = [n for n in near if (items[n].rank < item.rank) == down] or near
                pulls = [_pull(item, items[n]) for n in near]
                total = sum(pulls)
                centre = sum(pull * items[n].across for pull, n in zip(pulls, near, strict=True))
                wanted.append(centre / total if total else item.across)
                weights.append(total or 1.0)
            _settle(layers[number], items, wanted, weights)


def _pull(one: _Item, other: _Item) -> float:
    """How straight a piece of a line should be: within a line most of all."""
    return 8.0 if one.is_bend and other.is_bend else 2.0 if one.is_bend or other.is_bend else 1.0


def _settle(layer: list[int], items: list[_Item], wanted: list[float], weights: list[float]) -> None:
    """The positions nearest to those wanted (weighted least squares) that keep order and distance."""
    offsets = [0.0]
    for one, other in itertools.pairwise(layer):
        offsets.append(offsets[-1] + items[one].after + GAP_ACROSS + items[other].before)
    blocks: list[tuple[float, float, int]] = []  # weighted mean, weight, number of items
    for want, weight, offset in zip(wanted, weights, offsets, strict=True):
        block = (want - offset, weight, 1)
        while blocks and blocks[-1][0] > block[0]:
            mean, total, count = blocks.pop()
            both = total + block[1]
            block = ((mean * total + block[0] * block[1]) / both, both, count + block[2])
        blocks.append(block)
    position = 0
    for mean, _, count in blocks:
        for _ in range(count):
            items[layer[position]].across = mean + offsets[position]
            position += 1
