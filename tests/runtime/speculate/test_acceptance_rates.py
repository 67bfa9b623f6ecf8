"""Acceptance rates become what they are, for a request soon and for all in time."""

from __future__ import annotations

import random
import statistics

import pytest

from phloem.fsm import Guess
from phloem.fsm.guess import MARK, OFTEN, ONCE, WORD
from phloem.runtime.speculate.acceptance_rates import FIRST_RATE, MODEL, NUM_KINDS, AcceptanceRates, first_rates


def played(common: list[float], rate: float, num_tokens: int, seed: int = 0) -> AcceptanceRates:
    """A request whose drafted tokens of kind 0 are right that often."""
    source, rates = random.Random(seed), AcceptanceRates(common)
    for _ in range(num_tokens):
        rates.observe(Guess([7], [0]), [7 if source.random() < rate else 8])
    return rates


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.7, 1.0])
def test_chances_become_what_they_are(rate: float) -> None:
    common = first_rates()
    found = [played(common, rate, 60, seed).chances() for seed in range(20)]
    assert statistics.mean(chances[0] for chances in found) == pytest.approx(rate, abs=0.1)
    assert all(chances[1:] == [FIRST_RATE] * (NUM_KINDS - 1) for chances in found), "not tried yet"


def test_a_request_begins_with_what_others_have_seen_and_ends_with_what_it_sees_itself() -> None:
    common = first_rates()
    played(common, 0.0, 200)
    assert AcceptanceRates(common).chances()[0] < 0.1
    assert played(common, 1.0, 60).chances()[0] > 0.9


def test_requests_that_have_begun_together_learn_from_each_other() -> None:
    common = first_rates()
    waiting = AcceptanceRates(common)
    played(common, 0.0, 40)
    assert waiting.chances()[0] < 0.5


def test_a_fork_goes_on_from_the_same_experience() -> None:
    rates = played(first_rates(), 0.5, 9)
    fork = rates.fork()
    assert fork.chances() == rates.chances()
    fork.observe(Guess([7], [0]), [8])
    assert fork.chances()[0] < rates.chances()[0]


def test_tokens_after_the_first_that_was_wrong_teach_nothing() -> None:
    rates = AcceptanceRates(first_rates())
    rates.observe(Guess([1, 2, 3], [0, 1, 2]), [1, 9, 3])
    chances = rates.chances()
    assert chances[1] < chances[2] == chances[3] == FIRST_RATE < chances[0]


def test_no_other_kind_of_evidence_is_that_of_a_draft_model() -> None:
    assert {WORD, MARK, ONCE, OFTEN, MODEL} == set(range(NUM_KINDS))
