"""LongRoPE by the length of a sequence: short factors up to the original context, long ones beyond, as transformers."""

from __future__ import annotations

import random
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import phloem as ph
from phloem.runtime.config import EngineConfig
from phloem.runtime.engine.engine_core import EngineCore
from phloem.runtime.execute.loading import load
from phloem.runtime.models import resolve_model

from ..models.decoder_shapes import longrope
from ..models.oracle import Oracle, assert_likeliest, save_random_model

ORIGINAL, LONGEST = 40, 160
OPTIONS = {
    "vocab_size": 1280,
    "max_position_embeddings": LONGEST,
    "original_max_position_embeddings": ORIGINAL,
    "rope_parameters": longrope(ORIGINAL),
}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    folder = tmp_path_factory.mktemp("longrope")
    model = save_random_model(folder, "Phi3ForCausalLM", OPTIONS)
    for name in ("tokenizer.model", "tokenizer_config.json"):
        shutil.copy(resolve_model("nano") / name, folder)
    return Oracle(folder, model)


def some_prompt(length: int, seed: int = 1) -> list[int]:
    source = random.Random(seed)
    return [source.randrange(20, 1200) for _ in range(length)]


def params(max_tokens: int, **more: Any) -> ph.SamplingParams:
    return ph.SamplingParams(
        **{"max_tokens": max_tokens, "temperature": 0.0, "ignore_eos": True, "logprobs": 0, **more}
    )


def engine_of(folder: Path, **more: Any) -> ph.Engine:
    return ph.Engine(str(folder), **{"device": "cpu", "check_invariants": True, "num_blocks": 64, **more})


Said = list[tuple[int, float]]


def said(completion: ph.Completion) -> Said:
    return [(chosen.token_id, chosen.logprob) for chosen in completion.logprobs]


@pytest.mark.parametrize("length", [20, ORIGINAL - 1, ORIGINAL, ORIGINAL + 1, 60])
def test_every_token_is_that_of_transformers_at_its_length(published: Oracle, length: int) -> None:
    """Without a cache of its own transformers turns all keys by the factors of the length at that step."""
    prompt = some_prompt(length)
    with engine_of(published.folder) as engine:
        completion = engine.generate(prompt, params(30))
    answer = list(completion.token_ids)
    logits, bounds = [], []
    for num_said in range(len(answer)):
        row, bound = published.logits_and_bound(prompt + answer[:num_said])
        logits.append(row[-1])
        bounds.append(bound[-1, 0])
    assert_likeliest(torch.stack(logits), answer, torch.stack(bounds))
    expected = torch.stack(logits).log_softmax(-1)[torch.arange(len(answer)), answer]
    found = torch.tensor([chosen.logprob for chosen in completion.logprobs])
    assert ((found - expected).abs() <= 2 * torch.stack(bounds)).all()
    assert completion.usage.num_preemptions == 0


def test_no_key_of_one_kind_is_a_hit_for_the_other(published: Oracle) -> None:
    long_prompt = some_prompt(70)
    with engine_of(published.folder) as engine:
        short = engine.generate(long_prompt[:36], params(1))
        again = engine.generate(long_prompt[:36], params(1))
        assert (short.usage.cached_tokens, again.usage.cached_tokens) == (0, 35)
        first, second = (engine.generate(long_prompt, params(4)) for _ in range(2))
        assert (first.usage.cached_tokens, second.usage.cached_tokens) == (0, 69)
        assert said(first) == said(second)
        # one that grows beyond begins among the short ones, and finds the long ones when it gets there
        grown = engine.generate(long_prompt[:36], params(12))
        assert grown.usage.cached_tokens == 35
        assert said(grown) == said(engine.generate(long_prompt[:36], params(12)))
        # what was computed of it is there for the next turn, which is long
        turn = engine.generate(long_prompt[:36] + [token for token, _ in said(grown)], params(1))
        assert turn.usage.cached_tokens >= 46


@cache
def alone(folder: Path, length: int, seed: int, max_tokens: int) -> Said:
    with engine_of(folder, prefix_cache=False, lookup_drafts=False) as engine:
        return said(engine.generate(some_prompt(length, seed), params(max_tokens)))


@settings(deadline=None, max_examples=6)
@given(
    st.lists(st.tuples(st.integers(1, 80), st.integers(1, 2), st.sampled_from([3, 25])), min_size=1, max_size=5),
    st.sampled_from([1, 4, 16]),
    st.sampled_from([7, 4096]),
    st.booleans(),
    st.booleans(),
)
def test_bits_do_not_depend_on_cache_chunks_company_drafts_or_preemption(
    published: Oracle, asked: list[tuple[int, int, int]], block_size: int, chunk: int, ahead: bool, is_tight: bool
) -> None:
    num_blocks = (170 if is_tight else 900) // block_size
    with engine_of(
        published.folder, block_size=block_size, num_blocks=num_blocks, max_batch_tokens=chunk, run_ahead=ahead
    ) as engine:
        prompts = [some_prompt(length, seed) for length, seed, _ in asked]
        for _ in range(2):  # cold, then warm, and drafted from what was said
            completions = engine.generate(prompts, [params(max_tokens) for *_, max_tokens in asked])
            for (length, seed, max_tokens), completion in zip(asked, completions, strict=True):
                assert said(completion) == alone(published.folder, length, seed, max_tokens)


@pytest.mark.parametrize("length", [30, 38, ORIGINAL])
def test_drafts_end_where_other_keys_begin(published: Oracle, length: int) -> None:
    expected = alone(published.folder, length, 1, 25)
    with engine_of(published.folder) as engine:
        prediction = [token for token, _ in expected]
        completion = engine.generate(some_prompt(length), params(25), prediction=prediction)
    assert said(completion) == expected
    assert completion.usage.jumped_tokens > 15


@pytest.mark.parametrize("num_steps", [1, 4, 5, 6, 12])
def test_forks_go_on_as_their_parents(published: Oracle, num_steps: int) -> None:
    """Before, at and after the step that has one token too many."""
    config = EngineConfig(str(published.folder), device="cpu", check_invariants=True, lookup_drafts=False)
    core = EngineCore(config, load(config))
    ends: dict[str, list[int]] = {}
    parent = core.add(some_prompt(36), params(20))
    for step in range(40):
        if step == num_steps:
            (child,) = core.fork(parent)
        for delta in core.step():
            ends.setdefault(delta.request_id, []).extend(delta.token_ids)
    expected = [token for token, _ in alone(published.folder, 36, 1, 20)]
    assert ends == {parent: expected, child: expected}
    core.close()


def test_prompts_are_scored_and_pinned_by_their_length(published: Oracle) -> None:
    prompt = some_prompt(64)
    with engine_of(published.folder) as engine:
        scored = engine.generate(prompt, params(0, prompt_logprobs_from=1)).prompt_logprobs
        assert engine.pin(prompt, ttl=60).num_tokens == 64
        assert engine.pin(prompt[:32], ttl=60).num_tokens == 32
    expected, bound = published.logits_and_bound(prompt)
    expected = expected.log_softmax(-1)[torch.arange(63), prompt[1:]]
    found = torch.tensor([chosen.logprob for chosen in scored])
    assert ((found - expected).abs() <= 2 * bound[:-1, 0]).all()


@pytest.mark.parametrize(
    ("changes", "max_model_len", "expected"),
    [
        ({}, None, ORIGINAL),
        ({}, ORIGINAL, None),
        ({"rope_parameters": {**longrope(ORIGINAL), "long_factor": longrope(1)["short_factor"]}}, None, None),
    ],
    ids=["both are served", "short ones alone", "no difference"],
)
def test_only_where_both_are_served_there_are_two(
    changes: dict[str, Any], max_model_len: int | None, expected: int | None, tmp_path: Path
) -> None:
    save_random_model(tmp_path, "Phi3ForCausalLM", {**OPTIONS, **changes})
    assert load(EngineConfig(tmp_path, device="cpu", max_model_len=max_model_len)).switches_at == expected
