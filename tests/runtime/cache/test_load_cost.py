"""Reading pays where it is faster than computing, both as measured; what was never measured is tried."""

from __future__ import annotations

import pytest

from phloem.runtime.execute.prefill_cost import PrefillCost
from phloem.runtime.offload.load_cost import LoadCost


def make_cost() -> LoadCost:
    """A block of 16 tokens takes 1,000 operations, and one more for each token before its end."""
    return LoadCost(PrefillCost(lambda end: 1000.0 + end, 16))


def test_what_was_never_measured_is_tried() -> None:
    cost = make_cost()
    assert cost.pays({"disk": 5}, 0, 80)
    cost.observe_load("disk", 1, 1000.0)
    assert cost.pays({"disk": 5}, 0, 80), "computing is not known yet"
    cost.prefill.observe_step([(0, 64)], 0, 1e-9)
    assert not cost.pays({"disk": 5}, 0, 80)
    assert cost.pays({"host": 5}, 0, 80), "another tier is not known yet"


def test_it_compares_seconds_with_seconds() -> None:
    cost = make_cost()
    cost.prefill.observe_step([(0, 160)], 0, 1.0)  # ten blocks of 1,080 operations in the mean
    assert cost.prefill.seconds_per_operation == pytest.approx(1.0 / 10_800)
    cost.observe_load("disk", 4, 0.2)
    cost.observe_load("host", 10, 0.01)
    assert cost.pays({"disk": 10}, 0, 160)
    assert not make_slow(cost).pays({"disk": 10, "host": 1}, 0, 176)
    assert cost.pays({"disk": 1, "host": 9}, 0, 160)


def make_slow(cost: LoadCost) -> LoadCost:
    cost.seconds_per_block["disk"] = 0.2
    return cost


def test_blocks_far_behind_are_worth_more() -> None:
    cost = make_cost()
    cost.prefill.observe_step([(0, 160)], 0, 1.0)
    cost.observe_load("disk", 1, 0.5)
    assert not cost.pays({"disk": 1}, 0, 16)
    assert cost.pays({"disk": 1}, 16_000, 16_016)


def test_a_tier_that_was_slow_once_is_tried_again() -> None:
    cost = make_cost()
    cost.prefill.observe_step([(0, 160)], 0, 1.0)
    cost.observe_load("disk", 1, 10.0)
    tries = [cost.pays({"disk": 1}, 0, 16) for _ in range(500)]
    assert not tries[0] and any(tries)
