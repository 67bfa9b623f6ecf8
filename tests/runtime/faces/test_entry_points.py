"""The entry points by which other engines find the faces lead to functions."""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path

import pytest

from .peer_interfaces import peer

ROOT = Path(__file__).resolve().parents[3]
GROUPS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]


@pytest.mark.parametrize("group", GROUPS)
def test_an_entry_point_leads_to_a_function(group: str) -> None:
    with peer(group.partition(".")[0]):
        [(name, target)] = GROUPS[group].items()
        module, _, function = target.partition(":")
        assert name == "phloem"
        assert callable(getattr(importlib.import_module(module), function))


def test_there_is_one_for_each_engine_that_has_any() -> None:
    assert set(GROUPS) == {"sglang.srt.plugins", "vllm.general_plugins"}
