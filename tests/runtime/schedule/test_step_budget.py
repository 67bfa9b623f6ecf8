"""While requests decode, a step takes as long as the target allows, by what prompts were measured to cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from phloem.errors import ConfigError
from phloem.runtime.config import EngineConfig
from phloem.runtime.engine.engine import Engine
from phloem.runtime.execute.batch import Batch
from phloem.runtime.execute.prefill_cost import FEWEST_TOKENS, PrefillCost
from phloem.runtime.request import SamplingParams

from ..fakes import FakeDecoder, fake_engine, greedy_truth

PROMPT_LEN = 600
MOST_TOKENS = 300  # of a stream
SETTLING = 6  # steps until costs that were guessed wrongly are known


class Machine(FakeDecoder):
    """A model that takes time, in seconds of its own: so much for a step, and so much for an operation.

    Attributes:
        now: seconds.
        steps: of those that computed: seconds, and tokens by request.
    """

    def __init__(self, fixed: float, per_operation: float) -> None:
        super().__init__()
        self.fixed, self.per_operation = fixed, per_operation
        self.block_cost: Callable[[int], float] = lambda end: 1.0
        self.now = 0.0
        self.steps: list[tuple[float, list[int]]] = []

    def forward(self, *step: Any) -> torch.Tensor:
        plan = step[3]
        lengths = (plan.query_starts[1:] - plan.query_starts[:-1]).tolist()
        seconds = self.fixed
        for length, end in zip(lengths, plan.context_lens.tolist(), strict=True):
            seconds += self.per_operation * length / 4 * self.block_cost(max(1, end - length // 2))
        self.now += seconds
        self.steps.append((seconds, lengths))
        return super().forward(*step)


def engine_on(machine: Machine, **options: Any) -> Engine:
    engine = fake_engine(
        decoder=machine, stopwatch=lambda: machine.now, num_blocks=400, lookup_drafts=False, jump="off", **options
    )
    machine.block_cost = engine.block_cost
    return engine


def law(max_tokens: int) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)


def play(machine: Machine, num_streams: int, **options: Any) -> tuple[list[tuple[float, list[int]]], float]:
    """Streams decode, and a long prompt comes; the steps until it has been computed, and what decoding alone took."""
    engine = engine_on(machine, **options)
    said: dict[str, list[int]] = {engine.add([9, index], law(MOST_TOKENS)): [] for index in range(num_streams)}
    for _ in range(4):
        for delta in engine.step():
            said[delta.request_id] += delta.token_ids
    decode = machine.steps[-1][0] if num_streams else 0.0
    prompt, first = [(7 * at) % 250 for at in range(PROMPT_LEN)], len(machine.steps)
    long = engine.add(prompt, law(3))
    said[long] = []
    while not said[long]:
        for delta in engine.step():
            said[delta.request_id] += delta.token_ids
    steps = machine.steps[first:]
    assert said[long] == greedy_truth(prompt, 1)
    for index, tokens in enumerate(list(said.values())[:num_streams]):
        truth = greedy_truth([9, index], len(tokens))  # up to an end token, if one comes
        assert tokens[: len(truth)] == truth, "chunks change nothing"
    return steps, decode


@settings(deadline=None, max_examples=40)
@given(
    fixed=st.floats(0.001, 0.3),
    chunk_seconds=st.floats(0.001, 10.0),
    target=st.floats(0.01, 1.0),
    num_streams=st.integers(1, 5),
    max_batch_tokens=st.sampled_from([64, 200, 2048]),
)
@example(fixed=0.2, chunk_seconds=1.0, target=0.01, num_streams=1, max_batch_tokens=2048)
@example(fixed=0.01, chunk_seconds=1.0, target=0.875, num_streams=5, max_batch_tokens=64)
@example(fixed=0.09375, chunk_seconds=10.0, target=0.25, num_streams=5, max_batch_tokens=64)
def test_steps_stay_within_the_target_while_anything_decodes(
    fixed: float, chunk_seconds: float, target: float, num_streams: int, max_batch_tokens: int
) -> None:
    """chunk_seconds: what all of the prompt takes at once, but for what a step takes in any case."""
    machine = Machine(fixed, 0.0)
    machine.block_cost = engine_on(machine).block_cost
    machine.per_operation = chunk_seconds / (PROMPT_LEN / 4 * machine.block_cost(PROMPT_LEN // 2))
    steps, decode = play(
        machine, num_streams, target_step_seconds=target, max_batch_tokens=max_batch_tokens, max_running_requests=8
    )
    allowed = max(target, 2 * decode)
    # a step that only decodes is not seen while the prompt is computed, and longer contexts take longer
    grown = machine.per_operation * num_streams / 4 * (machine.block_cost(MOST_TOKENS + 2) - machine.block_cost(1))
    for index, (seconds, lengths) in enumerate(steps):
        assert max(lengths) >= 4 or index == len(steps) - 1, "the prompt makes progress, to its last token"
        if index >= SETTLING:
            assert seconds <= 1.02 * allowed + grown or max(lengths) <= 4
    used = [seconds for seconds, lengths in steps[2 * SETTLING : -1] if sum(lengths) < max_batch_tokens - 4]
    block = machine.per_operation * machine.block_cost(PROMPT_LEN)
    assert all(seconds >= 0.95 * allowed - block - 0.1 * fixed for seconds in used), "and takes what it is given"


def test_a_prompt_takes_all_of_a_step_in_which_nothing_decodes() -> None:
    steps, _ = play(Machine(0.01, 1.0), 0, target_step_seconds=0.02)
    assert [lengths for _, lengths in steps] == [[PROMPT_LEN]]


def test_nor_is_there_a_target_if_it_is_said_to_be_infinite() -> None:
    steps, _ = play(Machine(0.01, 1.0), 2, target_step_seconds=math.inf)
    assert sorted(steps[0][1]) == [1, 1, PROMPT_LEN]


def test_chunks_grow_where_computing_is_cheap() -> None:
    sizes = []
    for per_operation in (4e-6, 1e-6):
        steps, _ = play(Machine(0.001, per_operation), 2, target_step_seconds=0.05)
        sizes.append([max(lengths) for _, lengths in steps[SETTLING:-1]])
    assert sizes[0] and (not sizes[1] or min(sizes[1]) > 2 * max(sizes[0]) or len(sizes[1]) * 3 < len(sizes[0]))
    assert sizes[0] == sorted(sizes[0], reverse=True), "further on a token costs more"


def test_it_holds_where_steps_run_ahead_too() -> None:
    """The next step is planned before the tokens of this one are known."""
    engine = engine_on(Machine(0.01, 1e-3), run_ahead=True, target_step_seconds=0.03)
    machine = engine._runner._decoder
    assert isinstance(machine, Machine)
    for index in range(2):
        engine.add([9, index], law(200))
    for _ in range(4):
        engine.step()
    long = engine.add([(7 * at) % 250 for at in range(PROMPT_LEN)], law(2))
    first = len(machine.steps)
    while not any(delta.request_id == long for delta in engine.step()):
        pass
    lengths = [max(lengths) for _, lengths in machine.steps[first:-2] if max(lengths) > 1]
    assert len(lengths) > 10 and max(lengths[SETTLING:]) <= 8


def test_several_prompts_share_what_is_left_of_a_step() -> None:
    machine = Machine(0.01, 1e-4)
    engine = engine_on(machine, target_step_seconds=0.05)
    engine.add([9], law(300))
    for _ in range(4):
        engine.step()
    names = {engine.add([index, *range(1, 60)], law(1)) for index in range(12)}
    first = len(machine.steps)
    while names:
        names -= {delta.request_id for delta in engine.step() if delta.finish_reason is not None}
    assert all(seconds <= 0.051 for seconds, _ in machine.steps[first + SETTLING :])
    assert max(len(lengths) for _, lengths in machine.steps[first:]) >= 2


def watch_plans(engine: Engine) -> list[int]:
    """Checks each plan: admitted requests get tokens, and prompts go oldest first. Returns the numbers admitted."""
    scheduler, num_admitted = engine._scheduler, []

    def checked(plan: Callable[..., Batch | None]) -> Callable[..., Batch | None]:
        def planned(*given: Any) -> Batch | None:
            before = {request: request.num_uncomputed_tokens for request in scheduler.running}  # oldest first
            after = {extend.request: extend.end for extend in given[0].extends} if given else {}
            batch = plan(*given)
            extends = {} if batch is None else {extend.request: extend for extend in batch.extends}
            admitted = [request for request in scheduler.running if request not in before]
            num_admitted.append(len(admitted))
            if given and batch is None:
                assert not admitted
                return None
            assert all(request in extends for request in admitted), "admitted with no token to compute"
            prompts = [
                request
                for request, num_uncomputed in before.items()
                if num_uncomputed > 1 and after.get(request, 0) < request.num_tokens and request in scheduler.running
            ]
            prompts += [request for request in extends if request not in before]
            is_cut = [
                request not in extends or extends[request].start + extends[request].num_tokens < request.num_tokens
                for request in prompts
            ]
            given_any = [request in extends for request in prompts]
            assert given_any == sorted(given_any, reverse=True), "the oldest come first"
            assert not any(is_cut[: sum(given_any) - 1]), "and no other before the oldest has all it wants"
            return batch

        return planned

    scheduler.plan = checked(scheduler.plan)  # type: ignore[method-assign]
    scheduler.plan_ahead = checked(scheduler.plan_ahead)  # type: ignore[method-assign]
    return num_admitted


@settings(deadline=None, max_examples=25)
@given(
    lengths=st.lists(st.integers(1, 120), min_size=2, max_size=8),
    num_common=st.sampled_from([0, 6]),
    block_seconds=st.floats(0.0005, 0.05),
    target=st.floats(0.02, 0.2),
    max_batch_tokens=st.sampled_from([16, 64, 2048]),
    run_ahead=st.booleans(),
)
@example([300] * 8, 0, 0.002, 0.05, 2048, False)
@example([300] * 8, 0, 0.002, 0.05, 2048, True)
def test_no_request_is_admitted_before_it_can_be_given_tokens(
    lengths: list[int], num_common: int, block_seconds: float, target: float, max_batch_tokens: int, run_ahead: bool
) -> None:
    """num_common: tokens that all prompts begin with, of which half a block is copied."""
    machine = Machine(0.02, 0.0)
    engine = engine_on(machine, target_step_seconds=target, max_batch_tokens=max_batch_tokens, run_ahead=run_ahead)
    machine.per_operation = block_seconds / engine.block_cost(1)
    engine.add([9, 1], law(200))
    engine.add([3] * 50, law(1))
    for _ in range(8):
        engine.step()
    num_admitted = watch_plans(engine)
    for index, length in enumerate(lengths):
        engine.add([*range(num_common), *((7 * at + 13 * index) % 250 for at in range(length))], law(3))
    for _ in range(400):
        if engine._scheduler.num_waiting == 0 and len(engine._scheduler.running) <= 1:
            break
        engine.step()
    assert sum(num_admitted) >= len(lengths)


def test_what_was_slow_once_does_not_stay_so() -> None:
    """Something is loaded in the first step; another process takes the processor for a moment."""
    cost = PrefillCost(lambda end: 1000.0, 16)
    cost.observe_step([(0, 64)], 0, 100.0)
    for _ in range(12):
        cost.observe_step([(0, 64)], 0, 0.01)
    assert cost.num_tokens(0, 0.1, 2048) >= 500
    for _ in range(3):
        cost.observe_step([(0, 64)], 0, 50.0)
    assert cost.num_tokens(0, 0.1, 2048) >= 256, "a measurement counts as twice what was expected at most"


def test_few_tokens_tell_only_that_prompts_are_fast() -> None:
    cost = PrefillCost(lambda end: 1000.0, 16)
    cost.observe_step([(0, 64)], 0, 0.064)
    before = cost.seconds_per_operation
    cost.observe_step([(0, FEWEST_TOKENS - 1)], 0, 1.0)
    assert cost.seconds_per_operation == before
    cost.observe_step([(0, FEWEST_TOKENS - 1)], 0, 0.001)
    assert cost.seconds_per_operation is not None and before is not None and cost.seconds_per_operation < before


def test_what_is_not_known_is_no_bound() -> None:
    cost = PrefillCost(lambda end: 1000.0, 16)
    cost.observe_step([(0, 64)], 1, 0.0)
    assert (cost.num_tokens(0, 0.0, 2048), cost.seconds(0, 2048)) == (2048, 0.0)


@settings(max_examples=60)
@given(st.integers(0, 5000), st.integers(1, 4096), st.floats(0.0, 2.0), st.sampled_from([1, 16]))
def test_as_many_tokens_as_fit_and_no_more(start: int, most: int, seconds: float, block_size: int) -> None:
    cost = PrefillCost(lambda end: 1000.0 + end, block_size)
    cost.observe_step([(0, 160)], 0, 0.16)
    found = cost.num_tokens(start, seconds, most)
    assert found == most or (found % block_size == 0 and found < most)
    assert not found or cost.seconds(start, start + found) <= seconds
    if found < most:
        assert cost.seconds(start, start + min(most, found + block_size)) > seconds


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan])
def test_a_target_is_above_zero(seconds: float) -> None:
    with pytest.raises(ConfigError, match="target_step_seconds"):
        EngineConfig(target_step_seconds=seconds)
