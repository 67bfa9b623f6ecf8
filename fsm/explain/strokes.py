"""Strokes: the lines of a picture, from circle to circle, each with its arrow head.

A line leaves a circle and meets another at a *port*, a point of its boundary. Lines on one side of a circle have ports
of their own, in the order in which the lines lie, so that their heads stand next to each other. The tip of a head is
the port; the line ends where the head begins. It knows places and not what is written.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from .graph import Graph
from .layout import LOOP, RADIUS, Layout

HEAD = 10.0  # length of an arrow head
HALF = 4.4  # half of its width
ENTRY = 28.0  # length of the arrow that leads to the start
STEP = math.radians(24)  # between neighbouring ports
WIDEST = math.radians(44)  # of the outermost port from the middle of its side
LOOP_ANGLE = math.radians(24)

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Stroke:
    """A line as SVG path data, and the corners of its head, the tip first."""

    path: str
    head: tuple[Point, Point, Point]


def strokes(graph: Graph, placed: Layout) -> list[Stroke]:
    """The arrow that leads to the start, then one stroke per route, in order."""
    ports = _ports(graph, placed)
    x, y = placed.centres[graph.start]
    tip, out = ports[-1, 1]
    begin = (x, y - RADIUS - ENTRY) if placed.is_upright else (x - RADIUS - ENTRY, y)
    found = [_stroke([begin], None, (tip, out), placed.is_upright)]
    for index, route in enumerate(placed.routes):
        if route.points:
            found.append(_stroke(route.points[1:-1], ports[index, 0], ports[index, 1], placed.is_upright))
        else:
            found.append(_loop(placed.centres[graph.edges[route.edge].source], placed.is_upright))
    return found


Port = tuple[Point, Point]
"""A point of a circle's boundary, and the direction from there away from the circle."""


def _ports(graph: Graph, placed: Layout) -> dict[tuple[int, int], Port]:
    """By route and end of it (0: where it begins, 1: where it ends); route -1 is the arrow that leads to the start."""
    along = 1 if placed.is_upright else 0
    sides: dict[tuple[int, int], list[tuple[float, int, int]]] = {}
    x, y = placed.centres[graph.start]
    sides.setdefault((graph.start, -1), []).append((x if placed.is_upright else y, -1, 1))
    for index, route in enumerate(placed.routes):
        if not route.points:
            continue
        edge = graph.edges[route.edge]
        for end, node, near in ((0, edge.source, route.points[1]), (1, edge.target, route.points[-2])):
            side = 1 if near[along] >= placed.centres[node][along] else -1
            sides.setdefault((node, side), []).append((near[1 - along], index, end))
    found: dict[tuple[int, int], Port] = {}
    for (node, side), lines in sides.items():
        lines.sort()
        spread = min(WIDEST, STEP * (len(lines) - 1) / 2)
        for place, (_, index, end) in enumerate(lines):
            angle = 0.0 if len(lines) == 1 else spread * (2 * place / (len(lines) - 1) - 1)
            out = (math.sin(angle), side * math.cos(angle))
            found[index, end] = _port(placed.centres[node], out if placed.is_upright else (out[1], out[0]))
    return found


def _port(centre: Point, out: Point) -> Port:
    return (centre[0] + RADIUS * out[0], centre[1] + RADIUS * out[1]), out


def _stroke(between: Sequence[Point], first: Port | None, last: Port, is_upright: bool) -> Stroke:
    """A smooth line from port to port through the points between; without a first port it begins at a point."""
    (tip, out) = last
    base = (tip[0] + HEAD * out[0], tip[1] + HEAD * out[1])
    ways = [*([first[0]] if first is not None else []), *between, base]
    path = [f"M{at(ways[0])}"]
    for number, (one, other) in enumerate(itertools.pairwise(ways)):
        half = abs(other[1] - one[1] if is_upright else other[0] - one[0]) / 2
        ahead = math.copysign(half, other[1] - one[1] if is_upright else other[0] - one[0])
        leave = (one[0], one[1] + ahead) if is_upright else (one[0] + ahead, one[1])
        enter = (other[0], other[1] - ahead) if is_upright else (other[0] - ahead, other[1])
        if number == 0 and first is not None:
            leave = (one[0] + half * first[1][0], one[1] + half * first[1][1])
        if number == len(ways) - 2:
            enter = (other[0] + half * out[0], other[1] + half * out[1])
        path.append(f"C{at(leave)} {at(enter)} {at(other)}")
    return Stroke("".join(path), _head(tip, out))


def _loop(centre: Point, is_upright: bool) -> Stroke:
    """Out of the circle and back into it, above it or to its right."""
    across, ahead = math.sin(LOOP_ANGLE), math.cos(LOOP_ANGLE)
    outs = [(ahead, side * across) if is_upright else (side * across, -ahead) for side in (-1, 1)]
    (begin, first), (tip, last) = (_port(centre, out) for out in outs)
    base = (tip[0] + HEAD * last[0], tip[1] + HEAD * last[1])
    leave = (begin[0] + LOOP * 1.25 * first[0], begin[1] + LOOP * 1.25 * first[1])
    enter = (base[0] + LOOP * 0.85 * last[0], base[1] + LOOP * 0.85 * last[1])
    return Stroke(f"M{at(begin)}C{at(leave)} {at(enter)} {at(base)}", _head(tip, last))


def _head(tip: Point, out: Point) -> tuple[Point, Point, Point]:
    x, y = tip[0] + HEAD * out[0], tip[1] + HEAD * out[1]
    return tip, (x - HALF * out[1], y + HALF * out[0]), (x + HALF * out[1], y - HALF * out[0])


def at(point: Point) -> str:
    """A point as SVG writes it."""
    return f"{point[0]:.1f},{point[1]:.1f}"
