"""Requests that keep a budget of keys and values, on a model that reads back which tokens and positions it has.

What follows is compared with a few lines of Python that hold the kept tokens in a list: whatever was cached, however it
was chunked, forked or preempted, and whatever shares the pool.
"""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.errors import RequestError
from phloem.runtime.constrain.spec import regex
from phloem.runtime.kv_policies import KV_POLICIES, WINDOW
from phloem.runtime.models.config import LayerConfig
from phloem.runtime.sampling_params import SamplingParams
from phloem.runtime.server.protocol import Generation

from ..fakes import FakeDecoder, FakeModelConfig, expect_short_answers, fake_engine
from ..traffic import Said, listen, step
from .keeping import KEPT, KeepingDecoder, keeping_engine, params_of, prompt_of, truth


def test_the_policies_are_those_that_a_request_may_name() -> None:
    assert [*KV_POLICIES] == [*KEPT] == [*get_args(Generation.model_fields["kv_policy"].annotation)]
    docs = (Path(__file__).resolve().parents[3] / "docs" / "prefix-cache.md").read_text(encoding="utf-8")
    for name in KV_POLICIES:
        assert f'`"{name}"`' in docs and f'"{name}"' in (SamplingParams.__doc__ or "")


def test_the_next_turn_is_told_that_keys_were_dropped() -> None:
    engine = keeping_engine(block_size=16, num_blocks=100)
    prompt = prompt_of(90)
    said = engine.generate(list(prompt), params_of(64, "sinks"))
    turn, one = [*prompt, *said.token_ids, 1, 2], SamplingParams(max_tokens=1)
    found = [
        engine.generate(turn, one, explain_cache=True, namespace=namespace).usage.cache_explanation
        for namespace in ("other", "")
    ]
    assert [why.reason for why in found if why is not None] == ["never_seen", "dropped"]
    assert found[1] is not None and 80 <= found[1].num_cached_tokens < len(turn) - 2
    lost = len(prompt) + len(said.token_ids) - 1 - found[1].num_cached_tokens
    assert f"of what follows {lost} tokens were computed once, but after a kv_budget" in found[1].sentence


@pytest.mark.parametrize(
    ("block_size", "prompt_len", "budget", "policy"),
    [
        (1, 300, 64, "snapkv"),
        (16, 300, 64, "sinks"),
        (16, 128, 64, "snapkv"),
        (1, 127, 64, "sinks"),
        (16, 90, 64, "snapkv"),
        (16, 90, 64, "sinks"),
        (1, 40, 64, "snapkv"),
        (16, 300, 300, "snapkv"),
        (16, 300, 64, "h2o"),
        (1, 90, 80, "h2o"),
        (16, 20, 64, "h2o"),
    ],
)
def test_kept_tokens_alone_decide(policy: str, prompt_len: int, budget: int, block_size: int) -> None:
    engine = keeping_engine(block_size=block_size, num_blocks=1600 // block_size)
    prompt = prompt_of(prompt_len)
    for _ in range(2):  # cold, then warm
        completion = engine.generate(list(prompt), params_of(budget, policy))
        assert completion.token_ids == truth(prompt, 150, budget, policy)
    assert completion.usage.cached_tokens == max(0, prompt_len - (WINDOW if policy == "h2o" else 1))
    assert (completion.token_ids == truth(prompt, 150, None, policy)) == (prompt_len + 150 <= budget * 5 // 4)
    assert engine.statistics().num_held_blocks == 0


@settings(deadline=None, max_examples=20)
@given(
    st.data(),
    st.sampled_from([1, 4, 16]),
    st.sampled_from([8, 33, 4096]),
    st.integers(1, 6),
    st.booleans(),
    st.booleans(),
)
def test_any_traffic_in_any_pool_says_the_same(
    data: st.DataObject, block_size: int, chunk: int, seats: int, cached: bool, ahead: bool
) -> None:
    engine = keeping_engine(
        block_size=block_size,
        num_blocks=data.draw(st.integers(320, 900)) // block_size,
        max_batch_tokens=chunk,
        max_running_requests=seats,
        prefix_cache=cached,
        run_ahead=ahead,
    )
    expect_short_answers(engine)
    expected: dict[str, tuple[int, ...]] = {}
    said: dict[str, Said] = {}
    for _ in range(data.draw(st.integers(1, 7))):
        prompt = prompt_of(data.draw(st.integers(1, 240)), data.draw(st.integers(0, 1)))
        budget, policy = data.draw(st.sampled_from([None, 64, 70, 128])), data.draw(st.sampled_from([*KV_POLICIES]))
        num_tokens = data.draw(st.sampled_from([1, 20, 79]))
        request_id = engine.add(list(prompt), params_of(budget, policy, num_tokens))
        expected[request_id] = truth(prompt, num_tokens, budget, policy)
        for _ in range(data.draw(st.integers(0, 30))):
            step(engine, said)
        what = data.draw(st.sampled_from(["fork", "abort", "go on", "go on"]))
        if what == "abort":
            engine.abort(request_id)
            del expected[request_id]
        elif what == "fork" and len(said.get(request_id, Said()).token_ids) < num_tokens:
            (child,) = engine.fork(
                request_id, 1, SamplingParams(max_tokens=num_tokens, temperature=0.0, ignore_eos=True)
            )
            expected[child] = expected[request_id]
    listen(engine, said)
    assert {request_id: tuple(said[request_id].token_ids) for request_id in expected} == expected
    engine.flush_cache()
    assert engine.statistics().num_free_blocks == engine.statistics().num_blocks


@pytest.mark.parametrize(("policy", "chunk"), [("snapkv", 7), ("sinks", 4096), ("h2o", 7)])
def test_preempted_requests_go_on_as_if_nothing_had_happened(policy: str, chunk: int) -> None:
    """In the prompt, after it, and after each of several compactions; with and without their prefix in the tree."""
    engine = keeping_engine(num_blocks=200, max_batch_tokens=chunk)
    prompt = prompt_of(100)
    request_id = engine.add(list(prompt), params_of(64, policy, 200))
    said = {request_id: Said()}
    when = {0, 1, 2, 30, 31, 150, 199}
    while engine.has_work:
        step(engine, said)
        length = len(said[request_id].token_ids)
        if length in when and engine._scheduler.running:
            when.remove(length)
            engine._scheduler._preempt(engine._scheduler.running[0])
            if len(when) % 2:
                engine.flush_cache()
            engine.audit()
    assert not when - {0, 1}
    assert tuple(said[request_id].token_ids) == truth(prompt, 200, 64, policy)


def test_an_output_may_be_longer_than_the_pool() -> None:
    engine = keeping_engine(num_blocks=60)
    prompt = prompt_of(200)
    assert engine.generate(list(prompt), params_of(64, "sinks", 300)).token_ids == truth(prompt, 300, 64, "sinks")
    assert len(engine.generate(list(prompt), params_of(None, "sinks", 600)).token_ids) == 40


def test_nothing_that_was_computed_behind_dropped_keys_is_cached() -> None:
    engine = keeping_engine(num_blocks=400)
    prompt = prompt_of(150)
    said = engine.generate(list(prompt), params_of(64, "sinks", 100)).token_ids
    after = [*prompt, *said, 5]
    completion = engine.generate(after, params_of(None, "sinks", 20))
    assert completion.usage.cached_tokens == 150
    assert completion.token_ids == truth(tuple(after), 20, None, "sinks")
    # what was computed before the first compaction is, though
    short = prompt_of(90)
    said = engine.generate(list(short), params_of(64, "sinks", 100)).token_ids
    assert engine.generate([*short, *said], params_of(None, "sinks", 1)).usage.cached_tokens == 128


def test_tiers_keep_the_prompt_and_nothing_behind_dropped_keys(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    engine = keeping_engine(num_blocks=100, folder=tmp_path, host_memory_bytes=1 << 20)
    prompt = prompt_of(200)
    said = engine.generate(list(prompt), params_of(64, "snapkv", 150)).token_ids
    engine.generate([9] * 390, params_of(None, "snapkv", 1))  # takes all of the pool
    assert engine.prefix_cache.tiers is not None and engine.prefix_cache.tiers.settle()
    assert engine.statistics().num_stored_blocks >= 50
    after = [*prompt, *said, 5]
    completion = engine.generate(after, params_of(None, "snapkv", 20))
    assert completion.token_ids == truth(tuple(after), 20, None, "snapkv")
    assert completion.usage.cached_tokens == completion.usage.loaded_tokens == 200


@pytest.mark.parametrize("policy", KV_POLICIES)
def test_nobody_takes_a_part_of_a_block_from_what_is_kept(policy: str) -> None:
    engine = keeping_engine(num_blocks=100, block_size=16)
    prompt = prompt_of(200)
    engine.add(list(prompt), params_of(64, policy))
    for _ in range(3):
        engine.step()
    engine.flush_cache()  # what it began with is not in the tree any more
    other = engine.add(list(prompt), params_of(None, policy, 20))
    assert tuple(listen(engine)[other].token_ids) == truth(prompt, 20, None, policy)


def test_the_prefix_is_let_go_of_and_little_is_held() -> None:
    engine = keeping_engine(num_blocks=400)
    engine.add(list(prompt_of(800)), params_of(64, "snapkv", 200))
    most = 0
    for number in range(150):
        engine.step()
        statistics = engine.statistics()
        if number > 1:
            most = max(most, statistics.num_held_blocks)
            assert statistics.num_evictable_blocks == statistics.num_cached_blocks >= 200
    assert most == 128 // 4
    assert engine.flush_cache() >= 200


def test_a_pool_seats_as_many_as_their_budgets_allow() -> None:
    """A prompt of 200 blocks that all share, and 150 more: ten requests of 32 run at once, and none is preempted."""
    engine = keeping_engine(num_blocks=400)
    ids = [engine.add(list(prompt_of(800)), params_of(64, "sinks", 250)) for _ in range(12)]
    most = 0
    while engine.has_work:
        engine.step()
        most = max(most, engine.statistics().num_running)
    assert len(ids) == 12
    assert most == 12
    assert engine.statistics().num_preemptions == 0


def test_a_budget_that_is_not_reached_costs_nothing() -> None:
    decoder = KeepingDecoder()
    engine = fake_engine(decoder=decoder, num_blocks=400)
    prompt = prompt_of(200)
    engine.generate(list(prompt), params_of(300, "snapkv", 100))
    first = engine.statistics()
    assert decoder.num_watched == 0
    other = keeping_engine(num_blocks=400)
    other.generate(list(prompt), params_of(None, "snapkv", 100))
    assert first == other.statistics()


@pytest.mark.parametrize("jump", ["verified", "canonical", "off"])
def test_forced_text_and_drafts_do_not_cross_a_compaction(jump: str) -> None:
    pattern = regex("(a{90}[b-z]{9}){2}")
    outputs = set()
    for lookups in (False, True):
        engine = keeping_engine(num_blocks=400, jump=jump, lookup_drafts=lookups)
        for _ in range(2):
            completion = engine.generate(list(prompt_of(140)), params_of(64, "h2o", 400), pattern)
            outputs.add(completion.text)
    slow = keeping_engine(num_blocks=400, jump="off", lookup_drafts=False, prefix_cache=False)
    assert outputs == {slow.generate(list(prompt_of(140)), params_of(64, "h2o", 400), pattern).text}


def test_outputs_and_forks_keep_the_budget() -> None:
    engine = keeping_engine(num_blocks=800)
    prompt = prompt_of(200)
    for completion in engine.generate(list(prompt), params_of(64, "h2o", n=3)):
        assert completion.token_ids == truth(prompt, 150, 64, "h2o")
    parent = engine.add(list(prompt), params_of(64, "h2o"))
    engine.step()
    (child,) = engine.fork(parent, 1, params_of(64, "h2o"))
    for other in (params_of(65, "h2o"), params_of(64, "sinks")):
        with pytest.raises(
            RequestError, match="kv_budget: a fork goes on with the budget of its parent, which is 64 by 'h2o'"
        ):
            engine.fork(parent, 1, other)
    assert tuple(listen(engine)[child].token_ids) == truth(prompt, 150, 64, "h2o")


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(RequestError, match="kv_budget: 63 is out of range; it must be at least 64"):
        SamplingParams(kv_budget=63)
    with pytest.raises(RequestError, match="kv_policy: 'best' is not known; it is one of 'snapkv', 'sinks', 'h2o'"):
        SamplingParams(kv_policy="best")
    with pytest.raises(RequestError, match="kv_policy: 'h2o' chooses what is kept within a kv_budget; add one"):
        SamplingParams(kv_policy="h2o")
    windows = FakeModelConfig(layers=(LayerConfig(window=100, rope=0),))
    engine = fake_engine(decoder=FakeDecoder(windows))
    with pytest.raises(RequestError, match="kv_budget: no layer of this model sees all tokens"):
        engine.add([1, 2], SamplingParams(kv_budget=64))
    wide = fake_engine(decoder=FakeDecoder(windows), max_model_len=100)
    assert wide.add([1, 2], SamplingParams(kv_budget=64))


def test_a_failing_choice_ends_its_request_alone() -> None:
    class Failing(KeepingDecoder):
        def forward(self, *args: object, **options: object) -> torch.Tensor:
            if len(args) > 6 or "watch" in options:
                raise MemoryError("no room for scores")
            return super().forward(*args, **options)  # type: ignore[arg-type]

    engine = fake_engine(decoder=Failing(), num_blocks=400)
    bad = engine.add(list(prompt_of(200)), params_of(64, "snapkv"))
    good = engine.add(list(prompt_of(200)), params_of(64, "sinks"))
    said: dict[str, list[int]] = {}
    errors = {}
    while engine.has_work:
        for delta in engine.step():
            said.setdefault(delta.request_id, []).extend(delta.token_ids)
            if delta.error is not None:
                errors[delta.request_id] = str(delta.error)
    assert errors == {bad: "the request failed: MemoryError: no room for scores"}
    assert tuple(said[good]) == truth(prompt_of(200), 150, 64, "sinks")
    engine.flush_cache()
    assert engine.statistics().num_free_blocks == engine.statistics().num_blocks


@pytest.mark.parametrize("name", ["gather", "scatter"])
@pytest.mark.parametrize("call", [1, 3])
def test_a_fault_while_keys_are_moved_costs_at_most_one_request(name: str, call: int) -> None:
    engine = fake_engine(decoder=KeepingDecoder(), num_blocks=60)
    cache, num_calls = engine.prefix_cache._kept._kv_cache, 0
    move = getattr(cache, name)

    def failing(*args: object) -> object:
        nonlocal num_calls
        num_calls += 1
        if num_calls == call:
            raise MemoryError("no room to move keys")
        return move(*args)

    setattr(cache, name, failing)
    expected = {
        engine.add(list(prompt_of(200, seed)), params_of(64, "sinks")): truth(prompt_of(200, seed), 150, 64, "sinks")
        for seed in range(3)
    }
    said: dict[str, list[int]] = {request_id: [] for request_id in expected}
    errors = set()
    while engine.has_work:
        for delta in engine.step():
            said[delta.request_id] += delta.token_ids
            if delta.error is not None:
                errors.add(delta.request_id)
        engine.audit()
    assert num_calls >= call and len(errors) == 1
    for request_id, text in expected.items():
        assert request_id in errors or tuple(said[request_id]) == text
    engine.flush_cache()
    assert engine.statistics().num_free_blocks == engine.statistics().num_blocks
