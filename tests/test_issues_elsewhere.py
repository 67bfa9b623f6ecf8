"""`docs/issues-elsewhere.md`: phloem's verdicts are made anew, and the page is of the cases that there are."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = runpy.run_path(str(ROOT / "bench" / "issues_elsewhere.py"))
CASES = json.loads((ROOT / "bench" / "issues_elsewhere.json").read_text(encoding="utf-8"))
COMPILE = SCRIPT["phloem"]()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["issue"])
def test_phloem_is_right(case: dict[str, object]) -> None:
    what, said = SCRIPT["verdict"](COMPILE, case)
    assert what == "right", said


def test_the_page_is_of_these_cases() -> None:
    page = (ROOT / "docs" / "issues-elsewhere.md").read_text(encoding="utf-8")
    own = SCRIPT["page"](CASES, {"phloem": COMPILE}, {"phloem": "0.1.0"})
    rows = [line for line in own.splitlines() if line.startswith(("## [", "- **phloem**", "| phloem", "{"))]
    assert rows == [line for line in page.splitlines() if line.startswith(("## [", "- **phloem**", "| phloem", "{"))]
    assert len(re.findall(r"^## \[", page, re.MULTILINE)) == len(CASES) >= 20
