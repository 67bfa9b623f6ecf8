"""An exception at any call of a step costs at most one request its answer, and nothing else."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from phloem.errors import RequestError
from phloem.runtime.engine.async_engine import AsyncEngine
from phloem.runtime.request import SamplingParams

from ..fakes import fake_engine, greedy_truth, threaded_engine
from ..fault_sites import Fault, Interrupt, Site, Watch
from ..fault_traffic import SCENARIOS, Result, Scenario, ahead, budgets, few, play, tiers
from ..traffic import Said, listen, step

GREEDY = SamplingParams(max_tokens=9, temperature=0.0, ignore_eos=True)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Each fault is in the log, with its place."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@cache
def undisturbed(scenario: Scenario) -> tuple[dict[Site, int], dict[str, Result]]:
    """How often each site is called, and what is said. What is loaded and compiled once has been."""
    play(scenario, Watch())
    watch = Watch()
    said, failed, _ = play(scenario, watch)
    assert not failed
    return dict(watch.calls), said


def new_sites(scenario: Scenario) -> list[Site]:
    """Those that no scenario before it has."""
    before = [undisturbed(other)[0] for other in SCENARIOS[: SCENARIOS.index(scenario)]]
    return [site for site in undisturbed(scenario)[0] if not any(site in sites for sites in before)]


def what_is_wrong(scenario: Scenario, site: Site, at: int, error: type[BaseException] = Fault) -> str:
    """After an exception at one call of a site; empty if nothing is."""
    watch = Watch((site, at), error)
    truth = undisturbed(scenario)[1]
    try:
        said, failed, forked = play(scenario, watch)
        assert watch.has_raised, "the call did not come"
        assert len(failed) <= 1, f"failed: {failed}"
        for label, expected in truth.items():
            if not failed & {label, label.split("/")[0], forked.get(label)}:
                assert said[label] == expected, label
    except Exception as error:
        return f"{site}, call {at}: {error!r} {''.join(traceback.format_tb(error.__traceback__)[-2:])}"
    return ""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # raised where a generator is closed
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_fault_at_any_call_costs_at_most_one_request(scenario: Scenario) -> None:
    """Each site once, at one of its calls; of those that only larger scenarios reach a tenth, and of calls of functions
    in C a twentieth. `bench/studies/faults.py` tries all."""
    calls, _ = undisturbed(scenario)
    sites = new_sites(scenario)
    in_python = [site for site in sites if site.is_python]
    tried = in_python if scenario is few else in_python[::10]
    tried += [site for site in sites if not site.is_python][::20]
    wrong = [what_is_wrong(scenario, site, 1 + at * 7919 % calls[site]) for at, site in enumerate(tried)]
    assert not any(wrong), "\n".join(filter(None, wrong))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("scenario", "caller"),
    [(ahead, "Scheduler.plan_ahead"), (budgets, "Stepper._compact"), (tiers, "Scheduler._is_coming")],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_the_request_that_was_dealt_with_is_charged(scenario: Scenario, caller: str) -> None:
    """`Run.step` compares; here at several calls of each place that deals with one request after the other."""
    calls, _ = undisturbed(scenario)
    sites = [site for site in calls if site.caller.co_qualname == caller and site.is_python]
    assert sites
    wrong = [
        what_is_wrong(scenario, site, at) for site in sites for at in sorted({1, calls[site] // 2 + 1, calls[site]})
    ]
    assert not any(wrong), "\n".join(filter(None, wrong))


def test_the_scenarios_reach_all_that_a_step_does() -> None:
    reached = {site.callee for scenario in SCENARIOS for site in undisturbed(scenario)[0]}
    assert len([site for site in undisturbed(few)[0] if site.is_python]) > 200
    wanted = {"Scheduler._preempt", "PrefixCache.compact", "BlockSupply.adopt", "sole_partner", "Detours.add"}
    wanted |= {
        "BlockSupply.merge",
        "lease_to_state",
        "PrefixCache.fork",
        "PrefixCache.copy",
        "PinBook.add",
        "Stepper._fail",
    }
    wanted |= {"StateStore.fork", "StateSlots.merge", "StateSlots._evict", "StateStore.keep_last", "StateSlots.forget"}
    wanted |= {
        "WindowStore.hold",
        "WindowSlots.merge",
        "WindowSlots._take",
        "WindowSlots.forget",
    }
    wanted |= {"Computation._run_ahead", "Drafter.begin_step", "Lookup.expect", "LowerTiers.leaving"}
    assert wanted - reached == set()


def test_a_step_that_never_succeeds_ends_one_request_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = fake_engine()
    for _ in range(3):
        engine.add([1, 2], GREEDY)
    monkeypatch.setattr(engine._scheduler, "plan", lambda: 1 / 0)
    ended = [delta for _ in range(4) for delta in engine.step()]
    assert [delta.request_id for delta in ended] == ["request-2", "request-1", "request-0"]  # the youngest first
    assert all(isinstance(delta.error, RequestError) for delta in ended) and not engine.has_work
    now = engine.statistics()
    assert (now.num_recoveries, now.num_failed, now.num_steps) == (4, 3, 0)
    monkeypatch.undo()
    assert list(engine.generate([1, 2], GREEDY).token_ids) == greedy_truth([1, 2], 9)


def test_faults_are_counted_and_refusals_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = fake_engine()
    launch, broken = engine._sampler.launch, engine.add([1, 2], GREEDY)
    whole = engine.add([3], GREEDY)

    def failing(logits: Any, batch: Any, *hidden: None) -> Any:
        if any(extend.request.request_id == broken for extend in batch.extends):
            raise ValueError("no")
        return launch(logits, batch, *hidden)

    monkeypatch.setattr(engine._sampler, "launch", failing)
    ended = [delta for _ in range(12) for delta in engine.step() if delta.finish_reason is not None]
    assert {delta.request_id: delta.error is None for delta in ended} == {broken: False, whole: True}
    now = engine.statistics()
    assert (now.num_recoveries, now.num_failed) == (1, 1)
    engine.add([1, 2], SamplingParams(max_tokens=3), deadline_seconds=1e-9)
    with pytest.raises(RequestError):
        engine.add([])
    while engine.has_work:
        engine.step()
    engine.monitor.reset()
    with pytest.raises(ZeroDivisionError), monkeypatch.context() as patch:
        patch.setattr(engine._scheduler, "add", lambda request: 1 / 0)
        engine.add([1, 2], GREEDY)
    now = engine.statistics()
    assert (now.num_recoveries, now.num_failed) == (1, 1)


@pytest.mark.parametrize("place", ["_scheduler._admit", "_scheduler.plan", "_drafter.begin_step"])
def test_the_step_thread_survives(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    served = AsyncEngine(threaded_engine())
    owner = served.engine.core._stepper
    for name in place.split(".")[:-1]:
        owner = getattr(owner, name)
    method, calls = getattr(owner, place.split(".")[-1]), iter(range(1000))
    monkeypatch.setattr(owner, place.split(".")[-1], lambda *given: 1 / 0 if next(calls) == 2 else method(*given))
    streams = [served.submit([index], GREEDY) for index in range(5)]
    said, failed = [], 0
    for index, stream in enumerate(streams):
        try:
            said.append(list(stream.result().token_ids) == greedy_truth([index], 9))
        except RequestError:
            failed += 1
    assert all(said) and failed <= 1
    assert next(calls) > 3 and served.is_alive
    served.stop()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupted_step_costs_at_most_one_request() -> None:
    """Ctrl-C, pressed twice, wherever it comes; what was said in that step comes with the next one."""
    calls, _ = undisturbed(few)
    sites = [site for site in calls if site.is_python][::4]
    tried = [(site, 1 + at * 7919 % calls[site]) for at, site in enumerate(sites)]
    moved = [site for site in calls if site.caller.co_qualname == "Sampler._mask_rows"]  # along a draft, and back
    assert moved
    tried += [(site, at) for site in moved for at in (1, calls[site])]
    wrong = [what_is_wrong(few, site, at, Interrupt) for site, at in tried]
    assert not any(wrong), "\n".join(filter(None, wrong))


def test_a_step_that_is_interrupted_before_it_commits_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = fake_engine()
    texts: dict[str, list[int]] = {engine.add([index], GREEDY): [] for index in range(3)}
    compute, calls = engine._stepper._computation.run, iter(range(1000))

    def interrupted(*given: Any, **options: Any) -> Any:
        if next(calls) % 3 == 2:
            raise KeyboardInterrupt
        return compute(*given, **options)

    monkeypatch.setattr(engine._stepper._computation, "run", interrupted)
    num_interrupted = 0
    while engine.has_work:
        try:
            for delta in engine.step():
                assert delta.error is None
                texts[delta.request_id] += delta.token_ids
        except KeyboardInterrupt:
            num_interrupted += 1
        engine.audit()
    assert num_interrupted > 3
    assert [*texts.values()] == [greedy_truth([index], 9) for index in range(3)]


@pytest.mark.parametrize("place", ["_learn", "_compact", "_scheduler.take_late"])
def test_a_step_that_is_interrupted_after_it_has_committed_costs_nothing(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = fake_engine(check_invariants=False)
    said = {engine.add([index, 5], GREEDY): Said() for index in range(3)}
    owner = engine._stepper._scheduler if "." in place else engine._stepper

    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    step(engine, said)
    step(engine, said)
    with monkeypatch.context() as patch:
        patch.setattr(owner, place.split(".")[-1], interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.step()
    listen(engine, said)
    assert [one.token_ids for one in said.values()] == [greedy_truth([index, 5], 9) for index in range(3)]
