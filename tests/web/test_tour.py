"""A newcomer's way through the page, as the pictures in the docs were made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "draw_page.py"
SHOWN = ["chat", "constraint", "now", "requests", "tree"]


def test_two_chats_share_a_prompt_in_the_tree_and_a_schema_brings_valid_json(browser: Any, tmp_path: Path) -> None:
    """The script checks what it sees; `browser`: it needs one."""
    done = subprocess.run(
        [sys.executable, SCRIPT, tmp_path / "shots"], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert sorted(path.stem for path in (tmp_path / "shots").iterdir()) == SHOWN
