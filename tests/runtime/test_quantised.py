"""Quantised weights in a whole engine: nearly the text of fp32, the same text in every batch, clear refusals."""

from __future__ import annotations

import itertools

import pytest

import phloem as ph

PROMPTS = ["The invoice of", "Ada Lovelace was born in", "A table for two at", "{"]
GREEDY = ph.SamplingParams(max_tokens=24, temperature=0.0, ignore_eos=True)


def texts(prompts: list[str], **settings: object) -> list[tuple[int, ...]]:
    with ph.Engine(device="cpu", check_invariants=True, **settings) as engine:  # type: ignore[arg-type]  # as a test gives them
        return [tuple(completion.token_ids) for completion in engine.generate(prompts, GREEDY)]


def agreement(found: list[tuple[int, ...]], expected: list[tuple[int, ...]]) -> float:
    """Share of tokens before the first difference of each text."""
    pairs = [zip(f, e, strict=True) for f, e in zip(found, expected, strict=True)]
    same = [sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], both)) for both in pairs]
    return sum(same) / sum(map(len, expected))


@pytest.fixture(scope="module")
def plain() -> list[tuple[int, ...]]:
    return texts(PROMPTS)


def test_int8_weights_write_nearly_the_text_of_fp32(plain: list[tuple[int, ...]]) -> None:
    found = texts(PROMPTS, quantise="int8")
    assert agreement(found, plain) >= 0.5


def test_int8_text_does_not_depend_on_batch_or_chunks() -> None:
    together = texts(PROMPTS, quantise="int8")
    assert texts(PROMPTS, quantise="int8", max_batch_tokens=5) == together
    assert texts(PROMPTS, quantise="int8", max_running_requests=1) == together


@pytest.mark.parametrize(
    ("settings", "told"),
    [({"quantise": "int3"}, '"none", "int8"'), ({"quantise": "int8", "dtype": "bfloat16"}, 'dtype="float32"')],
    ids=["unknown", "not in bfloat16"],
)
def test_what_cannot_be_quantised_is_refused_with_the_remedy(settings: dict[str, str], told: str) -> None:
    with pytest.raises(ph.ConfigError, match=told):
        texts(["x"], **settings)
