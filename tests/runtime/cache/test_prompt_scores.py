"""Log-probabilities of prompts that come from the cache are those of computing everything anew, bit for bit."""

from __future__ import annotations

from array import array
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.runtime.cache.prompt_alternatives import PromptAlternatives
from phloem.runtime.cache.prompt_scores import PromptScores, keep_scores
from phloem.runtime.config import EngineConfig
from phloem.runtime.engine.engine import Engine
from phloem.runtime.execute.loading import LoadedModel, load
from phloem.runtime.request import SamplingParams, TokenLogprob

from ..fakes import fake_engine
from ..recurrent_fake import RecurrentFakeDecoder


def scoring(wanted: int, *, max_tokens: int = 0, top: int | None = None) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, temperature=0.0, prompt_logprobs_from=wanted, logprobs=top)


def engine_of(*, is_recurrent: bool, **settings: Any) -> Engine:
    return fake_engine(**({"decoder": RecurrentFakeDecoder()} if is_recurrent else {}), **settings)


@cache
def truth(
    prompt: tuple[int, ...], wanted: int, top: int | None, is_recurrent: bool = False
) -> tuple[TokenLogprob, ...]:
    engine = engine_of(is_recurrent=is_recurrent, prefix_cache=False)
    return engine.generate(list(prompt), scoring(wanted, top=top)).prompt_logprobs


@settings(deadline=None)
@given(
    st.sampled_from([1, 4, 16]),
    st.sampled_from([3, 8, 64]),
    st.sampled_from([12, 30]),
    st.lists(st.lists(st.sampled_from([1, 2]), min_size=2, max_size=20), min_size=2, max_size=3),
    st.lists(
        st.tuples(
            st.integers(0, 2),  # which prompt
            st.sampled_from([1, 1, 2, 5, 19]),  # scored from
            st.sampled_from(["score", "top", "more", "plain", "plain", "flush", "crowd"]),
        ),
        min_size=4,
        max_size=12,
    ),
    st.booleans(),
)
def test_whatever_was_asked_before_scores_are_those_of_a_cold_engine(
    block_size: int,
    max_batch_tokens: int,
    num_blocks: int,
    prompts: list[list[int]],
    asked: list[tuple[int, int, str]],
    is_recurrent: bool,
) -> None:
    engine = engine_of(
        is_recurrent=is_recurrent,
        block_size=block_size,
        num_blocks=num_blocks * 4 // block_size + 2,
        max_batch_tokens=max_batch_tokens,
    )
    for index, position, kind in asked:
        prompt = prompts[index % len(prompts)]
        wanted = min(position, len(prompt) - 1)
        if kind == "plain":
            engine.generate(prompt, SamplingParams(max_tokens=2, temperature=0.0))
        elif kind == "flush":
            engine.flush_cache()
        elif kind == "crowd":  # several at once, so that they share, wait and run out of blocks
            top = [None, 3][wanted % 2]
            params = scoring(wanted, max_tokens=12, top=top)
            completions = engine.generate([prompt, [*prompt, 3], prompt], params)
            for completion, tokens in zip(completions, (prompt, [*prompt, 3], prompt), strict=True):
                assert completion.prompt_logprobs == truth(tuple(tokens), wanted, top, is_recurrent)
        else:
            top = {"top": 2, "more": 5}.get(kind)
            assert engine.generate(prompt, scoring(wanted, top=top)).prompt_logprobs == truth(
                tuple(prompt), wanted, top, is_recurrent
            )
        engine.audit()


def test_scores_are_kept_though_keys_are_computed_again_before_them() -> None:
    """A state that is further back than the keys, and chunks that end before the first score."""
    engine = engine_of(is_recurrent=True, block_size=4, num_blocks=100, max_batch_tokens=8, state_interval=0)
    prompt = list(range(8, 48))
    for tokens in (prompt, [*prompt[:36], 99, 100]):
        assert engine.generate(tokens, scoring(20)).prompt_logprobs == truth(tuple(tokens), 20, None, True)


def test_a_chunk_that_ends_before_the_first_score_keeps_none() -> None:
    """Of a request that has been scored and computes its prompt again."""
    (request,) = fake_engine().core.prepare(list(range(40)), scoring(20))
    request.prompt_logprobs = [TokenLogprob(token_id, -1.0) for token_id in range(20, 40)]
    request.blocks, request.num_computed_tokens = array("i", range(16)), 16
    scores = PromptScores(40, 1)
    keep_scores(scores, request, 0)
    assert scores.num_bytes == 0


@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_scoring_a_prompt_again_computes_its_last_token_only(block_size: int) -> None:
    engine = fake_engine(block_size=block_size, num_blocks=80 // block_size)
    prompt = list(range(30))
    first = engine.generate(prompt, scoring(1))
    before = engine.statistics().num_computed_tokens
    again = engine.generate(prompt, scoring(1))
    assert again.prompt_logprobs == first.prompt_logprobs
    assert engine.statistics().num_computed_tokens == before + 1
    # from another place on, and of a longer prompt
    assert engine.generate(prompt, scoring(17)).prompt_logprobs == first.prompt_logprobs[16:]
    longer = engine.generate([*prompt, 7, 8], scoring(1))
    assert longer.prompt_logprobs[:29] == first.prompt_logprobs
    assert engine.statistics().num_computed_tokens == before + 2 + 3  # 29 is computed again: 7 is decided there


def test_alternatives_are_kept_as_many_as_were_asked_for() -> None:
    engine = fake_engine(num_blocks=40)
    prompt = list(range(30))

    def num_computed(top: int | None) -> int:
        before = engine.statistics().num_computed_tokens
        assert engine.generate(prompt, scoring(1, top=top)).prompt_logprobs == truth(tuple(prompt), 1, top)
        return engine.statistics().num_computed_tokens - before

    assert [num_computed(top) for top in (3, 3, 2, None, 5, 5)] == [30, 1, 1, 1, 30, 1]


def test_alternatives_take_no_more_memory_than_they_may() -> None:
    """The oldest go first; what is read is what was written, or nothing."""
    kept = PromptAlternatives(block_size=4, max_bytes=5 * 4 * 3 * 8)
    tops = [tuple((block, -float(row + k)) for k in range(3)) for block in range(8) for row in range(4)]
    for block in range(8):
        kept.write(range(8), 4 * block, tops[4 * block : 4 * block + 4])
        assert kept.num_bytes <= 5 * 4 * 3 * 8
    assert [bool(kept.read(range(8), 4 * block, 4 * block + 4, 3)) for block in range(8)] == [False] * 3 + [True] * 5
    assert kept.read(range(8), 12, 32, 3) == tops[12:]
    kept.forget(range(8))
    assert kept.num_bytes == 0 and not kept.read(range(8), 12, 32, 1)


@pytest.fixture(scope="module")
def nano() -> LoadedModel:
    return load(EngineConfig(device="cpu"))


@pytest.mark.parametrize("settings", [{}, {"block_size": 1}, {"max_batch_tokens": 33}])
def test_on_a_real_model_cached_scores_are_the_computed_ones(nano: LoadedModel, settings: dict[str, int]) -> None:
    def engine(**more: object) -> Engine:
        return Engine.from_loaded(EngineConfig(device="cpu", check_invariants=True, **settings, **more), nano)  # type: ignore[arg-type]

    text = "You read documents. Answer briefly. The lamp in room 12 is broken, and the ticket is still open."
    prompt = nano.tokenizer.encode_prompt(text)
    cold = engine(prefix_cache=False)
    warm = engine()
    warm.generate(prompt[:20], SamplingParams(max_tokens=3, temperature=0.0))
    for wanted in (5, 1, len(prompt) - 2, 5):
        expected = cold.generate(prompt, scoring(wanted)).prompt_logprobs
        assert warm.generate(prompt, scoring(wanted)).prompt_logprobs == expected
    choices = [nano.tokenizer.encode(choice) for choice in (" yes", " no", " not yet")]
    assert warm.score(prompt, choices) == warm.score(prompt, choices) == cold.score(prompt, choices)
