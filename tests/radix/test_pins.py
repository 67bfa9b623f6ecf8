"""Pins protect prefixes within a budget, until they have expired and their blocks are needed."""

from __future__ import annotations

import math

import pytest

from phloem.radix import PinBudgetExceeded, pack

from .small_trees import Clock, make_tree


def test_a_pin_outlives_eviction_until_its_time_is_over() -> None:
    clock = Clock()
    tree = make_tree(([1, 2], [5, 6]), ([3], [7]), clock=clock, max_pinned_blocks=2)
    pin = tree.pins.add(pack([1, 2]), 10.0, "")
    assert (pin.num_tokens, tree.pins.num_blocks) == (2, 2)
    assert tree.evict(3) == [7]
    clock.now = 10.0
    assert tree.pins.num_blocks == 2, "an expired pin goes under pressure only"
    assert sorted(tree.evict(1)) == [5, 6]
    assert not tree.pins.end(pin)


def test_an_expired_pin_is_spared_while_there_is_other_room() -> None:
    clock = Clock()
    tree = make_tree(([1], [5]), ([3], [7]), clock=clock, max_pinned_blocks=1)
    tree.pins.add(pack([1]), 0.0, "")
    assert tree.evict(1) == [7]


def test_pins_share_blocks_within_the_budget() -> None:
    tree = make_tree(([1, 2, 3], [5, 6, 7]), ([1, 2, 4], [5, 6, 8]), max_pinned_blocks=4)
    tree.pins.add(pack([1, 2, 3]), math.inf, "")
    tree.pins.add(pack([1, 2, 4]), math.inf, "")
    assert tree.pins.num_blocks == 4
    tree.insert(pack([9]), [9], "")
    with pytest.raises(PinBudgetExceeded, match="5 blocks, the budget is 4"):
        tree.pins.add(pack([9]), 1.0, "")
    assert tree.evict(10) == [9]


def test_unpin_makes_evictable() -> None:
    tree = make_tree(([1], [5]), max_pinned_blocks=1)
    pin = tree.pins.add(pack([1]), math.inf, "")
    assert tree.pins.end(pin)
    assert tree.evict(1) == [5]


def test_clear_leaves_what_is_leased() -> None:
    tree = make_tree(([1], [5]), ([2], [6]), ([3], [7]), max_pinned_blocks=1)
    tree.lease(tree.match(pack([2]), "").node)
    tree.pins.add(pack([3]), math.inf, "")
    assert sorted(tree.clear()) == [5, 7]
    assert tree.num_cached_blocks == tree.num_leased_blocks == 1
