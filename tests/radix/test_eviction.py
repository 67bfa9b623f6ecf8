"""Eviction: the order under each policy, how much of a leaf is evicted, and what is spared."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phloem.radix import POLICIES, RadixTree, common_prefix, pack

from .small_trees import make_tree


def test_a_long_leaf_is_shortened_from_its_end() -> None:
    tree = make_tree((list(range(100)), list(range(100))))
    assert tree.evict(3) == [97, 98, 99]
    assert tree.match(pack(range(100)), "").num_tokens == 97
    tree.audit()


def test_a_short_leaf_goes_whole() -> None:
    tree = make_tree((list(range(17)), list(range(17))))
    assert tree.evict(1) == list(range(17))


def needing(*token_ids: int) -> Callable[[str, bytes], int]:
    """A `spare` callback: how many tokens of a prefix a request for these tokens will need."""
    return lambda _, path: common_prefix(path, pack(token_ids)) >> 2


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_soon_needed_goes_last(policy: str) -> None:
    tree = make_tree(([1, 1], [1, 2]), ([2], [3]), ([3], [4]), policy=policy)
    tree.match(pack([2]), "")
    tree.match(pack([3]), "")
    assert tree.evict(1, spare=needing(1, 1, 5)) == [3]
    assert tree.evict(3, spare=needing(1, 1, 5)) == [4, 1, 2]
    assert tree.num_cached_blocks == 0
    tree.audit()


def test_of_a_leaf_the_blocks_that_are_soon_needed_stay() -> None:
    tree = make_tree(([1, 1, 1, 2, 2, 2], [5, 6, 7]), ([3, 3], [8]), block_size=2)
    assert tree.evict(1, spare=needing(1, 1, 1, 9)) == [6, 7]
    assert tree.match(pack([1, 1, 1, 2]), "").blocks == [5]
    assert tree.evict(2, spare=needing(1, 1, 1, 9)) == [8, 5]


def test_a_long_leaf_is_shortened_no_further_than_what_is_soon_needed() -> None:
    tree = make_tree((list(range(1, 101)), list(range(100))), ([1, 2, 200], [0, 1, 100]))
    assert tree.evict(1, spare=needing(*range(1, 51))) == [99]
    assert sorted(tree.evict(45, spare=needing(*range(1, 51)))) == list(range(50, 99))
    assert tree.match(pack(range(1, 101)), "").num_tokens == 50
    tree.audit()


def test_a_spared_leaf_is_still_a_candidate() -> None:
    tree = make_tree(([1], [1]), ([2], [2]))
    tree.evict(1, spare=needing(1))
    tree.audit()
    assert tree.evict(1) == [1]


@given(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=6))
def test_priorities_order_as_ints_of_at_least_zero(priorities: list[int]) -> None:
    tree = RadixTree(1, policy="priority")
    for token, priority in enumerate(priorities):
        tree.insert(pack([token]), [token], "", priority=priority)
    order = sorted(range(len(priorities)), key=lambda token: max(priorities[token], 0))
    assert [tree.evict(1)[0] for _ in priorities] == order


@pytest.mark.parametrize("number", [2**63, 2**70, -(2**63) - 1, -(2**70)])
def test_any_int_is_a_number_of_blocks(number: int) -> None:
    assert make_tree(([1, 2, 3], [1, 2, 3])).evict(number) == ([1, 2, 3] if number > 0 else [])


def test_costs_are_asked_for_as_far_as_prefixes_reach() -> None:
    asked: list[int] = []
    tree = RadixTree(2, policy="cost", block_cost=lambda end: asked.append(end) or 1.0)
    for token in range(1000):
        tree.insert(pack([token] * 6), [3 * token, 3 * token + 1, 3 * token + 2], "")
    assert max(asked) < 4 * 6
    assert len(asked) == len(set(asked))


@pytest.mark.parametrize("cost", [math.nan, math.inf, -math.inf])
def test_a_cost_that_is_no_number_is_refused(cost: float) -> None:
    tree = RadixTree(2, policy="cost", block_cost=lambda end: cost)
    with pytest.raises(ValueError, match="block_cost"):
        tree.insert(pack([1, 2]), [1], "a")
    assert tree.num_cached_blocks == 0


@pytest.mark.parametrize("now", [math.nan, math.inf, -math.inf])
def test_a_clock_that_tells_no_time_holds_nothing_up(now: float) -> None:
    tree = RadixTree(2, clock=lambda: now)
    for first in range(3):
        tree.insert(pack([first, 2]), [first], "a")
    assert sorted(tree.evict(3)) == [0, 1, 2]
