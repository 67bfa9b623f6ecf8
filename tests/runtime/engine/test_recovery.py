"""What a fault between two steps costs, and what is told of it."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from phloem.errors import RequestError
from phloem.runtime.request import SamplingParams
from phloem.runtime.sample.sampler_output import cause_of

from ..fakes import fake_engine, greedy_truth

GREEDY = SamplingParams(max_tokens=9, temperature=0.0, ignore_eos=True)


def fail(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError


def test_a_fault_while_a_request_is_aborted_is_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = fake_engine(check_invariants=False)
    aborted, _ = engine.add([1, 2], GREEDY), engine.add([3, 4], GREEDY)
    engine.step()
    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR, logger="phloem"):
        patch.setattr(engine._scheduler, "remove", fail)
        patch.setattr(engine._stepper, "_on_finish", fail)
        engine.abort(aborted)
    assert [record.exc_info is not None for record in caplog.records] == [True, True]  # of both


def test_counters_do_not_fall_if_the_tree_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = fake_engine(num_blocks=12, max_pinned_blocks=4, check_invariants=False)
    engine.pin([1, 2, 3, 4, 5, 6, 7, 8], ttl=1e9)
    for index in range(6):
        engine.generate([index * 20 + at for at in range(16)], GREEDY)
    assert engine.statistics().num_evicted_blocks > 0
    before = engine.statistics().num_evicted_blocks
    engine.add([1, 2, 3], GREEDY)
    with monkeypatch.context() as patch:
        patch.setattr(type(engine.prefix_cache.tree), "end_leases", fail)
        patch.setattr(engine._scheduler, "plan", fail)
        engine.step()
    after = engine.statistics()
    assert after.num_evicted_blocks >= before
    assert (after.num_pins_given_up, after.num_pinned_blocks) == (1, 0)


@pytest.mark.parametrize("failing", range(3))
def test_an_output_that_is_not_taken_up_costs_no_other_request(failing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = fake_engine(check_invariants=False)
    other = engine.add([7, 8], SamplingParams(max_tokens=20, temperature=0.0, ignore_eos=True))
    for _ in range(2):
        engine.step()
    add, calls = engine._stepper._drafter.begin, iter(range(9))
    monkeypatch.setattr(
        engine._stepper._drafter, "begin", lambda given: fail() if next(calls) == failing else add(given)
    )
    with pytest.raises(ZeroDivisionError):
        engine.add([1, 2], SamplingParams(max_tokens=9, n=3))
    assert [request.request_id for request in engine._scheduler.running] == [other], "nothing was begun again"
    assert engine.statistics().num_finished == failing + 1  # those that had begun
    assert list(engine._requests) == [other]


@pytest.mark.parametrize("ttl", ["600", None, float("nan"), True])
def test_a_pin_of_a_wrong_length_is_refused(ttl: Any) -> None:
    engine = fake_engine(max_pinned_blocks=4)
    engine.add([7, 8], SamplingParams(max_tokens=60, temperature=0.0, ignore_eos=True))
    engine.step()
    with pytest.raises(RequestError, match="ttl"):
        engine.pin([1, 2, 3, 4], ttl=ttl)
    with pytest.raises(RequestError, match="pin"):
        engine.unpin("no pin")  # type: ignore[arg-type]
    assert len(engine._scheduler.running) == 1
    assert list(engine.generate([1, 2], GREEDY).token_ids) == greedy_truth([1, 2], 9)


def test_what_failed_is_said_without_an_empty_reason() -> None:
    assert str(cause_of("the request", KeyboardInterrupt())) == "the request was interrupted"
    assert str(cause_of("the step", ValueError())) == "the step failed: ValueError"
    assert str(cause_of("the step", ValueError("seven"))) == "the step failed: ValueError: seven"
