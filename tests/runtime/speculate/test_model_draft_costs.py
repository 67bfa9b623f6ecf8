"""What drafts by a model cost is measured, and they are made where they pay."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from phloem.runtime.request import SamplingParams
from phloem.runtime.speculate.model_drafter import ModelDrafter, Turn

from ..fakes import FakeDecoder, fake_engine
from ..stepped import SteppedEngine
from .drafting import (
    PROMPTS,
    NoisyDecoder,
    OtherDecoder,
    engine_with,
)


class Watch:
    """A clock that moves when a decoder computes."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def wrap(self, decoder: FakeDecoder, seconds: float, token_seconds: float = 0.0) -> FakeDecoder:
        """The decoder, whose forwards take as long."""
        plain = decoder.forward

        def forward(token_ids: torch.Tensor, *others: Any) -> torch.Tensor:
            self.now += seconds + token_seconds * len(token_ids)
            return plain(token_ids, *others)

        decoder.forward = forward  # type: ignore[method-assign]
        return decoder


def drafted_share(
    drafter: FakeDecoder,
    seconds: float,
    token_seconds: float = 0.0,
    max_tokens: int = 400,
    *,
    rests: bool | None = None,
) -> float:
    """How many tokens are drafted for each that is said, next to a model whose step takes 1 s, and 0.05 s a token.

    rests: what statistics must say of the draft model in the end.
    """
    watch = Watch()
    engine: SteppedEngine = fake_engine(
        decoder=watch.wrap(FakeDecoder(), 1.0, 0.05),
        draft_decoder=watch.wrap(drafter, seconds, token_seconds),
        stopwatch=watch,
        lookup_drafts=False,
        num_blocks=256,
    )
    params = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
    usage = engine.generate(list(PROMPTS[0]) * 8, params).usage
    assert rests is None or engine.statistics().draft_model_rests is rests
    return usage.drafted_tokens / max_tokens


def test_drafts_are_as_long_as_cost_and_acceptance_make_it_worth() -> None:
    assert drafted_share(FakeDecoder(), 0.05, max_tokens=200, rests=False) > 0.8
    assert drafted_share(FakeDecoder(), 1.2, max_tokens=200, rests=True) < 0.1
    assert drafted_share(OtherDecoder(), 0.05, rests=True) < 0.15
    assert drafted_share(NoisyDecoder(), 0.01) > drafted_share(NoisyDecoder(), 0.3)


def test_a_step_that_requests_share_is_less_to_save() -> None:
    prices = []
    for num_requests in (1, 8):
        model = engine_with("same")._stepper._drafter.model
        model.observe_step(num_requests, num_requests, 1.0)
        model._draft_unit = 0.002
        prices.append(model._price)
    assert prices[1] > 2 * prices[0]


def test_few_tokens_that_are_left_do_not_pay_for_a_long_prompt() -> None:
    assert drafted_share(FakeDecoder(), 0.05, 0.01, max_tokens=40) > 0.5
    drafter = FakeDecoder()
    watch = Watch()
    engine: SteppedEngine = fake_engine(
        decoder=watch.wrap(FakeDecoder(), 1.0, 0.05), draft_decoder=watch.wrap(drafter, 0.05, 0.2), stopwatch=watch
    )
    long = SamplingParams(max_tokens=40, temperature=0.0, ignore_eos=True)
    engine.generate(list(PROMPTS[0]), long)  # what the draft model's prompts cost is known from here on
    assert engine.generate([9] * 150, SamplingParams(max_tokens=8, temperature=0.0)).usage.drafted_tokens == 0


def test_a_second_request_finds_the_draft_models_keys_too() -> None:
    drafter = FakeDecoder()
    watch = Watch()
    engine: SteppedEngine = fake_engine(
        draft_decoder=watch.wrap(drafter, 0.0, 1.0), stopwatch=lambda: 0.0, lookup_drafts=False
    )
    params = SamplingParams(max_tokens=8, temperature=0.0, ignore_eos=True)
    engine.generate(list(range(80)), params)
    assert watch.now > 80
    before = watch.now
    engine.generate([*range(78), 5, 6], params)
    assert watch.now - before < 20


def drafting_engine(length: int, **settings: Any) -> tuple[SteppedEngine, ModelDrafter]:
    """All drafts are of that length; each token that the draft model computes takes 1 s, and nothing else takes any."""
    watch = Watch()
    engine: SteppedEngine = fake_engine(
        draft_decoder=watch.wrap(FakeDecoder(), 0.0, 1.0), stopwatch=watch, lookup_drafts=False, jump="off", **settings
    )
    model = engine._stepper._drafter.model
    model._best_length = lambda request, chance, limit: max(0, min(limit, length))
    model._pays = lambda *asked: True
    return engine, model


def test_what_is_missing_is_not_a_cost_of_drafted_tokens() -> None:
    engine, model = drafting_engine(1, num_blocks=200, max_draft_tokens=4, max_batch_tokens=64)
    params = SamplingParams(max_tokens=60, temperature=0.0, ignore_eos=True)
    engine.add([1, 2, 3], params)
    for _ in range(20):
        engine.step()
    known = model._draft_unit
    assert 1.0 <= known * 23.7 <= 3.0  # of a forward: a token is drafted, and what was decided before is computed
    engine.add([7] * 200, params)
    for _ in range(20):
        engine.step()
    assert model._cost.seconds_per_operation is not None and model._draft_unit <= known


def test_a_prompt_that_is_read_at_once_is_not_a_cost_of_drafted_tokens() -> None:
    engine, model = drafting_engine(3, num_blocks=200)
    engine.add([7] * 200, SamplingParams(max_tokens=60, temperature=0.0, ignore_eos=True))
    for _ in range(4):
        engine.step()
    assert model._draft_unit == pytest.approx(1.0 / 23.7)


def watch_plans(model: ModelDrafter) -> list[list[Turn]]:
    """Whose drafts each step plans, from now on."""
    plan, found = model.plan, list[list[Turn]]()

    def planned(requests: Any) -> Any:
        found.append(plan(requests))
        return found[-1]

    model.plan = planned  # type: ignore[method-assign]
    return found


def test_what_several_draft_at_once_fits_a_batch() -> None:
    engine, model = drafting_engine(
        1, num_blocks=400, max_draft_tokens=4, max_batch_tokens=48, target_step_seconds=1e6, max_running_requests=4
    )
    planned = watch_plans(model)
    params = SamplingParams(max_tokens=20, temperature=0.0, ignore_eos=True)
    engine.generate([[number] * 60 for number in (6, 7, 8)], params)
    sizes = [sum(turn.end - turn.start for turn in turns) for turns in planned if len(turns) > 1]
    assert max(sizes) == 48


def test_what_is_missing_of_several_takes_one_steps_time() -> None:
    engine, model = drafting_engine(
        1, num_blocks=400, max_draft_tokens=4, max_batch_tokens=128, target_step_seconds=40.0
    )
    planned = watch_plans(model)
    params = SamplingParams(max_tokens=60, temperature=0.0, ignore_eos=True)
    engine.generate([5] * 200, params)  # what a token takes is known from here on
    planned.clear()
    engine.generate([[number] * 200 for number in (6, 7, 8)], params)
    missing = [[turn.end - turn.start for turn in turns if not turn.limit] for turns in planned]
    several = [sum(chunks) for chunks in missing if len(chunks) > 1]
    assert several and max(several) <= 40 + 2 * 4 + 4  # of each that has no time left, a block
