"""`min_tokens`: before it nothing that ends an output is chosen, and no stop string is looked for; as in vLLM."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.errors import RequestError
from phloem.runtime.constrain.spec import regex
from phloem.runtime.request import FinishReason, SamplingParams

from ..fakes import EOS, Engine, fake_engine, logits_after

LETTERS = b"abcdef"
PATTERN = "[a-f]{5,9}"
PROMPTS = st.lists(st.integers(0, 255), min_size=1, max_size=5)
STOP_TOKENS = st.sets(st.sampled_from([*LETTERS, EOS]), max_size=4)


@pytest.fixture(scope="module")
def engines() -> dict[str, Engine]:
    """By how forced text is taken; what is cached changes no token."""
    return {jump: fake_engine(jump=jump) for jump in ("off", "verified", "canonical")}


def plain(prompt: list[int], params: SamplingParams, allowed: bytes, pattern: str | None) -> list[int]:
    """Token by token: the likeliest one of `allowed` that may come (the pattern has letters only)."""
    said: list[int] = []
    while len(said) < params.max_tokens:  # type: ignore[operator]
        logits = logits_after([*prompt, *said])
        order = sorted([*allowed, EOS], key=lambda token: (-logits[token], token))
        if pattern is not None:  # the budget always suffices here
            is_whole = re.fullmatch(pattern, bytes(said).decode()) is not None
            order = [token for token in order if token != EOS or is_whole]
        if len(said) < params.min_tokens:
            others = [token for token in order if token not in (*params.stop_token_ids, EOS)]
            order = others or (order if pattern is not None else [])
        said.append(order[0])
        is_past = len(said) > params.min_tokens
        if is_past and (said[-1] in params.stop_token_ids or (said[-1] == EOS and not params.ignore_eos)):
            break
        text = bytes(token for token in said if token != EOS).decode("latin-1")
        if is_past and said[-1] != EOS and any(text.endswith(stop) for stop in params.stop):
            break
        if pattern is not None and len(text) == 9:
            break
    return said


@given(PROMPTS, STOP_TOKENS, st.sampled_from([(), ("a",), ("ab", "c")]), st.integers(0, 9), st.booleans())
@settings(max_examples=60, deadline=None)
def test_free_and_ruled_text(
    engines: dict[str, Engine],
    prompt: list[int],
    stop_tokens: set[int],
    stop: tuple[str, ...],
    min_tokens: int,
    ignore_eos: bool,
) -> None:
    params = SamplingParams(
        max_tokens=9,
        min_tokens=min_tokens,
        temperature=0.0,
        stop=stop,
        stop_token_ids=tuple(stop_tokens),
        ignore_eos=ignore_eos,
        allowed_token_ids=(*LETTERS, EOS),
    )
    assert list(engines["verified"].generate(prompt, params).token_ids) == plain(prompt, params, LETTERS, None)


@given(PROMPTS, st.sets(st.integers(0, 255), min_size=60, max_size=250), st.integers(1, 9), st.booleans())
@settings(max_examples=40, deadline=None)
def test_text_that_nothing_else_rules(
    engines: dict[str, Engine], prompt: list[int], stop_tokens: set[int], min_tokens: int, ignore_eos: bool
) -> None:
    params = SamplingParams(
        max_tokens=9,
        min_tokens=min_tokens,
        temperature=0.0,
        stop_token_ids=tuple(stop_tokens),
        ignore_eos=ignore_eos,
    )
    neighbour = SamplingParams(max_tokens=9, min_tokens=9, temperature=0.0)
    found, other = engines["verified"].generate([prompt, prompt], [params, neighbour])
    assert list(found.token_ids) == plain(prompt, params, bytes(range(256)), None)
    assert list(other.token_ids) == plain(
        prompt, neighbour, bytes(range(256)), None
    )  # its own set, not the neighbour's


@given(PROMPTS, STOP_TOKENS, st.integers(0, 9), st.sampled_from(["off", "verified", "canonical"]))
@settings(max_examples=60, deadline=None)
def test_constrained_text(
    engines: dict[str, Engine], prompt: list[int], stop_tokens: set[int], min_tokens: int, jump: str
) -> None:
    params = SamplingParams(max_tokens=12, min_tokens=min_tokens, temperature=0.0, stop_token_ids=tuple(stop_tokens))
    found = engines[jump].generate(prompt, params, regex(PATTERN))
    assert list(found.token_ids) == plain(prompt, params, LETTERS, PATTERN)


def test_a_constraint_that_leaves_only_stop_tokens_is_written_all_the_same() -> None:
    params = SamplingParams(max_tokens=9, min_tokens=4, temperature=0.0, stop_token_ids=tuple(b"ab"))
    assert fake_engine().generate([1], params, regex("abab")).text == "abab"


def test_rules_that_leave_only_the_end_are_refused_and_no_other_request_suffers() -> None:
    engine = fake_engine()
    params = SamplingParams(max_tokens=9, min_tokens=4, allowed_token_ids=tuple(b"ab"), stop_token_ids=tuple(b"ab"))
    neighbour = SamplingParams(max_tokens=9, temperature=0.0)
    expected = fake_engine().generate([2], neighbour).token_ids
    ids = [engine.add([1], params), engine.add([2], neighbour)]
    deltas = [delta for _ in range(20) for delta in engine.step()]
    [failed] = [delta for delta in deltas if delta.request_id == ids[0]]
    assert failed.finish_reason is FinishReason.ERROR and "min_tokens" in str(failed.error)
    assert tuple(t for delta in deltas if delta.request_id == ids[1] for t in delta.token_ids) == expected


@pytest.mark.parametrize("bad", [-1, 1.5, "a", None, True])
def test_a_stop_token_is_an_integer(bad: object) -> None:
    with pytest.raises(RequestError, match="stop_token_ids"):
        SamplingParams(stop_token_ids=(bad,))  # type: ignore[arg-type]
