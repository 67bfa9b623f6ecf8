"""Pins and their budget; what they protect, and until when, is in the fuzz tests."""

from __future__ import annotations

import math

import pytest

from phloem.radix import PinBudgetExceeded, pack

from .small_trees import make_tree


def test_pins_share_blocks_within_the_budget() -> None:
    tree = make_tree(([1, 2, 3], [5, 6, 7]), ([1, 2, 4], [5, 6, 8]), max_pinned_blocks=4)
    tree.pins.add(pack([1, 2, 3]), math.inf, "")
    tree.pins.add(pack([1, 2, 4]), math.inf, "")
    assert tree.pins.num_blocks == 4
    tree.insert(pack([9]), [9], "")
    with pytest.raises(PinBudgetExceeded, match="5 blocks, the budget is 4"):
        tree.pins.add(pack([9]), 1.0, "")
    assert tree.evict(10) == [9]
