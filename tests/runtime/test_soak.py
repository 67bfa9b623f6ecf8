"""A short run of the soak: chats, forks, aborts, constraints, pins and deadlines at once over too small a pool."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).resolve().parents[2] / "bench" / "soak.py"


@pytest.mark.parametrize("flags", [[], ["--run-ahead"]], ids=["in turn", "ahead"])
def test_mixed_requests_lose_no_block_and_no_token(
    flags: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"--requests": 80, "--blocks": 64, "--sampled": 10, "--reports": 3}
    monkeypatch.setattr(sys, "argv", ["soak.py", *(str(part) for pair in options.items() for part in pair), *flags])
    runpy.run_path(str(SOAK), run_name="__main__")
    printed = capsys.readouterr().out
    assert "blocks lost: 0" in printed
    assert "\n0 of " in printed
