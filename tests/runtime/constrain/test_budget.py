"""Budgets in the engine: every request that is taken ends complete, however few tokens it has."""

from __future__ import annotations

import gc
import json
import weakref

import jsonschema
import pytest

from phloem.errors import RequestError
from phloem.runtime.constrain.spec import json_schema, regex
from phloem.runtime.engine.engine import Engine
from phloem.runtime.request import FinishReason, SamplingParams

from ..fakes import fake_engine

LONG_KEYS = {
    "type": "object",
    "properties": {
        "identification_number": {"type": "integer"},
        "delivery_address": {
            "type": "object",
            "properties": {"street_and_house_number": {"type": "string"}, "postal_code": {"type": "string"}},
            "required": ["street_and_house_number", "postal_code"],
        },
        "remarks": {"type": "array", "items": {"enum": ["urgent", "fragile"]}, "minItems": 1},
    },
    "required": ["identification_number", "delivery_address", "remarks"],
}


@pytest.mark.parametrize("jump", ["off", "verified", "canonical"])
def test_every_budget_from_the_least_on_suffices(jump: str) -> None:
    engine = Engine("nano", device="cpu", jump=jump)
    spec = json_schema(LONG_KEYS)
    constraint = engine.request_factory.compile(spec)
    least = constraint.min_tokens()
    assert least < constraint.automaton.min_bytes(constraint.automaton.start) / 1.5
    for max_tokens in (*range(least, least + 12), 2 * least):
        for temperature in (0.0, 2.0):
            params = SamplingParams(max_tokens=max_tokens, temperature=temperature, seed=max_tokens)
            completion = engine.generate("An order:", params, spec)
            assert completion.finish_reason is FinishReason.STOP
            jsonschema.validate(json.loads(completion.text), LONG_KEYS)
            assert len(completion.token_ids) <= max_tokens
    with pytest.raises(RequestError, match=f"at least {least}$"):
        engine.generate("An order:", SamplingParams(max_tokens=least - 1), spec)


def test_a_text_that_can_only_end_ends_before_its_minimum() -> None:
    """`min_tokens` asks for more than the budget leaves room for: the constraint goes first."""
    for seed in range(20):
        params = SamplingParams(max_tokens=5, min_tokens=5, temperature=3.0, seed=seed)
        completion = fake_engine().generate([3, 1], params, regex("a(bbb(ccc)?)*"))
        assert completion.finish_reason is FinishReason.STOP
        assert completion.text in ("a", "abbb")


def test_nothing_keeps_the_constraint_of_a_finished_request() -> None:
    engine = fake_engine()
    constraint = engine.compiler.regex("[a-c]{3,9}")
    engine.generate([5], SamplingParams(max_tokens=9), regex("[a-c]{3,9}"))
    gone = weakref.ref(constraint)
    del constraint
    engine.compiler.clear()
    gc.collect()
    assert gone() is None
