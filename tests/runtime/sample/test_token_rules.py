"""Tokens that are ruled out: greedy output against a plain search over the same logits, and what cannot be kept."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.errors import RequestError
from phloem.runtime.constrain.spec import regex
from phloem.runtime.engine.async_engine import AsyncEngine
from phloem.runtime.request import FinishReason, SamplingParams

from ..fakes import EOS, fake_engine, logits_after, threaded_engine

# few tokens are allowed, so that words of them come up
LETTERS = "abc "
WORDS = st.lists(st.text("abc", min_size=1, max_size=3), max_size=4)


def plain(prompt: list[int], num_tokens: int, allowed: list[int], words: list[str], min_tokens: int) -> list[int]:
    """Token by token: the likeliest one that is allowed and ends no bad word."""
    said: list[int] = []
    barred = [text.encode() for word in words for text in (word, f" {word}")]
    while len(said) < num_tokens:
        logits = logits_after([*prompt, *said])
        for token in sorted(range(EOS + 1), key=lambda token: (-logits[token], token)):
            text = bytes([*said, token]) if token < EOS else b""
            is_bad = any(text.endswith(word) for word in barred)
            if token in allowed and not is_bad and not (token == EOS and len(said) < min_tokens):
                break
        said.append(token)
        if token == EOS:
            break
    return said


@given(st.lists(st.integers(0, 255), min_size=1, max_size=5), WORDS, st.booleans(), st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_greedy_output_is_the_likeliest_of_what_may_be_said(
    prompt: list[int], words: list[str], may_end: bool, min_tokens: int
) -> None:
    engine = fake_engine()
    # a digit is in no word: there is always something to say
    allowed = [*LETTERS.encode(), ord("0"), *([EOS] if may_end else [])]
    params = SamplingParams(
        max_tokens=12, min_tokens=min_tokens, temperature=0.0, allowed_token_ids=tuple(allowed), bad_words=tuple(words)
    )
    neighbour = SamplingParams(max_tokens=12, temperature=0.0)
    ruled, free = engine.generate([prompt, prompt], [params, neighbour])
    assert list(ruled.token_ids) == plain(prompt, 12, allowed, words, min_tokens)
    assert list(free.token_ids) == plain(prompt, 12, list(range(EOS + 1)), [], 0)


def test_samples_and_forks_keep_the_rules() -> None:
    driven = AsyncEngine(threaded_engine())
    params = SamplingParams(max_tokens=200, seed=1, allowed_token_ids=tuple(b"ab"), bad_words=("aa", "bbb"), n=3)
    try:
        texts = [completion.text for completion in driven.submit([1, 2], params).completions()]
        stream = driven.submit(
            [1, 2], SamplingParams(max_tokens=400, seed=1, allowed_token_ids=params.allowed_token_ids)
        )
        next(iter(stream))
        for child in stream.fork(2, SamplingParams(max_tokens=300, allowed_token_ids=tuple(b"b"))):
            assert set(child.result().text.lstrip("a").strip("b")) <= {"a", "b"} and child.result().text.endswith("bbb")
        stream.abort()
    finally:
        driven.stop()
    assert len(set(texts)) > 1 and all(set(text) == {"a", "b"} for text in texts)
    assert not any("aa" in text or "bbb" in text for text in texts)


@pytest.mark.parametrize(
    ("fields", "constraint", "param"),
    [
        ({"allowed_token_ids": ()}, None, "allowed_token_ids"),
        ({"allowed_token_ids": (9999,)}, None, "allowed_token_ids"),
        ({"allowed_token_ids": (-1,)}, None, "allowed_token_ids"),
        ({"allowed_token_ids": ("a",)}, None, "allowed_token_ids"),
        ({"allowed_token_ids": (97,), "bad_words": ("a",)}, None, "allowed_token_ids"),
        ({"allowed_token_ids": (97,)}, regex("a+"), "allowed_token_ids"),
        ({"bad_words": ("a",)}, regex("a+"), "bad_words"),
        ({"bad_words": (" ",)}, None, "bad_words"),
        ({"bad_words": (5,)}, None, "bad_words"),
    ],
)
def test_rules_that_cannot_be_kept_are_refused(fields: dict[str, Any], constraint: Any, param: str) -> None:
    engine = fake_engine()
    with pytest.raises(RequestError) as caught:
        engine.generate([1, 2], SamplingParams(**fields), constraint)
    assert caught.value.param == param


def test_an_output_that_has_nothing_left_to_say_fails_alone() -> None:
    engine = fake_engine()
    params = SamplingParams(max_tokens=9, allowed_token_ids=(97,), bad_words=("aaa",))
    fine = engine.add([1, 2], SamplingParams(max_tokens=9, temperature=0.0))
    stuck = engine.add([1, 2], params)
    reasons = {}
    while engine.has_work:
        for delta in engine.step():
            if delta.finish_reason is not None:
                reasons[delta.request_id] = delta.finish_reason, delta.error
    assert reasons[fine][0] in (FinishReason.LENGTH, FinishReason.STOP)
    assert reasons[stuck][0] is FinishReason.ERROR and "allow more" in str(reasons[stuck][1])
    assert engine.statistics().num_held_blocks == 0
