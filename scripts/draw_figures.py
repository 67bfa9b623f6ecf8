"""Draws the README's table of figures as docs/images/figures.svg: `python scripts/draw_figures.py`.

A bar per row, as long as the logarithm of its ratio. `tests/test_readme.py` draws it again and compares.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "images" / "figures.svg"
WIDTH, LEFT, RIGHT, ROW = 860, 330, 60, 40  # pixels
LONGEST = 20.0  # the ratio at the right end
STYLE = """text { font: 13px sans-serif; fill: #1f2328; } .peer { fill: #59636e; font-size: 11px; }
.bar { fill: #2e7d32; } .line { stroke: #8c959f; stroke-width: 1; }
@media (prefers-color-scheme: dark) { text { fill: #f0f6fc; } .peer { fill: #9198a1; } .bar { fill: #66bb6a; } }"""


@dataclass(frozen=True)
class Figure:
    """A row of the table: what is measured, the peer with its value, and how many times better phloem is."""

    what: str
    peer: str
    times: float


def figures(readme: str) -> list[Figure]:
    """The rows of the README's table, in order."""
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| ([^|]+) \| ([0-9.]+) \| `[^|]+` \|$", readme, re.MULTILINE)
    return [Figure(what, peer, float(times)) for what, peer, times in rows]


def position(ratio: float) -> float:
    """Where a ratio ends, in pixels from the left; 1 is where bars begin."""
    return LEFT + (WIDTH - LEFT - RIGHT) * math.log(ratio) / math.log(LONGEST)


def draw(rows: list[Figure]) -> str:
    """The picture as an SVG document."""
    height = ROW * len(rows) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>phloem compared with its peers: {len(rows)} ratios</title><style>{STYLE}</style>",
    ]
    for index, row in enumerate(rows):
        y = 10 + ROW * index
        what = row.what.split(", ")[0]
        length = position(row.times) - LEFT
        parts += [
            f'<text x="{LEFT - 10}" y="{y + 14}" text-anchor="end">{escape(what)}</text>',
            f'<text class="peer" x="{LEFT - 10}" y="{y + 28}" text-anchor="end">vs. {escape(row.peer)}</text>',
            f'<rect class="bar" x="{LEFT}" y="{y + 4}" width="{length:.1f}" height="20" rx="2"/>',
            f'<text x="{LEFT + length + 6:.1f}" y="{y + 19}">{row.times:g} ×</text>',
        ]
    bottom = height - 20
    parts.append(f'<line class="line" x1="{LEFT}" y1="6" x2="{LEFT}" y2="{bottom}"/>')
    parts += [
        f'<text class="peer" x="{position(ratio):.1f}" y="{height - 6}" text-anchor="middle">{ratio} ×</text>'
        for ratio in (1, 2, 5, 10, 20)
    ]
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    PICTURE.write_text(draw(figures((ROOT / "README.md").read_text(encoding="utf-8"))), encoding="utf-8")
    print(PICTURE.relative_to(ROOT))


if __name__ == "__main__":
    main()
