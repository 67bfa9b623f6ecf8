"""SVG: graphs as one self-contained picture with a background of its own, for light and dark pages alike.

An arrow without source leads to the start; a double ring: the text may end here; a dashed ring: there are more edges
than are drawn. Certain bytes are in quotes, and in one colour where nothing is decided; what is too long is shortened
in the middle, with the full text as the label's <title>. Every text has its own box (`Picture.texts`); no two overlap.

All looks are presentation attributes (no style sheet, no script, no id), so a page whose content security policy allows
no inline style can show the document inline. The bytes depend on the graphs only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from .graph import Edge, Graph
from .labels import Legend, columns, label, parts
from .layout import CELL, LINE, RADIUS, Box, layout
from .picture_key import Entry, picture_key, role
from .strokes import ENTRY, at, strokes

MARGIN = 20.0
NOTE_COLUMNS = 104
KEY_WIDTH = 820.0
KEY_RADIUS = 6.0
FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,DejaVu Sans Mono,monospace"
INK = {
    "plain": "#24292f",
    "title": "#0b5394",
    "note": "#57606a",
    "state": "#57606a",
    "call": "#953800",
    "text": "#6f2f9f",
    "forced": "#0a7a3f",
}
LINE_INK, HEAD_INK, RING_INK, BACKGROUND, BORDER = "#8c959f", "#24292f", "#57606a", "#ffffff", "#d0d7de"


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


def picture(graphs: Sequence[Graph], limit: int, *, title: str = "", notes: Sequence[str] = ()) -> Picture:
    """All graphs one below the other, each with its title, then what letters stand for, the notes and the key.

    Args:
        limit: columns of the longest label; longer ones are shortened, or get a letter.
        title: of the document, for readers who do not see it.
    """
    page = _Page(limit)
    for graph in graphs:
        page.add(graph)
    for line in [*page.legend.lines(), *notes]:
        for piece in wrapped(line):
            page.write(piece, "note", LINE)
    page.key(picture_key(graphs))
    sizes = "; ".join(f"{g.title}: {g.num_nodes} states, {len(g.edges)} edges" for g in graphs)
    return page.finish(title or "automaton", sizes)


class _Page:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.legend = Legend(limit)
        self.parts: list[str] = []
        self.texts: list[tuple[str, Box]] = []
        self.bottom = MARGIN
        self.right = 0.0

    def add(self, graph: Graph) -> None:
        self.write(graph.title, "title", LINE + 7)
        labels = [self._label(edge) for edge in graph.edges]
        placed = layout(graph, [columns(first + last) for first, last in labels])
        left, top = MARGIN + (0 if placed.is_upright else ENTRY), self.bottom + (ENTRY if placed.is_upright else 0)
        lines = strokes(graph, placed)
        self.parts.append(f'<g transform="translate({left:.1f},{top:.1f})">')
        self.parts.append(f'<g fill="none" stroke="{LINE_INK}" stroke-width="1.4">')
        self.parts += [f'<path d="{line.path}"/>' for line in lines]
        self.parts.append(f'</g><g fill="#f6f8fa" stroke="{RING_INK}" stroke-width="1.4">')
        for node, centre in enumerate(placed.centres):
            self._circles(centre, node in graph.accepting, node in graph.open_nodes, RADIUS)
        self.parts.append(f'</g><g fill="{HEAD_INK}">')
        self.parts += [f'<path d="M{"L".join(map(at, line.head))}Z"/>' for line in lines]
        self.parts.append(f'</g><g text-anchor="middle" font-size="12" fill="{INK["state"]}">')
        for node, (x, y) in enumerate(placed.centres):
            self.parts.append(f'<text x="{x:.1f}" y="{y + 4:.1f}">{node}</text>')
            half = len(str(node)) * CELL / 2
            self._keep(str(node), Box(x - half, y - 6, x + half, y + 6), left, top)
        self.parts.append("</g>")
        for route in placed.routes:
            self._write_label(graph.edges[route.edge], labels[route.edge], route.text)
            self._keep("".join(labels[route.edge]), route.text, left, top)
        self.parts.append("</g>")
        self.bottom = top + placed.height + 18
        self.right = max(self.right, left + placed.width)

    def _label(self, edge: Edge) -> tuple[str, str]:
        """The label of an edge: what is chosen, what is then forced."""
        return parts(edge, self.limit) or (self.legend.label(edge), "")

    def _write_label(self, edge: Edge, texts: tuple[str, str], box: Box) -> None:
        first, last = texts
        full = label(edge)
        name = f"<title>{_safe(full)}</title>" if full != first + last else ""
        tail = f'<tspan fill="{INK["forced"]}">{_safe(last)}</tspan>' if last else ""
        width = columns(first + last) * CELL
        self.parts.append(
            f'<text x="{box.left:.1f}" y="{box.bottom - 4:.1f}" fill="{INK[role(edge)]}"'
            f' textLength="{width:.1f}">{name}{_safe(first)}{tail}</text>'
        )

    def _circles(self, centre: tuple[float, float], is_accepting: bool, is_open: bool, radius: float) -> None:
        x, y = centre
        dashes = ' stroke-dasharray="3 3"' if is_open else ""
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"{dashes}/>')
        if is_accepting:
            self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius * 0.76:.1f}"/>')

    def _keep(self, text: str, box: Box, left: float, top: float) -> None:
        self.texts.append((text, Box(box.left + left, box.top + top, box.right + left, box.bottom + top)))

    def write(self, text: str, ink: str, height: float) -> None:
        """A line below all that is there."""
        self._text(text, ink, MARGIN)
        self.bottom += height

    def _text(self, text: str, ink: str, left: float) -> None:
        right, top = left + columns(text) * CELL, self.bottom
        weight = ' font-weight="bold"' if ink == "title" else ""
        self.parts.append(
            f'<text x="{left:.1f}" y="{top + 13:.1f}" fill="{INK[ink]}"{weight}'
            f' textLength="{columns(text) * CELL:.1f}">{_safe(text)}</text>'
        )
        self.texts.append((text, Box(left, top, right, top + LINE)))
        self.right = max(self.right, right)

    def key(self, entries: Sequence[Entry]) -> None:
        """The entries from left to right, in as many lines as they need."""
        self.bottom += 8
        left = MARGIN
        for entry in entries:
            is_circle = entry.sign in ("start", "accepting", "open")
            sign = 40.0 if entry.sign == "start" else 20.0 if is_circle else (columns(entry.sign) + 1) * CELL
            width = sign + columns(entry.text) * CELL
            if left > MARGIN and left + width > MARGIN + KEY_WIDTH:
                left, self.bottom = MARGIN, self.bottom + LINE + 3
            if is_circle:
                self._sign(entry.sign, left)
            else:
                self._text(entry.sign, entry.role, left)
            self._text(entry.text, "note", left + sign)
            left += width + 22
        self.bottom += LINE

    def _sign(self, sign: str, left: float) -> None:
        x, y = left + (26.0 if sign == "start" else 8.0), self.bottom + 9
        self.parts.append(f'<g fill="#f6f8fa" stroke="{RING_INK}" stroke-width="1.2">')
        self._circles((x, y), sign == "accepting", sign == "open", KEY_RADIUS)
        if sign == "start":
            tip = x - KEY_RADIUS
            self.parts.append(f'<path d="M{at((left, y))}H{tip - 7:.1f}"/>')
            head = f'<path fill="{HEAD_INK}" stroke="none" d="M{tip:.1f},{y:.1f}l-8.0,-3.6v7.2Z"/>'
            self.parts.append(head)
        self.parts.append("</g>")

    def finish(self, title: str, sizes: str) -> Picture:
        width, height = math.ceil(self.right + MARGIN), math.ceil(self.bottom + MARGIN)
        document = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
            f' viewBox="0 0 {width} {height}" role="img" font-family="{FONT}" font-size="13" xml:space="preserve">\n'
            f"<title>{_safe(title)}</title><desc>{_safe(sizes)}</desc>\n"
            f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="6" fill="{BACKGROUND}"'
            f' stroke="{BORDER}"/>\n' + "\n".join(self.parts) + "\n</svg>\n"
        )
        return Picture(document, tuple(self.texts), width, height)


def _safe(text: str) -> str:
    """Text as XML: escaped, and without the characters that XML has not."""
    return escape("".join(c if c in "\t\n\r" or 0x20 <= ord(c) < 0xFFFE or ord(c) > 0xFFFF else "�" for c in text))


def wrapped(text: str) -> list[str]:
    """The text in pieces of at most NOTE_COLUMNS; the later ones are indented."""
    pieces: list[str] = []
    while len(text) > NOTE_COLUMNS:
        cut = text.rfind(" ", NOTE_COLUMNS // 2, NOTE_COLUMNS)
        cut = NOTE_COLUMNS if cut < 0 else cut
        pieces.append(text[:cut])
        text = "    " + text[cut:].lstrip()
    return [*pieces, text]
