"""Draws the plots of the README and the docs from bench/results into docs/plots/: `python scripts/draw_plots.py`.

Every number is read from the first table of its kind in its file, as text; none is written here. What a plot shows is
also its description in the SVG, which `tests/test_plots.py` compares with the files of today. It needs matplotlib
(`pip install phloem[plots]`) only to draw; the same version draws the same bytes.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
PLOTS = ROOT / "docs" / "plots"
COLOURS = {"phloem": "#0a7a3f", "phloem, keys in order": "#66bb6a", "windows": "#0a7a3f"}
GREYS = ["#953800", "#0b5394", "#6f2f9f", "#8c959f", "#bf8700"]


@dataclass(frozen=True)
class Series:
    """One line, or one group of bars: `x` and `y` as the file has them."""

    name: str
    x: tuple[str, ...]
    y: tuple[str, ...]


@dataclass(frozen=True)
class Panel:
    """One pair of axes; `file` is below bench/results."""

    title: str
    file: str
    series: tuple[Series, ...]


@dataclass(frozen=True)
class Plot:
    """A picture: its panels, the names of its axes, and how it is drawn.

    Attributes:
        limits: the least and the greatest number that the axis of numbers shows; None: as much as there is.
        ticks: what is marked there; none: left to matplotlib.
        has_number_x: whether x is a number too, as far along as it is large.
    """

    name: str
    title: str
    panels: tuple[Panel, ...]
    x_name: str
    y_name: str
    limits: tuple[float, float | None]
    ticks: tuple[float, ...] = ()
    is_bars: bool = False
    has_number_x: bool = False
    is_log_x: bool = False
    is_log_y: bool = False

    def description(self) -> str:
        """Every number that is drawn, with the file that it is from."""
        rows = [
            f"{panel.file}, {panel.title}, {line.name}: " + " ".join(map("=".join, zip(line.x, line.y, strict=True)))
            for panel in self.panels
            for line in panel.series
        ]
        return "; ".join(rows)


def plots() -> list[Plot]:
    """All plots, with the numbers of today's files."""
    return [_speedups(), _hit_rate(), _mask_latency(), _turns()]


def _text(file: str) -> str:
    return (RESULTS / file).read_text(encoding="utf-8")


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def _speedups() -> Plot:
    programs = re.findall(r"^(\S.*?)  +[\d.]+ +[\d.]+ +[\d.]+ x +[\d.]+ +([\d.]+) x", _text("programs.txt"), re.M)[:8]
    extraction = re.findall(r"^transformers, (.+?)  +\d+ +([\d.]+)$", _text("prefix_and_jump.txt"), re.M)[:2]
    decode: list[tuple[str, str]] = []
    for section in _text("cpu_decode.txt").split("\n\n")[1:4]:
        model = section.split(":")[0].replace(" checkpoint", "")
        for batch, ratio in re.findall(r"^ +(\d+) .* ([\d.]+)  equal$", section, re.M):
            decode.append((f"{model}, {'one request' if batch == '1' else f'{batch} requests'}", ratio))
    panels = (
        Panel("programs, seconds", "programs.txt", (_bars(programs),)),
        Panel("JSON extraction, tokens/s", "prefix_and_jump.txt", (_bars(extraction),)),
        Panel("decode, tokens per CPU-second", "cpu_decode.txt", (_bars(decode),)),
    )
    title = "phloem compared with transformers on a CPU, times faster"
    return Plot("speedups.svg", title, panels, "times faster", "", (0, 20), (0, 5, 10, 15, 20), is_bars=True)


def _bars(rows: list[tuple[str, str]]) -> Series:
    return Series("phloem", tuple(name for name, _ in rows), tuple(ratio for _, ratio in rows))


def _hit_rate() -> Plot:
    rows = [_cells(row) for row in _text("hybrid_cache.txt").splitlines() if row.startswith("|")]
    names, found = rows[0], rows[2:]
    panels: list[Panel] = []
    for workload in dict.fromkeys(row[0] for row in found):
        own = [row for row in found if row[0] == workload]
        states = tuple(row[1] for row in own)
        lines = tuple(Series(names[i], states, tuple(row[i] for row in own)) for i in range(2, len(names)))
        panels.append(Panel(workload, "hybrid_cache.txt", lines))
    title = "Share of prompt tokens found in the cache, over memory (hybrid models)"
    axes = "states that fit (log)", "hit rate", (0, 1), (0, 0.25, 0.5, 0.75, 1)
    return Plot("hit_rate.svg", title, tuple(panels), *axes, has_number_x=True, is_log_x=True)


def _mask_latency() -> Plot:
    table = _text("maskbench.md").split("\n\n")[1].splitlines()
    names = _cells(table[0])[1:]
    shown = {
        "project:maskbench_adapter:matcher": "phloem",
        "project:maskbench_adapter:ordered": "phloem, keys in order",
    }
    rows = [_cells(row) for row in table if re.match(r"\| mask_cpu_us_p[\d.]+ \|", row)]
    percents = tuple(row[0].rsplit("_p", 1)[1] for row in rows)
    lines = tuple(
        Series(shown.get(name, name), percents, tuple(row[1 + index] for row in rows))
        for index, name in enumerate(names)
    )
    panel = Panel("397 real JSON Schemas, 131,072 tokens", "maskbench.md", lines)
    title = "CPU time of one token mask, by percentile"
    axes = "percentile of masks", "µs (log)", (1, None)
    return Plot("mask_latency.svg", title, (panel,), *axes, is_log_y=True)


def _turns() -> Plot:
    text = _text("multi_turn.txt")
    table = text[text.index("\nllama-1b;") :].splitlines()[2:]
    names = _cells(table[0])
    rows = [_cells(row) for row in table[2 : next(i for i, row in enumerate(table) if not row.startswith("|"))]]
    shown = {"ttft": "phloem", "transformers": "transformers, its cache kept", "cold": "phloem, computed again"}
    lines = tuple(
        Series(label, tuple(row[0] for row in rows), tuple(row[names.index(column)] for row in rows))
        for column, label in shown.items()
    )
    panel = Panel("layers of Llama-3.2-1B, one thread", "multi_turn.txt", lines)
    title = "Time to the first token, over the turns of a chat"
    axes = "turn", "CPU ms (log)", (10, None)
    return Plot("turns.svg", title, (panel,), *axes, has_number_x=True, is_log_y=True)


def number(text: str) -> float:
    """A number as the files write it."""
    return float(text.replace(",", ""))


def draw(plot: Plot, path: Path) -> None:
    """Writes a plot as SVG, its texts as texts, on a background of its own."""
    import matplotlib as mpl

    mpl.use("svg")
    looks: dict[str, Any] = {
        "svg.hashsalt": plot.name,
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with mpl.rc_context(looks):
        figure = _bar_figure(plot) if plot.is_bars else _line_figure(plot)
        meta = {"Date": None, "Creator": None, "Title": plot.title, "Description": plot.description()}
        figure.savefig(path, metadata=meta, facecolor="white")


def _bar_figure(plot: Plot) -> Any:
    """Horizontal bars from zero, each with its number."""
    from matplotlib.figure import Figure

    counts = [len(panel.series[0].x) for panel in plot.panels]
    figure = Figure(figsize=(8.4, 0.27 * sum(counts) + 1.9), layout="constrained")
    axes = figure.subplots(len(counts), 1, sharex=True, height_ratios=counts)
    for axis, panel in zip(axes, plot.panels, strict=True):
        (line,) = panel.series
        bars = axis.barh(line.x, [number(y) for y in line.y], color=COLOURS["phloem"], height=0.65)
        axis.bar_label(bars, labels=[f"{y} ×" for y in line.y], padding=3)
        axis.invert_yaxis()
        axis.axvline(1, color="#24292f", linewidth=0.8, linestyle=":")
        axis.set_title(f"{panel.title}  (bench/results/{panel.file})", loc="left", fontsize=10)
        axis.set_xlim(*plot.limits)
        axis.set_xticks(plot.ticks)
    axes[-1].set_xlabel(f"{plot.x_name}; dotted: as fast as transformers")
    return figure


def _line_figure(plot: Plot) -> Any:
    """A line per series, one pair of axes per panel; log axes are named in their labels."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullLocator

    across = min(len(plot.panels), 2)
    down = -(-len(plot.panels) // across)
    figure = Figure(figsize=(8.4, 2.5 * down + 1.3), layout="constrained")
    for place, panel in enumerate(plot.panels):
        axis = figure.add_subplot(down, across, place + 1)
        greys = iter(GREYS)
        for line in panel.series:
            is_own = line.name in COLOURS
            colour = COLOURS.get(line.name) or next(greys)
            xs = [number(x) for x in line.x] if plot.has_number_x else list(line.x)
            width = 2.4 if is_own else 1.3
            marker = "o" if is_own or len(plot.panels) == 1 else ""  # each is an element of the SVG
            axis.plot(xs, [number(y) for y in line.y], color=colour, linewidth=width, marker=marker, markersize=3.5)
            axis.lines[-1].set_label(line.name)
        if plot.is_log_x:
            axis.set_xscale("log", base=2)
            axis.set_xticks(xs, list(line.x))
            axis.xaxis.set_minor_locator(NullLocator())
        elif plot.has_number_x:
            axis.set_xticks(xs)
        if plot.is_log_y:
            axis.set_yscale("log")
            axis.yaxis.set_major_formatter("{x:,.0f}")
            axis.yaxis.set_minor_locator(NullLocator())
        if plot.ticks:
            axis.set_yticks(plot.ticks)
        axis.set_ylim(*plot.limits)
        axis.grid(axis="y", color="#d0d7de", linewidth=0.6)
        axis.set_title(f"{panel.title}  (bench/results/{panel.file})", loc="left", fontsize=10)
        axis.set(xlabel=plot.x_name, ylabel=plot.y_name)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6, frameon=False)
    return figure


def main(folder: Path = PLOTS) -> None:
    folder.mkdir(exist_ok=True)
    for plot in plots():
        draw(plot, folder / plot.name)
        print(folder / plot.name)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
