"""Numbers at the edges of float32: refused by their names, or sampled by all paths alike."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from phloem import SamplingParams
from phloem.errors import RequestError
from phloem.kernels import ops
from phloem.kernels.cpu import sample as cpu_sample
from phloem.kernels.plain import ops as reference

from ..fakes import VOCAB_SIZE, Engine, fake_engine


@pytest.mark.parametrize("name", ["top_p", "repetition_penalty"])
def test_what_is_accepted_has_an_inverse_in_float32(name: str) -> None:
    for exponent in range(-324, 1):
        value = float(f"1e{exponent}")
        try:
            SamplingParams(**{name: value})  # type: ignore[arg-type]
        except RequestError as error:
            assert error.param == name and exponent < -30
            continue
        assert np.float32(value) > 0 and np.isfinite(np.float32(1) / np.float32(value))


FLOATS = (
    *("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias"),
)
NEAR_ONE = [1.0, *(1.0 + sign * 2.0**-bits for bits in (23, 24, 25, 52, 53) for sign in (1, -1))]
SMALL = [5e-324, 1e-320, 2.2e-308, 1e-300, 1e-46, 1.4e-45, 1e-40, 1.1754942e-38, 1.1754944e-38, 1e-30, 9.9e-31, 1e-6]
LARGE = [2.0, 2.0 + 2.0**-51, 10.0, 100.0, 3.4e38, 3.5e38, 1.7e308, float("inf")]
EXTREMES = [0.0, float("nan"), *NEAR_ONE, *SMALL, *LARGE, 1e-7, 9.999999e-7]
EXTREMES += [-value for value in EXTREMES]
PROMPT = [3, 1, 4, 1, 5]


def params_of(name: str, value: float, **others: object) -> SamplingParams:
    return SamplingParams(**{**others, name: {7: value} if name == "logit_bias" else value})  # type: ignore[arg-type]


def accepted(name: str) -> list[float]:
    """The extremes that are taken; the others are refused by the name of the parameter."""
    found = []
    for value in EXTREMES:
        try:
            params_of(name, value)
        except RequestError as error:
            assert error.param == name and str(error).startswith(f"{name}: ") and "must be" in str(error)
        else:
            found.append(value)
    return found


def sample_with_both(monkeypatch: pytest.MonkeyPatch, scale: float) -> list[int]:
    """Lets the engine sample with the fast path, and checks every row against the twin; how many rows there were."""
    counted = [0]

    def both(logits: Tensor, *arguments: object) -> tuple[Tensor, object]:
        token_ids, report = cpu_sample.sample(logits.float() * scale, *arguments)  # type: ignore[arg-type]
        expected, _ = reference.sample(logits.float() * scale, *arguments)  # type: ignore[arg-type]
        assert torch.equal(token_ids, expected) and (token_ids >= 0).all()
        counted[0] += len(token_ids)
        return token_ids, report

    monkeypatch.setattr(ops, "sample", both)
    return counted


@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30, 3e37])
def test_extremes_are_refused_or_sampled_alike_by_the_fast_path_and_the_twin(
    monkeypatch: pytest.MonkeyPatch, scale: float
) -> None:
    """Through the engine, so that numbers become float32 where they do; scale: of the logits."""
    values = {name: accepted(name) for name in FLOATS}
    assert all(values.values())
    rng, counted, engine = random.Random(1), sample_with_both(monkeypatch, scale), fake_engine(check_invariants=False)
    for name in FLOATS:
        for value in values[name]:
            engine.add(PROMPT, params_of(name, value, max_tokens=3, seed=5, logprobs=2))
    for _ in range(150):
        chosen = {name: rng.choice(values[name]) for name in rng.sample(FLOATS, rng.randint(2, 7))}
        bias = {name: {7: value, 8: -value} if name == "logit_bias" else value for name, value in chosen.items()}
        engine.add(PROMPT, SamplingParams(max_tokens=3, seed=6, logprobs=2, top_k=rng.choice([0, 5]), **bias))  # type: ignore[arg-type]
    while engine.has_work:
        for delta in engine.step():
            assert delta.error is None
            assert all(np.isfinite([one.logprob, *(value for _, value in one.top)]).all() for one in delta.logprobs)
    assert counted[0] > 800


HUGE = 10**5000  # Python writes no integer with this number of digits
ASK: dict[str, Callable[[Engine], object]] = {
    "prompt": lambda engine: engine.generate([1, HUGE]),
    "prediction": lambda engine: engine.generate([1], prediction=[-HUGE]),
    "logit_bias": lambda engine: engine.generate([1], SamplingParams(logit_bias={HUGE: 1.0})),
    "allowed_token_ids": lambda engine: engine.generate([1], SamplingParams(allowed_token_ids=(HUGE,))),
    "prompt_logprobs_from": lambda engine: engine.generate([1], SamplingParams(prompt_logprobs_from=HUGE)),
    "pin_ttl": lambda engine: engine.generate([1], pin_ttl=HUGE),
    "deadline_seconds": lambda engine: engine.generate([1], deadline_seconds=-HUGE),
    **{name: lambda engine, name=name: params_of(name, HUGE) for name in (*FLOATS, "seed", "n", "logprobs")},  # type: ignore[misc]
    **{name: lambda engine, name=name: params_of(name, -HUGE) for name in ("top_k", "min_tokens", "kv_budget")},  # type: ignore[misc]
}


@pytest.mark.parametrize("name", ASK)
def test_integers_of_any_length_are_refused_by_name(name: str) -> None:
    with pytest.raises(RequestError, match=f"^{name}: an integer of .* bits") as caught:
        ASK[name](fake_engine())
    assert caught.value.param == name


def test_a_bias_of_a_token_that_there_is_not_is_refused_before_anything_is_computed() -> None:
    with pytest.raises(RequestError, match=rf"^logit_bias: {VOCAB_SIZE} is not a token id in \[0, {VOCAB_SIZE}\)"):
        fake_engine().add([1], SamplingParams(logit_bias={0: 1.0, VOCAB_SIZE: 1.0}))
