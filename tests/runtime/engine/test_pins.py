"""Prefixes that are kept for a time, as an engine keeps them: what they hold, what they cost, when they are evicted."""

from __future__ import annotations

import pytest

from phloem.radix import PinBudgetExceeded
from phloem.runtime.request import SamplingParams

from ..fakes import fake_engine

GREEDY = SamplingParams(max_tokens=12, temperature=0.0)


def test_an_expired_pin_is_not_counted_any_more_and_what_it_held_can_be_evicted() -> None:
    now = [0.0]
    engine = fake_engine(clock=lambda: now[0], num_blocks=40)
    engine.pin(list(range(24)), ttl=5.0)
    now[0] = 4.9
    assert engine.statistics().num_pinned_blocks == 6
    now[0] = 5.1
    after = engine.statistics()
    assert (after.num_pinned_blocks, after.num_evictable_blocks, after.num_cached_blocks) == (0, 6, 6)
    assert engine.cache_report(asks_what_if=False).num_leased_blocks == 0


def test_samples_of_one_prompt_pin_it_once() -> None:
    engine = fake_engine(num_blocks=64)
    completions = engine.generate(list(range(24)), SamplingParams(max_tokens=3, n=4), pin_ttl=60)
    assert max(completion.usage.pinned_tokens for completion in completions) == 24
    assert engine.statistics().num_pinned_blocks == 6
    pins = engine.prefix_cache.tree.pins
    assert pins.end_first() and not pins.end_first()


def test_pins_that_leave_no_room_are_given_up_and_that_is_counted() -> None:
    engine = fake_engine(num_blocks=16, max_pinned_blocks=8)
    engine.pin(list(range(16)), ttl=600)
    engine.pin(list(range(100, 116)), ttl=500)
    engine.generate(list(range(200, 240)), SamplingParams(max_tokens=6, ignore_eos=True))  # 12 blocks: one has to go
    assert (engine.statistics().num_pins_given_up, engine.statistics().num_pinned_blocks) == (1, 4)


def test_a_pinned_prefix_outlives_everything_that_comes_after_it() -> None:
    engine = fake_engine(block_size=4, num_blocks=40)
    pin = engine.pin(list(range(24)), ttl=1000)
    engine.generate([[100 + i] * 30 for i in range(20)], GREEDY)
    assert (pin.num_tokens, engine.statistics().num_pinned_blocks) == (24, 6)
    assert engine.generate([*range(24), 7], GREEDY).usage.cached_tokens == 24
    assert engine.unpin(pin)
    assert not engine.unpin(pin)
    engine.generate([[100 + i] * 30 for i in range(20)], GREEDY)
    assert engine.generate([*range(24), 7], GREEDY).usage.cached_tokens == 0


def test_pins_have_a_budget() -> None:
    engine = fake_engine(block_size=4, num_blocks=40, max_pinned_blocks=6)
    with pytest.raises(PinBudgetExceeded, match=r"would hold 7 blocks, the budget is 6"):
        engine.pin(list(range(28)))
    once = SamplingParams(max_tokens=1)
    assert engine.generate(list(range(16)), once, pin_ttl=9).usage.pinned_tokens == 16
    assert engine.generate(list(range(50, 80)), once, pin_ttl=9).usage.pinned_tokens == 8, "as far as the budget goes"
    assert engine.generate(list(range(100, 130)), once, pin_ttl=9).usage.pinned_tokens == 0
