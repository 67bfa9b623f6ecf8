"""Fake draft models that are nearly, wholly or not at all the model, and requests that they draft for."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from phloem.runtime.constrain.spec import ConstraintSpec, json_schema, regex

from ..fakes import EOS, FakeDecoder, FakeMtpDecoder, fake_engine, logits_after
from ..stepped import SteppedEngine
from ..traffic import Questions

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string", "maxLength": 12}, "b": {"type": "array", "items": {"enum": ["to", "be"]}}},
    "required": ["a", "b"],
}
CONSTRAINTS: list[ConstraintSpec | None] = [None, regex("[a-e ]{0,30}(be|is)"), json_schema(SCHEMA)]
ALL_PARAMS: list[dict[str, Any]] = [
    {"temperature": 0.0, "ignore_eos": True},
    {"temperature": 0.8, "top_p": 0.9},
    {"temperature": 1.0, "frequency_penalty": 0.5, "repetition_penalty": 1.1, "min_tokens": 9},
    {"temperature": 0.0, "logprobs": 2, "stop": ("e t", "\x07\x07", "q")},
    {"temperature": 0.7, "top_k": 3, "logit_bias": {EOS: 4.0, 101: 2.0}, "logprobs": 0},
    {"temperature": 0.0, "prompt_logprobs_from": 1, "logprobs": 1},
    {"temperature": 1.0, "stop_token_ids": (113, 40, 7), "min_p": 0.1},
    {"temperature": 1.0, "allowed_token_ids": tuple(range(30, 70))},
]
PROMPTS = [tuple(b"to be or not to be, that is the question"), tuple(b"be or not to be"), tuple(range(20)), (7,) * 21]
QUESTIONS = Questions(PROMPTS, ALL_PARAMS, CONSTRAINTS, (30, 50))


class NoisyDecoder(FakeDecoder):
    """Believes nearly what the fake model believes."""

    def believed(self, context: list[int]) -> np.ndarray:
        noise: np.ndarray = logits_after([*context, 1])
        return logits_after(context) + 0.5 * noise


class OtherDecoder(FakeDecoder):
    """Believes something else."""

    def believed(self, context: list[int]) -> np.ndarray:
        return logits_after([*context, 2])


class ConfusedDecoder(FakeDecoder):
    """Fails now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.num_calls = 0

    def forward(self, *args: Any) -> torch.Tensor:
        self.num_calls += 1
        if self.num_calls % 3 == 0:
            raise RuntimeError("confused")
        return super().forward(*args)


DRAFTERS = {
    "same": FakeDecoder,
    "noisy": NoisyDecoder,
    "other": OtherDecoder,
    "confused": ConfusedDecoder,
    "mtp": FakeMtpDecoder,
}


def engine_with(drafter: str | None, *, length: int = 0, **settings: Any) -> SteppedEngine:
    """length: of all drafts, whether that pays or not; 0: as it pays."""
    engine: SteppedEngine = fake_engine(draft_decoder=None if drafter is None else DRAFTERS[drafter](), **settings)
    if length:
        model = engine._stepper._drafter.model
        model._best_length = lambda request, chance, limit: max(0, min(limit, length))
        model._pays = lambda *asked: True
    return engine
