"""Runs `template_limits` where no template can hang the tests."""

from __future__ import annotations

from pathlib import Path

from ...bounded import run_bounded


def test_templates_end_in_bounded_memory() -> None:
    run_bounded(Path(__file__).with_name("template_limits.py"))
