"""With a draft model every request says what it says without, whatever else is asked of it, in fewer steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.runtime.config import EngineConfig
from phloem.runtime.execute.loading import LoadedModel, load
from phloem.runtime.request import SamplingParams

from ..fakes import EOS, NEVER, expect_short_answers, greedy_truth, logits_after
from ..stepped import SteppedEngine
from .drafting import DRAFTERS, PROMPTS, QUESTIONS, engine_with


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("jump", ["off", "verified", "canonical"])
def test_all_laws_say_the_same_together(drafter: str, jump: str) -> None:
    every = QUESTIONS.every(40)
    if jump == "canonical":  # which says forced text in other words
        every = [asked for asked in every if not asked.constraint]
    every = every if (drafter, jump) in (("same", "verified"), ("noisy", "verified")) else every[::8]
    engine = engine_with(
        drafter, length=4, jump=jump, num_blocks=512, max_running_requests=8, lookup_drafts=jump == "verified"
    )
    QUESTIONS.check_together(engine, every)
    statistics = engine.statistics()
    assert statistics.num_held_blocks == 0
    assert sum(statistics.drafted_by.values()) == statistics.drafted_tokens
    assert sum(statistics.jumped_by.values()) == statistics.jumped_tokens
    drafting = {source for source, number in statistics.drafted_by.items() if number}
    by_model = "mtp" if drafter == "mtp" else "model"
    if drafter != "confused":
        assert drafting - {"habit", "lookup"} == {by_model, *["forced"] * (jump == "verified")}
    if drafter == "same":
        assert statistics.jumped_tokens > statistics.completion_tokens / 2
    if drafter == "noisy":
        assert statistics.jumped_tokens > statistics.completion_tokens / 4


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_arrivals_aborts_and_forks_at_any_step_change_nothing(data: st.DataObject) -> None:
    """Over a pool that may be too small for all, so that some are preempted; in turn, and now and then ahead."""
    drafter = data.draw(st.sampled_from(sorted(DRAFTERS)))
    engine = engine_with(
        drafter,
        length=data.draw(st.sampled_from([0, 1, 7])),
        jump=data.draw(st.sampled_from(["off", "verified"])),
        lookup_drafts=data.draw(st.booleans()),
        run_ahead=data.draw(st.booleans()),
        block_size=data.draw(st.sampled_from([1, 4])),
        num_blocks=data.draw(st.sampled_from([96, 120, 256])),
        max_batch_tokens=data.draw(st.sampled_from([8, 24, 512])),
        max_draft_tokens=data.draw(st.sampled_from([1, 5, 64])),
        max_running_requests=data.draw(st.sampled_from([2, 5, 16])),
        host_memory_bytes=data.draw(st.sampled_from([0, 1 << 12])),
    )
    QUESTIONS.check_traffic(data, engine)
    assert drafter == "confused" or not engine._stepper._drafter.model.num_failed


RULES = {"allowed_token_ids": range(30, 70), "presence_penalty": 0.5}


@pytest.mark.parametrize(
    ("drafter", "temperature", "rules"),
    [("same", 0.0, {}), ("same", 1.0, {}), ("same", 0.0, RULES), ("same", 1.0, RULES), ("mtp", 1.0, RULES)],
)
def test_all_that_a_model_drafts_of_itself_is_right(drafter: str, temperature: float, rules: dict[str, Any]) -> None:
    """Greedy and sampled, through hits, chunks, forks and preemptions: its KV is that of the tokens."""
    engine = engine_with(drafter, length=3, lookup_drafts=False, jump="off", max_batch_tokens=24, num_blocks=60)
    expect_short_answers(engine)
    params = SamplingParams(max_tokens=60, temperature=temperature, seed=3, ignore_eos=True, n=2, stop=NEVER, **rules)
    for _ in range(2):
        engine.generate([list(prompt) for prompt in PROMPTS], params)
    statistics = engine.statistics()
    assert statistics.num_preemptions > 0 and not engine._stepper._drafter.model.num_failed
    assert statistics.drafted_tokens == statistics.jumped_tokens > statistics.completion_tokens / 2


@pytest.mark.parametrize("drafter", ["noisy", "other"])
@pytest.mark.parametrize("block_size", [1, 4])
def test_a_draft_model_reads_the_tokens_that_were_said(drafter: str, block_size: int) -> None:
    """Where its own drafts were wrong too, some steps later: in some steps it drafts nothing."""
    engine = engine_with(drafter, length=4, jump="off", lookup_drafts=False, num_blocks=512, block_size=block_size)
    model, num_checked = engine._stepper._drafter.model, 0
    memory, forward = model._kv.kv_cache.keys[0].view(-1), model._forward
    model._best_length = lambda request, chance, limit: min(limit, (0, 3, 0, 0, 1, 4)[request.num_tokens % 6])

    def watched(extends: Any, turns: Any) -> Any:
        nonlocal num_checked
        going = forward(extends, turns)
        for extend in extends:
            at = np.arange(extend.start + extend.num_tokens)
            slots = np.asarray(extend.request.blocks)[at // block_size] * block_size + at % block_size
            assert memory[slots].tolist() == extend.request.token_ids[: len(at)].tolist()
            num_checked += 1
        return going

    model._forward = watched
    params = SamplingParams(max_tokens=60, temperature=1.0, seed=1, ignore_eos=True)
    engine.generate([list(prompt) for prompt in PROMPTS], params)
    assert num_checked > 30


@pytest.mark.parametrize("drafter", ["noisy", "other"])
def test_samples_have_the_models_distribution(drafter: str) -> None:
    """Chi-square of three tokens, two of them drafted, out of the three likeliest each."""
    engine = engine_with(drafter, length=2, num_blocks=512, max_running_requests=64)
    prompt, count = [5, 6, 7], 1500
    params = [SamplingParams(max_tokens=4, temperature=1.0, top_k=3, seed=s, ignore_eos=True) for s in range(count)]
    found = Counter(c.token_ids[:3] for c in engine.generate([prompt] * count, params))
    assert engine.statistics().drafted_tokens > count
    chances: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(3):
        chances = {(*said, t): c * p for said, c in chances.items() for t, p in likeliest([*prompt, *said]).items()}
    assert set(found) <= set(chances)
    off = sum((found[said] - count * chance) ** 2 / (count * chance) for said, chance in chances.items())
    assert off < 54.1  # 99.9 % of chi-square with 26 degrees of freedom


def likeliest(context: list[int]) -> dict[int, float]:
    """The chances of three tokens among themselves."""
    logits = logits_after(context)
    top = np.argsort(logits)[-3:]
    weights = np.exp(logits[top] - logits[top].max())
    return dict(zip(top.tolist(), (weights / weights.sum()).tolist(), strict=True))


def test_a_model_that_fails_costs_nothing_but_drafts() -> None:
    engine = engine_with("confused", lookup_drafts=False)
    params = SamplingParams(max_tokens=40, temperature=0.0, ignore_eos=True)
    completion = engine.generate(list(PROMPTS[0]), params)
    assert list(completion.token_ids) == greedy_truth(PROMPTS[0], 40)
    assert engine.core._stepper._drafter.model is not None
    assert engine.core._stepper._drafter.model.num_failed == 1 and engine.statistics().num_recoveries == 0


def test_nothing_is_drafted_after_an_end_token() -> None:
    engine = engine_with("same", length=5, jump="off", lookup_drafts=False)
    model, drafts = engine._stepper._drafter.model, list[list[int]]()
    draft = model.draft

    def watched(turns: Any) -> None:
        draft(turns)
        drafts.extend(turn.request.draft for turn in turns)

    model.draft = watched
    often = SamplingParams(max_tokens=60, temperature=1.0, seed=1, ignore_eos=True, logit_bias={EOS: 3.0})
    engine.generate(list(PROMPTS[0]), often)
    assert any(EOS in tokens for tokens in drafts)
    assert not any(EOS in tokens[:-1] for tokens in drafts)


def test_drafts_take_up_rows_of_tables_only_while_they_are_made() -> None:
    engine, sizes = engine_with("same", length=2, jump="off", lookup_drafts=False), set()
    engine.add(list(PROMPTS[0]), SamplingParams(max_tokens=60, ignore_eos=True, frequency_penalty=0.5))
    while engine.has_work:
        engine.step()
        sizes.add(engine._stepper._drafter.model._sampler.num_table_bytes)
    assert len(sizes - {0}) == 1


def test_a_fault_empties_the_tables_of_the_draft_model() -> None:
    engine = engine_with("confused", length=2, jump="off", lookup_drafts=False)
    engine.generate(list(PROMPTS[0]), SamplingParams(max_tokens=40, ignore_eos=True, frequency_penalty=0.5))
    model = engine._stepper._drafter.model
    assert (model.num_failed, model._sampler.num_table_bytes) == (1, 0)


@pytest.fixture(scope="module")
def nano() -> Iterator[LoadedModel]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield load(EngineConfig(device="cpu", speculative_model="nano"))
    torch.set_num_threads(threads)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("kv_dtype", [torch.float32, torch.int8])
def test_the_bundled_model_says_the_same_to_the_bit_missed_and_hit(
    nano: LoadedModel, temperature: float, kv_dtype: torch.dtype
) -> None:
    params = SamplingParams(max_tokens=60, temperature=temperature, seed=1, logprobs=3, ignore_eos=True)
    document = "Tolva Brenrik, a baker, is 34 years old and lives in Marvost."
    prompts = [
        nano.tokenizer.apply_chat_template([{"role": "user", "content": text}])
        for text in (f"Repeat: {document}", f"{document}\n\nExtract the person as JSON.", "Hello", document * 3)
    ]
    found = []
    for draft_decoder, lookup_drafts in ((None, False), (nano.draft_decoder, False), (None, True)):
        config = EngineConfig(device="cpu", check_invariants=True, lookup_drafts=lookup_drafts)
        loaded = replace(nano, kv_dtype=kv_dtype, draft_decoder=draft_decoder)
        engine = SteppedEngine.from_loaded(config, loaded, stopwatch=lambda: 0.0)
        found += [engine.generate(prompts, params) for _ in range(2)]
    for completions in found:
        assert [(c.token_ids, c.text, c.logprobs) for c in completions] == [
            (c.token_ids, c.text, c.logprobs) for c in found[0]
        ]
    drafted, jumped = (
        [sum(getattr(c.usage, f"{n}_tokens") for c in completions) for completions in found]
        for n in ("drafted", "jumped")
    )
    assert drafted[0] == 0 and jumped[4] > 5
    assert drafted[2:4] == jumped[2:4] and min(drafted[2:4]) > 60
    assert all(c.usage.cached_tokens == c.usage.prompt_tokens - 1 for c in found[3])


def test_a_request_that_drops_keys_is_not_drafted_for(nano: LoadedModel) -> None:
    config = EngineConfig(device="cpu", check_invariants=True, lookup_drafts=False)
    params = SamplingParams(max_tokens=200, temperature=0.0, ignore_eos=True, kv_budget=64)
    completions = [
        SteppedEngine.from_loaded(config, replace(nano, draft_decoder=draft)).generate([1, 2, 3] * 40, params)
        for draft in (None, nano.draft_decoder)
    ]
    assert completions[0].token_ids == completions[1].token_ids
    assert completions[1].usage.drafted_tokens == 0


def test_the_pool_of_a_memory_has_fewer_blocks_with_a_draft_model(nano: LoadedModel) -> None:
    config = EngineConfig(device="cpu", kv_memory_bytes=1 << 20)
    sizes = [
        SteppedEngine.from_loaded(config, one).statistics().num_blocks
        for one in (nano, replace(nano, draft_decoder=None))
    ]
    assert sizes[0] == sizes[1] // 2
