"""Drafts pay: costs are found out, and what is drafted is what would be drafted if all chances were known."""

from __future__ import annotations

import random

import pytest

from phloem.fsm import Guess
from phloem.runtime.odds import MARGIN, Attempt, Experience, Odds
from phloem.runtime.step_cost import StepCost

SAVING, ROW = 200e-6, 80e-6  # seconds
PRICE = MARGIN * ROW / SAVING  # the chance from which a token is drafted
GROUNDS = range(4)


def play(odds: Odds, rates: list[float], num_tokens: int, seed: int, *, share: float = 0.02) -> tuple[float, float]:
    """Drafts tokens of random grounds where their chance is worth it, and a share of the others; the costs that were
    not necessary and those of one who knows the rates and drafts what is worth it."""
    source = random.Random(seed)
    regret = best = 0.0
    for _ in range(num_tokens):
        ground = source.choice(GROUNDS)
        gain = rates[ground] * SAVING - ROW
        best += SAVING - (gain if rates[ground] > PRICE else 0.0)
        drafts = odds.chances[ground] > PRICE
        is_trial = not drafts and source.random() < share
        if drafts != (rates[ground] > PRICE) or is_trial:
            regret += abs(gain)
        if drafts or is_trial:
            attempt = Attempt(Guess([7], [ground]), 0.0)
            odds.begin(attempt)
            odds.observe(attempt, [7 if source.random() < rates[ground] else 8])
    return regret, best


@pytest.mark.parametrize("seed", range(6))
def test_regret_against_known_chances_is_a_small_share_of_the_time(seed: int) -> None:
    source = random.Random(seed)
    rates = [rate for rate in (source.random() for _ in range(99)) if abs(rate - PRICE) > 0.15][:4]
    regret, total = play(Odds(Experience.of_all()), rates, 6000, seed)
    assert regret < 0.04 * total


def test_what_never_comes_true_is_soon_no_longer_drafted_and_what_does_is_drafted_on() -> None:
    odds = Odds(Experience.of_all())
    for _ in range(40):
        for ground, decided in ((0, 8), (1, 7)):
            odds.observe(Attempt(Guess([7], [ground]), 0.0), [decided])
    odds = odds.fork()
    assert odds.chances[0] < 0.2 and odds.chances[1] > 0.8
    assert odds.chances[2] == odds.chances[3] == 1.0, "not tried yet"


def test_a_request_begins_with_what_others_have_seen_and_ends_with_what_it_sees_itself() -> None:
    common = Experience.of_all()
    for _ in range(40):
        Odds(common).observe(Attempt(Guess([7], [0]), 0.0), [8])
    odds = Odds(common)
    assert odds.chances[0] < 0.1
    for _ in range(60):
        odds.observe(Attempt(Guess([7], [0]), 0.0), [7])
    assert odds.chances[0] > 0.7


def test_tokens_behind_the_first_that_was_wrong_teach_nothing() -> None:
    common = Experience.of_all()
    Odds(common).observe(Attempt(Guess([1, 2, 3], [0, 1, 2]), 0.0), [1, 9, 3])
    assert common.decided[0] == common.decided[1] > common.decided[2]
    assert common.right[1] < common.right[2] < common.right[0]


@pytest.mark.parametrize(("rate", "is_worth"), [(0.9, True), (0.1, False)])
def test_looking_goes_on_only_while_looks_save_more_than_they_cost(rate: float, is_worth: bool) -> None:
    odds, source = Odds(Experience.of_all()), random.Random(1)
    assert odds.is_look_worth(SAVING, ROW), "nothing is known yet"
    for _ in range(60):
        right = source.random() < rate
        attempt = Attempt(Guess([7, 7], [0, 0], has_looked=True), 20e-6)
        odds.begin(attempt)
        odds.observe(attempt, [7, 7] if right else [8])
    assert odds.is_look_worth(SAVING, ROW) == is_worth
    assert odds.is_look_worth(100 * SAVING, ROW), "a request alone: its step is worth a hundred times as much"


def test_looks_that_take_long_are_not_made_although_they_find_what_is_right() -> None:
    odds = Odds(Experience.of_all())
    for _ in range(60):
        attempt = Attempt(Guess([7], [0], has_looked=True), 10 * SAVING)
        odds.begin(attempt)
        odds.observe(attempt, [7])
    assert not odds.is_look_worth(SAVING, ROW)


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_the_cost_of_steps_is_found_out(noise: float) -> None:
    source, cost = random.Random(3), StepCost("cpu")
    fixed, host, row = 5e-3, 20e-6, 100e-6
    for _ in range(600):
        num_requests = source.randrange(1, 64)
        num_rows = num_requests + source.randrange(2 * num_requests)
        seconds = (fixed + num_requests * host + num_rows * row) * (1 + noise * (source.random() - 0.5))
        cost.observe(num_requests, num_rows, seconds)
    for num_requests in (1, 8, 64):
        assert cost.saving(num_requests) == pytest.approx(fixed / num_requests + host + row, rel=0.3)
    assert cost.row == pytest.approx(row, rel=0.3)


def test_steps_that_are_all_alike_tell_the_scale_and_leave_the_proportions() -> None:
    cost, scaled = StepCost("cpu"), StepCost("cpu")
    for _ in range(200):
        scaled.observe(16, 16, 3 * (cost.fixed + 16 * (cost.host + cost.row)))
    assert scaled.row / scaled.saving(16) == pytest.approx(cost.row / cost.saving(16), rel=0.05)
    assert scaled.row == pytest.approx(3 * cost.row, rel=0.05)


def test_one_very_long_step_hardly_matters_and_no_cost_is_ever_negative() -> None:
    cost, source = StepCost("cpu"), random.Random(5)
    for _ in range(100):
        cost.observe(8, 8, 2e-3)
    before = cost.saving(8)
    cost.observe(8, 8, 60.0)
    for _ in range(32):
        cost.observe(8, 8, 2e-3)
    assert cost.saving(8) == pytest.approx(before, rel=0.2)
    for _ in range(300):
        cost.observe(source.randrange(1, 9), source.randrange(9, 99), source.random() * 1e-3)
        assert min(cost.fixed, cost.host, cost.row) > 0


def test_a_clock_that_stands_still_changes_nothing() -> None:
    cost = StepCost("cpu")
    before = cost.saving(4)
    for _ in range(100):
        cost.observe(4, 4, 0.0)
    assert cost.saving(4) == before
