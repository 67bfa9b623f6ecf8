"""Runs `refused_files` where no file can hang the tests."""

from __future__ import annotations

from pathlib import Path

from ..bounded import run_bounded


def test_files_load_or_are_refused_in_bounded_memory() -> None:
    run_bounded(Path(__file__).with_name("refused_files.py"))
