"""SVG: graphs as one self-contained picture, legible on a light and on a dark background.

An arrow without source leads to the start; a double ring: the text may end here; a dashed ring: there are more edges
than are drawn. Certain bytes are in quotes. Every text has its own box (`Picture.texts`), and no two boxes overlap.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from .graph import Edge, Graph, Kind
from .labels import Legend, columns
from .layout import CELL, LINE, LOOP, RADIUS, Box, Layout, layout

MARGIN = 20.0
ENTRY = 26.0  # length of the arrow that leads to the start
NOTE_COLUMNS = 120

STYLE = """
text{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#65717e}
.title{font-weight:bold;fill:#1f6fb2}.note{fill:#737f8b}.state{text-anchor:middle;fill:#737f8b;font-size:11px}
.label{text-anchor:middle;white-space:pre}.upright{text-anchor:start}.call{fill:#a3510b}.text{fill:#7a3fa0}
.forced{fill:#128a57}
circle{fill:#8a94a0;fill-opacity:.10;stroke:#6b7680;stroke-width:1.4}.ring{fill:none}.open{stroke-dasharray:3 3}
.edge{fill:none;stroke:#8a94a0;stroke-width:1.3}.head{fill:#8a94a0}
@media (prefers-color-scheme:dark){text{fill:#d5dbe1}.title{fill:#6cb6ff}.note,.state{fill:#a2adb8}.call{fill:#f0a35e}
.text{fill:#cf9dee}.forced{fill:#5fd39b}circle{stroke:#a2adb8}}
"""


@dataclass(frozen=True, slots=True)
class Picture:
    """An SVG document and the boxes of all texts in it."""

    document: str
    texts: tuple[tuple[str, Box], ...]
    width: float
    height: float

    def _repr_svg_(self) -> str:
        """For notebooks."""
        return self.document


def picture(graphs: Sequence[Graph], legend: Legend, *, notes: Sequence[str] = ()) -> Picture:
    """All graphs one below the other, each with its title, then the legend and the notes."""
    page = _Page(legend)
    for graph in graphs:
        page.add(graph)
    for line in [*legend.lines(), *notes]:
        for piece in wrapped(line):
            page.write(piece, "note", LINE)
    return page.finish()


class _Page:
    def __init__(self, legend: Legend) -> None:
        self.legend = legend
        self.parts: list[str] = []
        self.texts: list[tuple[str, Box]] = []
        self.bottom = MARGIN
        self.right = 0.0

    def add(self, graph: Graph) -> None:
        self.write(graph.title, "title", LINE + 6)
        labels = [self.legend.label(edge) for edge in graph.edges]
        placed = layout(graph, [columns(label) for label in labels])
        left, top = MARGIN + (0 if placed.is_upright else ENTRY), self.bottom + (ENTRY if placed.is_upright else 0)
        self.parts.append(f'<g transform="translate({left:.1f},{top:.1f})">')
        for route in placed.routes:
            self._edge(graph, placed, route.edge, route.points)
        for node in range(graph.num_nodes):
            self._node(graph, node, placed, left, top)
        for route in placed.routes:
            box, edge = route.text, graph.edges[route.edge]
            is_left = placed.is_upright
            kind = f"label {'upright ' if is_left else ''}{_role(edge)}".strip()
            x = box.left if is_left else (box.left + box.right) / 2
            self.parts.append(
                f'<text class="{kind}" x="{x:.1f}" y="{box.bottom - 4:.1f}">{escape(labels[route.edge])}</text>'
            )
            self._keep(labels[route.edge], box, left, top)
        self.parts.append("</g>")
        self.bottom = top + placed.height + 18
        self.right = max(self.right, left + placed.width)

    def _keep(self, text: str, box: Box, left: float, top: float) -> None:
        self.texts.append((text, Box(box.left + left, box.top + top, box.right + left, box.bottom + top)))

    def write(self, text: str, role: str, height: float) -> None:
        """A line below all that is there."""
        right, top = MARGIN + columns(text) * CELL, self.bottom
        self.parts.append(f'<text class="{role}" x="{MARGIN:.1f}" y="{top + 12:.1f}">{escape(text)}</text>')
        self.texts.append((text, Box(MARGIN, top, right, top + LINE)))
        self.bottom += height
        self.right = max(self.right, right)

    def _node(self, graph: Graph, node: int, placed: Layout, left: float, top: float) -> None:
        x, y = placed.centres[node]
        role = ' class="open"' if node in graph.open_nodes else ""
        self.parts.append(f'<circle{role} cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS:.1f}"/>')
        if node in graph.accepting:
            self.parts.append(f'<circle class="ring" cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS - 3.5:.1f}"/>')
        number = str(node)
        self.parts.append(f'<text class="state" x="{x:.1f}" y="{y + 4:.1f}">{number}</text>')
        half = len(number) * CELL / 2
        self._keep(number, Box(x - half, y - 6, x + half, y + 6), left, top)
        if node == graph.start:
            begin = (x, y - RADIUS - ENTRY + 6) if placed.is_upright else (x - RADIUS - ENTRY + 6, y)
            self._line([begin, (x, y)], placed.is_upright)

    def _edge(self, graph: Graph, placed: Layout, index: int, points: Sequence[tuple[float, float]]) -> None:
        if points:
            self._line(points, placed.is_upright)
            return
        x, y = placed.centres[graph.edges[index].source]
        reach, side = LOOP + 10, RADIUS * 0.62
        if placed.is_upright:
            begin, end = (x + RADIUS * 0.78, y - side), (x + RADIUS * 0.78, y + side)
            first, second = (x + RADIUS + reach - 8, y - 20), (x + RADIUS + reach - 8, y + 20)
        else:
            begin, end = (x - side, y - RADIUS * 0.78), (x + side, y - RADIUS * 0.78)
            first, second = (x - 20, y - RADIUS - reach + 8), (x + 20, y - RADIUS - reach + 8)
        self.parts.append(f'<path class="edge" d="M{_at(begin)} C{_at(first)} {_at(second)} {_at(end)}"/>')
        self._head(end, math.atan2(end[1] - second[1], end[0] - second[0]))

    def _line(self, points: Sequence[tuple[float, float]], is_upright: bool) -> None:
        """A smooth line from circle to circle through the points between."""
        ways = list(points)
        ways[-1] = _before(ways[-2], ways[-1], is_upright, RADIUS + 5)
        if len(ways) > 2:
            ways[0] = _before(ways[1], ways[0], is_upright, RADIUS)
        path = [f"M{_at(ways[0])}"]
        direction = 0.0
        for (x1, y1), (x2, y2) in itertools.pairwise(ways):
            if is_upright:
                middle = (y1 + y2) / 2
                path.append(f"C{x1:.1f},{middle:.1f} {x2:.1f},{middle:.1f} {x2:.1f},{y2:.1f}")
                direction = math.copysign(math.pi / 2, y2 - y1)
            else:
                middle = (x1 + x2) / 2
                path.append(f"C{middle:.1f},{y1:.1f} {middle:.1f},{y2:.1f} {x2:.1f},{y2:.1f}")
                direction = 0.0 if x2 >= x1 else math.pi
        self.parts.append(f'<path class="edge" d="{" ".join(path)}"/>')
        x, y = ways[-1]
        self._head((x + 5 * math.cos(direction), y + 5 * math.sin(direction)), direction)

    def _head(self, tip: tuple[float, float], direction: float) -> None:
        x, y = tip
        corners = [(x - 8 * math.cos(direction + turn), y - 8 * math.sin(direction + turn)) for turn in (-0.42, 0.42)]
        self.parts.append(f'<path class="head" d="M{_at(tip)} L{_at(corners[0])} L{_at(corners[1])} Z"/>')

    def finish(self) -> Picture:
        width, height = math.ceil(self.right + MARGIN), math.ceil(self.bottom + MARGIN)
        document = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
            f' viewBox="0 0 {width} {height}">\n<style>{STYLE}</style>\n' + "\n".join(self.parts) + "\n</svg>\n"
        )
        return Picture(document, tuple(self.texts), width, height)


def _before(
    near: tuple[float, float], centre: tuple[float, float], is_upright: bool, distance: float
) -> tuple[float, float]:
    """The point at which a line from `near` meets the node, on the side it comes from."""
    x, y = centre
    if is_upright:
        return x, y + math.copysign(distance, near[1] - y)
    return x + math.copysign(distance, near[0] - x), y


def _at(point: tuple[float, float]) -> str:
    return f"{point[0]:.1f},{point[1]:.1f}"


def _role(edge: Edge) -> str:
    if edge.kind is Kind.CALL or edge.kind is Kind.TURNS:
        return "call"
    if edge.kind is Kind.TEXT:
        return "text"
    return "forced" if edge.num_forced > 1 else ""


def wrapped(text: str) -> list[str]:
    """The text in pieces of at most NOTE_COLUMNS; the later ones are indented."""
    pieces: list[str] = []
    while len(text) > NOTE_COLUMNS:
        cut = text.rfind(" ", NOTE_COLUMNS // 2, NOTE_COLUMNS)
        cut = NOTE_COLUMNS if cut < 0 else cut
        pieces.append(text[:cut])
        text = "    " + text[cut:].lstrip()
    return [*pieces, text]
