"""Whether steps draft or run ahead, against simulated steps of known cost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from phloem.runtime.speculate.overlap_policy import TRIAL, WAIT, OverlapPolicy

seconds = st.floats(1e-4, 1e-1)


def settled(busy: float, gap: float, num_drafting: int, num_jumped: int) -> OverlapPolicy:
    """After many steps in turn that were all alike."""
    policy = OverlapPolicy()
    for _ in range(400):
        policy.observe_in_turn(busy + gap, busy, gap, num_drafting, num_jumped)
    return policy


@given(seconds, seconds, st.integers(1, 64), st.integers(0, 64), st.floats(0.0, 8.0))
def test_it_chooses_what_brings_more_tokens(busy: float, gap: float, drafting: int, others: int, jump: float) -> None:
    num_jumped = round(drafting * jump)
    num_requests = drafting + others
    in_turn = (num_requests + num_jumped) / (busy + gap)
    ahead = num_requests / max(busy, gap)
    if abs(in_turn / ahead - 1.0) > 1e-3:
        policy = settled(busy, gap, drafting, num_jumped)
        assert policy.prefers_ahead(num_requests, drafting) == (ahead > in_turn)


@given(seconds, seconds)
def test_where_no_request_may_draft_it_runs_ahead(busy: float, gap: float) -> None:
    assert OverlapPolicy().prefers_ahead(8, 0)
    assert settled(busy, gap, 0, 0).prefers_ahead(8, 0)


def test_it_begins_with_a_trial_whatever_the_first_steps_say() -> None:
    policy = OverlapPolicy()
    for _ in range(TRIAL):
        assert not policy.prefers_ahead(8, 1)
        policy.observe_in_turn(2.0, 1.0, 1.0, 1, 0)
    assert policy.prefers_ahead(8, 1)


def steps_ahead_until_a_trial(policy: OverlapPolicy, num_requests: int, num_drafting: int) -> int:
    count = 0
    while policy.prefers_ahead(num_requests, num_drafting):
        policy.observe_ahead(num_requests, num_drafting)
        count += 1
    return count


def test_what_does_not_pay_is_tried_again_after_a_while() -> None:
    """The longer, the fewer of the requests may draft."""
    policy = settled(1.0, 0.1, 8, 0)
    for _ in range(3):
        assert steps_ahead_until_a_trial(policy, 32, 8) == 4 * WAIT
        for _ in range(TRIAL):
            policy.observe_in_turn(1.1, 1.0, 0.1, 8, 0)


def test_what_has_begun_to_pay_is_found_out_and_kept() -> None:
    policy = settled(1.0, 0.1, 8, 0)
    steps_ahead_until_a_trial(policy, 8, 8)
    for step in range(500):
        assert not policy.prefers_ahead(8, 8)
        policy.observe_in_turn(1.1, 1.0, 0.1, 8, 8 if step > 1 else 0)
    for _ in range(100):
        policy.observe_in_turn(1.1, 1.0, 0.1, 8, 0)
    assert steps_ahead_until_a_trial(policy, 8, 8) == WAIT


def test_steps_that_take_no_time_tell_nothing_against_drafts() -> None:
    assert not settled(0.0, 0.0, 1, 0).prefers_ahead(8, 1)
