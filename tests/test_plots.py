"""The plots under docs/plots/: what they show is in bench/results, today, and every one is shown with its source."""

from __future__ import annotations

import importlib.util
import re
import sys
from math import inf
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
DESCRIPTION = "{http://purl.org/dc/elements/1.1/}description"
MAX_BYTES = 60_000


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw_plots", ROOT / "scripts" / "draw_plots.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


DRAW = _script()
DRAWN: dict[str, Any] = {plot.name: plot for plot in DRAW.plots()}


@pytest.mark.parametrize("name", DRAWN)
def test_the_numbers_drawn_are_those_of_the_files(name: str) -> None:
    """If results were measured again: python scripts/draw_plots.py, and look at what has become of it."""
    plot = DRAWN[name]
    for panel in plot.panels:
        text = (ROOT / "bench" / "results" / panel.file).read_text(encoding="utf-8")
        found = set(re.findall(r"(?<![\w.])[\d,]*\d(?:\.\d+)?(?![\w.]\d)", text))
        for line in panel.series:
            assert len(line.x) == len(line.y) > 1
            assert set(line.y) <= found
            least, most = plot.limits
            assert all(DRAW.number(y) > 0 and least <= DRAW.number(y) <= (most or inf) for y in line.y), "off the axis"
    path = DRAW.PLOTS / name
    root = ElementTree.parse(path).getroot()
    assert [element.text for element in root.iter(DESCRIPTION)] == [plot.description()]
    assert path.stat().st_size < MAX_BYTES


def test_every_plot_is_shown_and_its_files_are_named_with_it() -> None:
    assert {path.name for path in DRAW.PLOTS.iterdir()} == set(DRAWN)
    pages = [page.read_text(encoding="utf-8") for page in PAGES]
    for name, plot in DRAWN.items():
        (after,) = [page.split(f"plots/{name})")[1] for page in pages if f"plots/{name})" in page]
        caption = after[:700]
        assert re.search(r"20\d\d-\d\d-\d\d", caption)
        for panel in plot.panels:
            assert panel.file in caption or (name == "speedups.svg" and "the others" in caption)


def test_the_script_draws_where_matplotlib_is_installed(tmp_path: Path) -> None:
    if importlib.util.find_spec("matplotlib") is None:
        return
    plot = DRAWN["turns.svg"]
    files = [tmp_path / "one.svg", tmp_path / "other.svg"]
    for file in files:
        DRAW.draw(plot, file)
    assert files[0].read_bytes() == files[1].read_bytes()
    assert ElementTree.parse(files[0]).getroot().tag == "{http://www.w3.org/2000/svg}svg"
