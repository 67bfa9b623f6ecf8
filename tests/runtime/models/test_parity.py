"""The whole engine against transformers: 64 greedy tokens of random checkpoints, in chunks, batches and cache hits."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import phloem as ph
from phloem.runtime.models import resolve_model

from .decoder_shapes import LLAMA3
from .oracle import Oracle

LATENTS = {
    "kv_lora_rank": 32,
    "q_lora_rank": 24,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 16,
    "v_head_dim": 16,
    "num_key_value_heads": 4,
}
EXPERTS = {
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
    "initializer_range": 0.03,
}
# name: (transformers' model class, what differs)
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "MHA, untied": ("LlamaForCausalLM", {"num_key_value_heads": 4, "tie_word_embeddings": False}),
    "GQA, tied, llama3 rope": ("LlamaForCausalLM", {"num_key_value_heads": 2, "rope_parameters": LLAMA3}),
    "MQA, untied": ("LlamaForCausalLM", {"num_key_value_heads": 1, "tie_word_embeddings": False}),
    "side by side, windows": (
        "Cohere2ForCausalLM",
        {"num_key_value_heads": 2, "sliding_window": 24, "sliding_window_pattern": 2, "logit_scale": 1.0},
    ),
    "latents, tied": ("YoutuForCausalLM", LATENTS),
    "experts, tied": (
        "MixtralForCausalLM",
        {"num_key_value_heads": 2, "num_local_experts": 6, "num_experts_per_tok": 2},
    ),
    "experts and latents, untied": ("DeepseekV3ForCausalLM", {**LATENTS, **EXPERTS, "tie_word_embeddings": False}),
}
PROMPTS = [[5, *range(20, 90)], [5, *range(20, 90), 7], [5, *range(20, 60), 300, 301], [9], [11] * 40]


def save_confident_model(folder: Path, class_name: str, options: dict[str, Any], attention: str | None = None) -> Any:
    """transformers' model with random weights, saved with the bundled tokenizer; attention: its implementation."""
    import transformers

    model_class = getattr(transformers, class_name)
    settings = {
        "tie_word_embeddings": True,
        "num_attention_heads": 4,
        "head_dim": 16,
        "num_hidden_layers": 2,
        **options,
    }
    config = model_class.config_class(
        vocab_size=1280, hidden_size=64, intermediate_size=96,
        max_position_embeddings=512, eos_token_id=None, bos_token_id=None, **settings,
    )  # fmt: skip
    config._attn_implementation = attention
    torch.manual_seed(7)
    model = model_class(config).eval()
    for name, parameter in model.named_parameters():  # confident logits, led by the layers and not by the input
        parameter.data.mul_(8.0 if parameter.ndim >= 2 and "embed" not in name else 1.0)
    model.save_pretrained(folder)
    for name in ("tokenizer.model", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(resolve_model("nano") / name, folder)
    return model


@pytest.fixture(scope="module", params=SHAPES.values(), ids=SHAPES)
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    """A folder with random weights and the bundled tokenizer, and transformers' model."""
    folder = tmp_path_factory.mktemp("checkpoint")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers' own
        return Oracle(folder, save_confident_model(folder, *request.param))


@pytest.mark.parametrize(
    "settings",
    [{}, {"max_batch_tokens": 13, "num_blocks": 20}, {"max_running_requests": 1, "block_size": 1}],
    ids=["whole", "chunks in a small pool", "one by one"],
)
def test_greedy_text_is_transformers(checkpoint: Oracle, settings: dict[str, int]) -> None:
    params = ph.SamplingParams(max_tokens=64, temperature=0.0, ignore_eos=True)
    with ph.Engine(str(checkpoint.folder), device="cpu", check_invariants=True, **settings) as engine:
        cold, warm = (engine.generate(PROMPTS, params) for _ in range(2))
    answers = [list(completion.token_ids) for completion in cold]
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        assert len(answer) == 64
        assert len(set(answer)) > 8, "the random model only repeats itself: it proves nothing"
        checkpoint.assert_greedy(prompt, answer)
    assert [list(completion.token_ids) for completion in warm] == answers
    assert sum(completion.usage.cached_tokens for completion in warm) > 0
