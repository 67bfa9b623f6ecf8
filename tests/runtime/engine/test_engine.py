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

from ..fakes import EOS, expect_short_answers, fake_engine, greedy_truth
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


def test_a_small_pool_preempts_and_loses_nothing() -> None:
    engine = fake_engine(num_blocks=14)
    batch = [[i, *range(20)] for i in range(12)]
    expect_short_answers(engine)
    for prompt, completion in zip(batch, engine.generate(batch, GREEDY), strict=True):
        assert list(completion.token_ids) == greedy_truth(prompt, 12)
    assert engine.statistics().num_preemptions > 0


def test_samples_depend_on_seed_alone() -> None:
    params = SamplingParams(max_tokens=10, temperature=1.0, top_p=0.9, seed=7)
    alone = fake_engine(prefix_cache=False).generate([1, 2, 3], params)
    crowd = fake_engine(max_batch_tokens=9).generate([[5] * 9, [1, 2, 3], [1, 2]], params)
    assert alone.token_ids == crowd[1].token_ids
    other = fake_engine().generate([1, 2, 3], SamplingParams(max_tokens=10, seed=8))
    assert alone.token_ids != other.token_ids


def test_n_samples_share_the_prompt() -> None:
    engine = fake_engine()
    completions = engine.generate(list(range(41)), SamplingParams(max_tokens=5, n=4, seed=1))
    assert [c.index for c in completions] == [0, 1, 2, 3]
    assert len({c.token_ids for c in completions}) == 4
    assert [c.usage.cached_tokens for c in completions] == [0, 40, 40, 40]


def test_requests_that_arrive_together_compute_their_prefix_once() -> None:
    engine = fake_engine(num_blocks=512)
    shared = list(range(100))
    engine.generate([[*shared, i] for i in range(10)], SamplingParams(max_tokens=1, temperature=0))
    assert engine.statistics().num_computed_tokens == 101 + 9


@pytest.mark.parametrize("length", [17, 33, 41, 47, 48, 49])
def test_n_samples_share_the_last_block_too(length: int) -> None:
    engine = fake_engine(block_size=16)
    completions = engine.generate(list(range(length)), SamplingParams(max_tokens=5, n=4, seed=1))
    alone = fake_engine(block_size=16, prefix_cache=False)
    params = SamplingParams(max_tokens=5, n=4, seed=1)
    assert [c.token_ids for c in completions] == [c.token_ids for c in alone.generate(list(range(length)), params)]
    assert [c.usage.cached_tokens for c in completions] == [0, length - 1, length - 1, length - 1]


def test_cached_tokens_count_to_the_token() -> None:
    engine = fake_engine(block_size=16)
    engine.generate(list(range(100)), GREEDY)
    completion = engine.generate([*range(71), 200], GREEDY)
    assert completion.usage.cached_tokens == 71
    assert list(completion.token_ids) == greedy_truth([*range(71), 200], 12)


def test_the_next_turn_of_a_chat_computes_only_what_is_new() -> None:
    engine = fake_engine(block_size=16)
    text = list(range(5))
    for turn in range(8):
        completion = engine.generate(text, SamplingParams(max_tokens=7, temperature=0.0, ignore_eos=True))
        assert completion.usage.cached_tokens == (len(text) - 4 if turn else 0)
        text += [*completion.token_ids, 9 + turn, 11, 13]


def test_what_a_waiting_request_needs_is_evicted_last() -> None:
    engine = fake_engine(block_size=4, num_blocks=30, max_running_requests=1)
    once = SamplingParams(max_tokens=1, temperature=0.0)
    engine.generate(list(range(40)), once)
    engine.generate(list(range(100, 140)), once)
    first = engine.add(list(range(200, 250)), once, priority=1)
    second = engine.add([*range(40), 7], once)
    usage = {delta.request_id: delta.usage for _ in range(20) for delta in engine.step()}
    assert usage[first].cached_tokens == 0
    assert usage[second].cached_tokens == 40


def test_namespaces_share_nothing() -> None:
    engine = fake_engine()
    for namespace, cached in (("a", 0), ("a", 19), ("b", 0)):
        assert engine.generate(list(range(20)), GREEDY, namespace=namespace).usage.cached_tokens == cached


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


def test_deltas_concatenate_to_the_completion() -> None:
    params = SamplingParams(max_tokens=30, temperature=1.0, seed=5)
    whole = fake_engine().generate("héllo", params)
    deltas = list(fake_engine().stream("héllo", params))
    assert "".join(delta.text for delta in deltas) == whole.text
    assert tuple(token for delta in deltas for token in delta.token_ids) == whole.token_ids
    assert [delta.finish_reason for delta in deltas[:-1]] == [None] * (len(deltas) - 1)


def test_leaving_a_stream_aborts_its_request() -> None:
    engine = fake_engine()
    stream = engine.stream([1, 2, 3], GREEDY)
    next(stream)
    stream.close()
    assert not engine.has_work
    assert engine.statistics().num_held_blocks == 0


def test_a_stop_string_ends_the_text_before_it() -> None:
    free = fake_engine().generate([9], SamplingParams(max_tokens=60, temperature=0))
    stop = free.text[20:23]
    completion = fake_engine().generate([9], SamplingParams(max_tokens=60, temperature=0, stop=(stop,)))
    assert completion.text == free.text[: free.text.index(stop)]
    assert completion.finish_reason is FinishReason.STOP


def test_stop_tokens_and_minimum() -> None:
    truth = greedy_truth([4], 12)
    stopped = fake_engine().generate([4], SamplingParams(max_tokens=12, temperature=0, stop_token_ids=(truth[3],)))
    assert list(stopped.token_ids) == truth[: truth.index(truth[3]) + 1]
    later = SamplingParams(max_tokens=12, temperature=0, stop_token_ids=(truth[3],), min_tokens=12)
    assert len(fake_engine().generate([4], later).token_ids) == 12


def test_the_end_token_ends_unless_ignored() -> None:
    biased = {EOS: 100.0}
    ended = fake_engine().generate([4], SamplingParams(max_tokens=9, temperature=0, logit_bias=biased))
    assert ended.token_ids == (EOS,) and ended.finish_reason is FinishReason.STOP and ended.text == ""
    params = SamplingParams(max_tokens=9, temperature=0, logit_bias=biased, ignore_eos=True)
    assert fake_engine().generate([4], params).token_ids == (EOS,) * 9
    params = SamplingParams(max_tokens=9, temperature=0, logit_bias=biased, min_tokens=4)
    assert len(fake_engine().generate([4], params).token_ids) == 5


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


def test_prompt_logprobs_do_not_depend_on_the_cache() -> None:
    engine = fake_engine()
    prompt = list(range(30))
    cold = engine.score(prompt, [[1, 2, 3], [1, 4]])
    warm = engine.score(prompt, [[1, 2, 3], [1, 4]])
    assert [[t.token_id for t in scored] for scored in cold] == [[1, 2, 3], [1, 4]]
    assert cold == warm == fake_engine(prefix_cache=False, max_batch_tokens=3).score(prompt, [[1, 2, 3], [1, 4]])


@pytest.mark.parametrize("settings", [{"max_model_len": 20}, {"num_blocks": 2, "block_size": 16}], ids=str)
def test_an_engine_too_small_for_the_warm_up_starts_all_the_same(settings: dict[str, int]) -> None:
    engine = fake_engine(**settings)
    warm_up(engine)
    assert len(engine.generate([1, 2, 3], GREEDY).token_ids) == 12
    assert engine.statistics().num_held_blocks == 0


def test_a_stream_loses_nothing_while_something_else_is_generated() -> None:
    """Nor do requests that `step` is to report on."""
    engine = fake_engine(num_blocks=256)
    added = engine.add([9], GREEDY)
    stream = engine.stream([1], GREEDY)
    found = list(next(stream).token_ids)
    assert list(engine.generate([2], GREEDY).token_ids) == greedy_truth([2], 12)
    for delta in stream:
        engine.generate([5], SamplingParams(max_tokens=1))
        found += delta.token_ids
    assert found == greedy_truth([1], 12)
    reported = engine.step()
    while engine.has_work:
        reported += engine.step()
    assert {delta.request_id for delta in reported} == {added}
    assert [token_id for delta in reported for token_id in delta.token_ids] == greedy_truth([9], 12)


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
