"""outlines' generators by this engine: every output of the bundled model is valid."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
import torch

import phloem as ph
from phloem.faces.outlines import PhloemBackend, register
from phloem.runtime.models import resolve_model

from ..schemas import random_schemas
from .peer_interfaces import OUTLINES_BACKEND, interface_of, peer

NANO = resolve_model("nano")
SCHEMAS = random_schemas(seed=34, count=4)
BUDGET = 70


@pytest.fixture(scope="module")
def model() -> Any:
    """A model as outlines has it."""
    from transformers import AutoTokenizer, LlamaForCausalLM

    weights = LlamaForCausalLM.from_pretrained(NANO, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(NANO)
    if find_spec("outlines") is not None:
        return import_module("outlines").from_transformers(weights, tokenizer)
    tokenizer.padding_side = "left"

    class Model:
        hf_tokenizer = tokenizer

        def generate_batch(self, prompts: list[str], processor: Any, **options: Any) -> list[str]:
            inputs = tokenizer(prompts, return_tensors="pt", padding=True)
            ids = weights.generate(**inputs, logits_processor=[processor], **options)
            texts: list[str] = tokenizer.batch_decode(ids[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
            return texts

    return Model()


@pytest.fixture(autouse=True)
def backends() -> Iterator[Any]:
    with peer("outlines"):
        yield import_module("outlines.backends")


def generate(model: Any, processor: Any, prompts: list[str], **options: Any) -> list[str]:
    """As a generator of outlines does."""
    processor.reset()
    texts: list[str] = model.generate_batch(prompts, processor, max_new_tokens=BUDGET, **options)
    return texts


def test_it_has_what_outlines_asks_for() -> None:
    assert interface_of(PhloemBackend, OUTLINES_BACKEND) == OUTLINES_BACKEND
    assert import_module("outlines.backends.base").BaseBackend.__abstractmethods__ == OUTLINES_BACKEND.keys()


@pytest.mark.parametrize("do_sample", [False, True])
def test_every_output_is_valid(model: Any, do_sample: bool) -> None:
    backend = PhloemBackend(model, max_new_tokens=BUDGET)
    for index, schema in enumerate(SCHEMAS[do_sample::2]):
        processor = backend.get_json_schema_logits_processor(json.dumps(schema), "" if index % 2 else None)
        for prompts in (["A person, as JSON:", "Extract:"], ["The order:"])[index:]:
            for text in generate(model, processor, prompts, do_sample=do_sample):
                jsonschema.validate(json.loads(text), schema)


def test_patterns_and_grammars(model: Any) -> None:
    backend = PhloemBackend(model, max_new_tokens=BUDGET)
    [text] = generate(model, backend.get_regex_logits_processor(r"[A-Z]{2}-\d{3}"), ["A code:"], do_sample=False)
    assert re.fullmatch(r"[A-Z]{2}-\d{3}", text)
    for grammar in ('root ::= "a" root "b" | "c"', 'start: "a" start "b" | "c"'):
        [text] = generate(model, backend.get_cfg_logits_processor(grammar), ["x"], do_sample=True)
        assert text == "a" * (len(text) // 2) + "c" + "b" * (len(text) // 2)


def test_it_is_found_by_its_name_and_others_as_before(
    model: Any, backends: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = backends._get_backend
    monkeypatch.setattr(backends, "_get_backend", before)
    register()
    register(max_new_tokens=4)
    found = backends._get_backend("phloem", model)
    assert isinstance(found, import_module("outlines.backends.base").BaseBackend)
    assert backends._get_backend("phloem", model) is found, "one vocabulary for each model"
    with pytest.raises(ph.ConfigError, match="max_new_tokens: 4 is too little"):
        found.get_regex_logits_processor("[a-z]{9}Q{9}")
    with pytest.raises(ValueError, match="Backend other not supported"):
        backends._get_backend("other", model)
    assert backends._get_backend.before_phloem is before


def test_an_outlines_that_looks_backends_up_in_another_way_is_refused(
    backends: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backends, "_get_backend", lambda model: None)
    with pytest.raises(ph.ConfigError, match="in another way than"):
        register()


def test_what_is_not_known_is_refused(model: Any) -> None:
    with pytest.raises(ph.ConfigError, match="returns, got SimpleNamespace"):
        PhloemBackend(SimpleNamespace())
    with pytest.raises(ph.ConfigError, match=r"whitespace_pattern: give None or \"\", not '\[ \]\?'"):
        PhloemBackend(model).get_json_schema_logits_processor("{}", "[ ]?")
