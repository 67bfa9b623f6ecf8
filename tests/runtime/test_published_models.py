"""Checkpoints of few bits, in every format that is read, against transformers on the dequantised numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from phloem.runtime.models import Decoder

from .published import FORMATS, publish
from .test_models import DEEPSEEK, QWEN3_MOE, Oracle, PagedRun, random_ids

LLAMA = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4}
# name: (architecture, what differs from the tests' small model, formats)
MODELS: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "llama": ("LlamaForCausalLM", LLAMA, tuple(FORMATS)),
    "qwen2": ("Qwen2ForCausalLM", LLAMA, ("gptq", "awq")),
    "phi3": ("Phi3ForCausalLM", LLAMA, ("gptq, act-order", "fp8, blocks")),
    "odd sizes": ("LlamaForCausalLM", {}, ("gptq", "fp8, blocks", "packed, channels")),
    "qwen3-moe": ("Qwen3MoeForCausalLM", QWEN3_MOE, ("gptq", "awq", "fp8, blocks", "float, channels")),
    "deepseek-v3": ("DeepseekV3ForCausalLM", {**DEEPSEEK, "n_group": 4, "topk_group": 2}, ("fp8, blocks", "packed")),
}
CASES = [(model, form) for model, (*_, forms) in MODELS.items() for form in forms]


@pytest.mark.parametrize(("model", "form"), CASES, ids=[f"{model}, {form}" for model, form in CASES])
def test_logits_and_greedy_text_equal_transformers(model: str, form: str, tmp_path: Path) -> None:
    class_name, options, _ = MODELS[model]
    oracle = Oracle(tmp_path, publish(tmp_path, FORMATS[form], class_name, options))
    decoder = Decoder.from_folder(tmp_path, dtype=torch.float32)
    token_ids = random_ids(40)
    run = PagedRun(decoder)
    found = torch.cat([run.extend({0: chunk}) for chunk in (token_ids[:7], token_ids[7:39], token_ids[39:])])
    torch.testing.assert_close(found, oracle.logits(token_ids), atol=1e-4, rtol=1e-4)
    assert PagedRun(decoder).greedy(token_ids[:30], 64) == oracle.greedy(token_ids[:30], 64)
