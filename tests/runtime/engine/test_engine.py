"""The engine on a model that reads its context back from the KV: any fault of blocks or leases changes the text."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from phloem.runtime.constrain.spec import regex
from phloem.runtime.engine.engine import Engine
from phloem.runtime.engine.warmup import warm_up
from phloem.runtime.request import FinishReason, SamplingParams

from ..fakes import fake_engine, greedy_truth
from ..stepped import SteppedEngine

GREEDY = SamplingParams(max_tokens=12, temperature=0.0)


def prompts(count: int, *, seed: int = 0, shared: int = 30) -> list[list[int]]:
    """Prompts of which many share a prefix, some end inside another, one is a single token."""
    source = random.Random(seed)
    trunk = [source.randrange(256) for _ in range(shared)]
    made = [trunk[: source.randrange(1, shared)] + [source.randrange(4) for _ in range(9)] for _ in range(count - 2)]
    return [*made, trunk, trunk[:1]]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"block_size": 1, "num_blocks": 256},
        {"block_size": 16},
        {"prefix_cache": False},
        {"max_batch_tokens": 7},
        {"max_running_requests": 1},
        {"num_blocks": 16},
        {"num_blocks": 14, "max_batch_tokens": 5},
    ],
    ids=lambda settings: ",".join(f"{k}={v}" for k, v in settings.items()) or "default",
)
def test_greedy_output_is_the_models_own(settings: dict[str, int]) -> None:
    engine = fake_engine(**settings)
    batch = prompts(24)
    for _ in range(2):  # cold, then warm
        for prompt, completion in zip(batch, engine.generate(batch, GREEDY), strict=True):
            assert list(completion.token_ids) == greedy_truth(prompt, 12)
    assert engine.statistics().num_held_blocks == 0


@pytest.mark.parametrize("length", [17, 33, 41, 47, 48, 49])
def test_n_samples_share_the_last_block_too(length: int) -> None:
    engine = fake_engine(block_size=16)
    completions = engine.generate(list(range(length)), SamplingParams(max_tokens=5, n=4, seed=1))
    assert [c.index for c in completions] == [0, 1, 2, 3] and len({c.token_ids for c in completions}) == 4
    alone = fake_engine(block_size=16, prefix_cache=False)
    params = SamplingParams(max_tokens=5, n=4, seed=1)
    assert [c.token_ids for c in completions] == [c.token_ids for c in alone.generate(list(range(length)), params)]
    assert [c.usage.cached_tokens for c in completions] == [0, length - 1, length - 1, length - 1]


def test_the_next_turn_of_a_chat_computes_only_what_is_new() -> None:
    engine = fake_engine(block_size=16)
    text = list(range(5))
    for turn in range(8):
        completion = engine.generate(text, SamplingParams(max_tokens=7, temperature=0.0, ignore_eos=True))
        assert completion.usage.cached_tokens == (len(text) - 4 if turn else 0)
        text += [*completion.token_ids, 9 + turn, 11, 13]


def test_abort_at_any_step_leaves_nothing_behind() -> None:
    source = random.Random(3)
    engine = fake_engine(num_blocks=40, max_batch_tokens=16)
    for _ in range(120):
        ids = [engine.add(prompt, GREEDY) for prompt in prompts(6, seed=source.randrange(99))]
        for _ in range(source.randrange(12)):
            engine.step()
        for request_id in source.sample(ids, 3):
            engine.abort(request_id)
            engine.audit()
        while engine.has_work:
            engine.step()
    assert engine.statistics().num_held_blocks == 0
    engine.flush_cache()
    assert engine.statistics().num_free_blocks == 40


def test_of_what_has_ended_nothing_but_its_cache_is_kept() -> None:
    engine = fake_engine()
    for number in range(2):
        name = engine.add([1, 2], SamplingParams(n=2, max_tokens=3), request_id="same")
        while engine.has_work:
            engine.step()
        assert not engine.abort(name)
        assert engine.statistics().num_finished == 2 * (number + 1)


def test_a_failing_step_ends_its_batch_and_spares_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = fake_engine(max_running_requests=2)
    truth = greedy_truth([50], 12)
    ids = [engine.add([50 - i], GREEDY) for i in range(3)]
    forward = engine._runner.forward
    monkeypatch.setattr(engine._runner, "forward", lambda batch: 1 / 0)
    failed = engine.step()
    assert {delta.finish_reason for delta in failed} == {FinishReason.ERROR}
    assert "ZeroDivisionError" in str(failed[0].error)
    monkeypatch.setattr(engine._runner, "forward", forward)
    survivors = set(ids) - {delta.request_id for delta in failed}
    assert len(survivors) == 1
    tokens: list[int] = []
    while engine.has_work:
        for delta in engine.step():
            assert delta.request_id in survivors
            tokens += delta.token_ids
    assert tokens in ([truth] if ids[0] in survivors else [greedy_truth([49], 12), greedy_truth([48], 12)])
    assert engine.generate([50], GREEDY).token_ids == tuple(truth)


@pytest.mark.parametrize("settings", [{"max_model_len": 20}, {"num_blocks": 2, "block_size": 16}], ids=str)
def test_an_engine_too_small_for_the_warm_up_starts_all_the_same(settings: dict[str, int]) -> None:
    engine = fake_engine(**settings)
    warm_up(engine)
    assert len(engine.generate([1, 2, 3], GREEDY).token_ids) == 12
    assert engine.statistics().num_held_blocks == 0


@pytest.mark.parametrize("make", [np.array, torch.tensor, tuple, lambda ids: [np.int64(i) for i in ids]])
def test_ids_may_come_in_any_sequence(make: Callable[[list[int]], Any]) -> None:
    engine = fake_engine(num_blocks=256)
    assert list(engine.generate(make([1, 2, 3]), GREEDY).token_ids) == greedy_truth([1, 2, 3], 12)
    both = engine.generate([make([1, 2, 3]), make([4])], GREEDY)
    assert [list(one.token_ids) for one in both] == [greedy_truth([1, 2, 3], 12), greedy_truth([4], 12)]


@pytest.mark.parametrize("kind", [SteppedEngine, Engine])
def test_every_prompt_may_have_a_law_and_a_constraint_of_its_own(kind: type[Engine]) -> None:
    engine = fake_engine(kind=kind)
    batch = [[1, 2, 3], [4, 5], [6]]
    all_params = [SamplingParams(max_tokens=n, n=n, temperature=1.0, seed=n) for n in (1, 3, 2)]
    constraints = [None, regex("a{3}|b{3}"), regex("[0-9]{1,2}")]
    together = engine.generate(batch, all_params, constraints)
    apart = [engine.generate([p], params, c) for p, params, c in zip(batch, all_params, constraints, strict=True)]
    assert [c.text for c in together] == [c.text for found in apart for c in found]
    assert [c.index for c in together] == [0, 0, 1, 2, 0, 1]
    assert [c.parsed for c in together[1:4]] == [c.text for c in together[1:4]] and together[0].parsed is None
    engine.close()
