"""`generate` of transformers under a constraint: every output is complete and valid, however it is searched for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import torch

import phloem as ph
from phloem.faces.transformers import ConstraintProcessor
from phloem.runtime.models import resolve_model

from ..schemas import random_schemas

SCHEMAS = random_schemas(seed=21, count=12)


@pytest.fixture(scope="module")
def model() -> Iterator[Any]:
    from transformers import LlamaForCausalLM

    yield LlamaForCausalLM.from_pretrained(resolve_model("nano"), dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def vocabulary() -> ph.Vocabulary:
    return ph.Vocabulary.from_folder(resolve_model("nano"))


def texts(vocabulary: ph.Vocabulary, outputs: torch.Tensor, prompt_length: int) -> list[str]:
    return [b"".join(vocabulary.tokens[t] for t in row[prompt_length:].tolist()).decode() for row in outputs]


WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "sampled": {"do_sample": True, "temperature": 1.5},
    "three of each": {"do_sample": True, "num_return_sequences": 3},
    "beams": {"do_sample": False, "num_beams": 3, "num_return_sequences": 2},
    "longer than the text": {"do_sample": False, "min_new_tokens": 12},
    "beams longer than the text": {"do_sample": False, "num_beams": 3, "min_new_tokens": 12},
}


@pytest.mark.parametrize("way", WAYS)
def test_every_output_is_valid(model: Any, vocabulary: ph.Vocabulary, way: str) -> None:
    compiler, pad = ph.Compiler(vocabulary), 0
    assert vocabulary.encode is not None
    for schema in SCHEMAS[:4]:
        constraint = compiler.json_schema(schema)
        budget = constraint.min_tokens() + 12
        prompts = [vocabulary.encode(text) for text in ("Extract:", "A person, as JSON:")]
        width = max(map(len, prompts))
        ids = torch.tensor([[pad] * (width - len(prompt)) + prompt for prompt in prompts])
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        processor = ConstraintProcessor(constraint, max_new_tokens=budget)
        outputs = model.generate(
            ids, attention_mask=mask, max_new_tokens=budget, pad_token_id=pad, logits_processor=[processor], **WAYS[way]
        )
        found = texts(vocabulary, outputs, width)
        assert len(found) == 2 * WAYS[way].get("num_return_sequences", 1)
        for text in found:
            jsonschema.validate(json.loads(text), schema)


def test_beams_that_are_sampled_may_outnumber_the_texts(model: Any, vocabulary: ph.Vocabulary) -> None:
    constraint = ph.Compiler(vocabulary).choice(["yes", "no"])
    for seed in range(5):
        torch.manual_seed(seed)
        processor = ConstraintProcessor(constraint, max_new_tokens=8)
        outputs = model.generate(
            torch.tensor([[5, 6]]),
            attention_mask=torch.ones(1, 2, dtype=torch.int64),
            max_new_tokens=8,
            num_beams=4,
            do_sample=True,
            pad_token_id=0,
            logits_processor=[processor],
        )
        assert texts(vocabulary, outputs, 2)[0] in ("yes", "no")


def test_prompts_may_have_constraints_of_their_own(model: Any, vocabulary: ph.Vocabulary) -> None:
    compiler = ph.Compiler(vocabulary)
    constraints = [compiler.choice(["yes", "no"]), compiler.regex("[0-9]{3}")]
    processor = ConstraintProcessor(constraints, max_new_tokens=8)
    ids = torch.tensor([[5, 6], [7, 8]])
    outputs = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=8, pad_token_id=0, logits_processor=[processor]
    )
    first, second = texts(vocabulary, outputs, 2)
    assert first in ("yes", "no") and second.isdecimal() and len(second) == 3


def test_assisted_generation_says_what_generation_says(model: Any, vocabulary: ph.Vocabulary) -> None:
    constraint = ph.Compiler(vocabulary).json_schema(SCHEMAS[0])
    ids, budget = torch.tensor([[5, 6, 7]]), constraint.min_tokens() + 12
    common = {"attention_mask": torch.ones_like(ids), "max_new_tokens": budget, "pad_token_id": 0, "do_sample": False}
    plain, assisted = (
        model.generate(
            ids, logits_processor=[ConstraintProcessor(constraint, max_new_tokens=budget)], **common, **extra
        )
        for extra in ({}, {"assistant_model": model})
    )
    assert texts(vocabulary, plain, 3) == texts(vocabulary, assisted, 3)


def test_too_few_tokens_are_refused(vocabulary: ph.Vocabulary) -> None:
    constraint = ph.Compiler(vocabulary).regex("[a-z]{40}Q{9}")
    with pytest.raises(ph.ConfigError, match="max_new_tokens: 3 is too little"):
        ConstraintProcessor(constraint, max_new_tokens=3)


def test_another_call_of_generate_needs_another_processor(vocabulary: ph.Vocabulary) -> None:
    processor = ConstraintProcessor(ph.Compiler(vocabulary).regex("ab"))
    scores = torch.zeros(1, vocabulary.size)
    processor(torch.tensor([[1, 2]]), scores)
    with pytest.raises(ph.ConfigError, match="a processor is for one call of generate"):
        processor(torch.tensor([[1, 2, 3, 4]]), scores)


@pytest.mark.parametrize(
    ("constraints", "options", "message"),
    [
        ([], {}, "constraints: an empty list"),
        ({"type": "object"}, {}, "constraints: expected what .* makes, got dict"),
        (dict, {}, r"constraints: .*, got the class dict; .*: dict\.model_json_schema\(\)"),
        (ph.regex("a"), {}, "constraints: expected what .* makes, got ConstraintSpec"),
        (None, {"max_new_tokens": "20"}, "max_new_tokens: give a number of tokens, not str"),
        (None, {"max_new_tokens": 9, "prompt_length": -1}, "prompt_length: give a number of tokens, 0 or more, not -1"),
    ],
)
def test_what_is_no_constraint_or_no_number_is_refused(
    constraints: Any, options: dict[str, Any], message: str, vocabulary: ph.Vocabulary
) -> None:
    given = ph.Compiler(vocabulary).regex("ab") if constraints is None else constraints
    with pytest.raises(ph.ConfigError, match=message):
        ConstraintProcessor(given, **options)


@pytest.mark.parametrize(("num_constraints", "rows", "is_fit"), [
    (1, "a", True), (1, "aaa", True), (1, "abc", False), (2, "aabb", True), (2, "abcd", False), (2, "abc", False),
    (3, "ab", False), (None, "abc", True),
])  # fmt: skip
def test_a_list_has_one_constraint_for_each_prompt(
    num_constraints: int | None, rows: str, is_fit: bool, vocabulary: ph.Vocabulary
) -> None:
    constraint = ph.Compiler(vocabulary).regex("ab")
    processor = ConstraintProcessor(constraint if num_constraints is None else [constraint] * num_constraints)
    ids, scores = torch.tensor([[5, ord(prompt)] for prompt in rows]), torch.zeros(len(rows), vocabulary.size)
    if is_fit:
        processor(ids, scores)
    else:
        with pytest.raises(ph.ConfigError, match=f"a list of {num_constraints} for {len(rows)} rows of the batch"):
            processor(ids, scores)
