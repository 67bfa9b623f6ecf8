"""Terminal: a graph as text. A tree of ways, in which a node that was drawn before is only named.

::

    ▷ 0 ──'{"name":"'──▶ 1
                         ├─ character ≤ 40× ↺
                         └─ '","age":' ──▶ 2
                                           ├─ '0' ──▶ 3 ...

    ▷ start   ◎ the text may end here   ↺ a loop at the node   ▶ 4 ⤴ node 4, drawn above (or below)

Where the tree would grow wider than the page, a branch goes on at the left under its number.
"""

from __future__ import annotations

from collections.abc import Callable

from .graph import Edge, Graph
from .labels import Legend, columns

Paint = Callable[[str, str], str]
"""(text, role) -> the text, coloured; roles: node, label, forced, note."""

MIN_ROOM = 50  # columns that a branch needs


def plain(text: str, _: str) -> str:
    """No colour."""
    return text


def draw(graph: Graph, legend: Legend, *, width: int = 100, paint: Paint = plain) -> list[str]:
    """The graph in lines of at most `width` columns."""
    return _Page(graph, legend, width, paint).lines()


class _Page:
    def __init__(self, graph: Graph, legend: Legend, width: int, paint: Paint) -> None:
        self.graph = graph
        self.legend = legend
        self.width = width
        self.paint = paint
        self.leaving = graph.leaving()
        self.parents = self._parents()
        self.out: list[str] = []
        self.postponed: list[int] = []

    def _parents(self) -> dict[int, Edge]:
        """The edge below which each node is drawn: breadth first, so that nodes stand as high as they can."""
        found: dict[int, Edge] = {}
        order = [self.graph.start]
        known = {self.graph.start}
        for node in order:
            for edge in self.leaving[node]:
                if edge.target not in known:
                    known.add(edge.target)
                    found[edge.target] = edge
                    order.append(edge.target)
        return found

    def lines(self) -> list[str]:
        self.branch(self.graph.start)
        while self.postponed:
            self.branch(self.postponed.pop(0))
        return self.out

    def mark(self, node: int) -> str:
        more = " …" if node in self.graph.open_nodes else ""
        return f"{'◎ ' if node in self.graph.accepting else ''}{node}{more}"

    def branch(self, node: int) -> None:
        """Draws what leaves `node`, depth first. The order of lines is kept on a stack: a chain may be long."""
        pending: list[tuple[int, str, str]] = [(node, "▷ ", "")]  # a node, what stands left of it, and left of the rest
        while pending:
            node, line, indent = pending.pop()
            if node < 0:  # a finished row
                self.out.append(self._painted(line))
                continue
            line += self.mark(node)
            line = self._chain(node, line, indent, pending)
            if line.strip():
                self.out.append(self._painted(line))

    def _chain(self, node: int, line: str, indent: str, pending: list[tuple[int, str, str]]) -> str:
        """Goes on along a node's only way on the same line; at a fork its ways become branches."""
        while True:
            edges = self.leaving[node]
            if len(edges) != 1 or self.parents.get(edges[0].target) is not edges[0]:
                break
            piece = f" ── {self.legend.label(edges[0])} ──▶ {self.mark(edges[0].target)}"
            if columns(line) + columns(piece) > self.width and len(line) > len(indent) + 6:
                self.out.append(self._painted(line))
                line = indent + "  "
            line += piece
            node = edges[0].target
        edges = self.leaving[node]
        if len(edges) == 1:
            reference = self._reference(edges[0], "── ")
            if columns(line) + 1 + columns(reference) > self.width:
                self.out.append(self._painted(line))
                line = indent + "  "
            return f"{line} {reference}"
        inner = indent + " "
        branches: list[tuple[int, str, str]] = []
        loops = [edge for edge in edges if edge.target == node]
        ways = loops + [edge for edge in edges if edge.target != node]
        rows: list[tuple[str, tuple[int, str, str] | None]] = []
        for index, edge in enumerate(ways):
            last = index == len(ways) - 1
            head, below = inner + ("└─ " if last else "├─ "), inner + ("   " if last else "│  ")
            if self.parents.get(edge.target) is edge:
                if len(below) + MIN_ROOM > self.width:
                    self.postponed.append(edge.target)
                    rows.append((f"{head}{self.legend.label(edge)} ──▶ {edge.target} (below)", None))
                else:
                    rows.append(("", (edge.target, f"{head}{self.legend.label(edge)} ──▶ ", below)))
            else:
                rows.append((head + self._reference(edge, ""), None))
        if not rows:
            return line
        self.out.append(self._painted(line))
        for text, branch in rows:
            branches.append(branch if branch is not None else (-1, text, ""))
        pending.extend(reversed(branches))
        return ""

    def _reference(self, edge: Edge, dash: str) -> str:
        label = self.legend.label(edge)
        if edge.target == edge.source:
            return f"{dash}{label} ↺"
        return f"{dash}{label} ──▶ {edge.target} ⤴"

    def _painted(self, line: str) -> str:
        return self.paint(line, "line")
