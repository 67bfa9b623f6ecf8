"""The decoder against transformers: random checkpoints of every architecture, through chunks, pages and batches."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from phloem.kernels import ops
from phloem.kernels.state_rounds import ZEROS, StateRounds, plan_states
from phloem.runtime.execute.recurrent_states import RecurrentStates
from phloem.runtime.models import Decoder, ModelConfig, resolve_model
from phloem.runtime.models.decoder import StateStep
from phloem.runtime.tokenizer.tokenizer import Tokenizer

SMALL: dict[str, Any] = {
    "vocab_size": 131,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": None,
    "pad_token_id": None,
    "tie_word_embeddings": False,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}


def _longrope(max_positions: int) -> dict[str, Any]:
    return {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0, 1.1, 1.2, 1.3],
        "long_factor": [1.5, 2.0, 3.0, 4.0],
        "original_max_position_embeddings": max_positions,
    }


LATENT = {
    "kv_lora_rank": 32,
    "q_lora_rank": 24,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 16,
    "v_head_dim": 8,
    "num_key_value_heads": 6,
}

QWEN3_MOE = {"head_dim": 16, "num_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 24}
DEEPSEEK = {
    **LATENT,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "first_k_dense_replace": 1,
}

QWEN2_MOE = {
    "num_experts": 7,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 40,
}
OLMOE = {"num_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 24}
GPT_OSS = {
    "head_dim": 16,
    "num_local_experts": 6,
    "num_experts_per_tok": 3,
    "intermediate_size": 32,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "sliding_window": 9,
    "rope_parameters": {**YARN, "truncate": False},
    # small enough that the clamp is met
    "swiglu_limit": 0.7,
}

DELTA = {
    "head_dim": 16,
    "num_hidden_layers": 4,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 24,
    "layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"],
}

STATE_SPACE = {
    "num_hidden_layers": 4,
    "num_local_experts": 0,
    "shared_intermediate_size": 40,
    "mamba_n_heads": 6,
    "mamba_d_state": 16,
    "mamba_d_head": 16,
    "layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"],
}

ALTERNATING = {"num_hidden_layers": 4, "sliding_window": 9}
GLM4_MOE = {
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
    "head_dim": 16,
}
HUNYUAN = {"head_dim": 16, "pad_token_id": 0, "eod_token_id": 3}
GRANITE = {
    "embedding_multiplier": 3.0,
    "attention_multiplier": 0.2,
    "residual_multiplier": 0.4,
    "logits_scaling": 6.0,
    "num_local_experts": 5,
    "num_experts_per_tok": 2,
    "intermediate_size": 24,
}

# name: (transformers' model class, what differs from SMALL)
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-gqa": ("LlamaForCausalLM", {}),
    "llama-mha-tied": ("LlamaForCausalLM", {"num_key_value_heads": 6, "tie_word_embeddings": True}),
    "llama-mqa": ("LlamaForCausalLM", {"num_key_value_heads": 1}),
    "llama-biases": ("LlamaForCausalLM", {"attention_bias": True, "mlp_bias": True}),
    "llama-head-dim": ("LlamaForCausalLM", {"head_dim": 16}),
    "llama-rope-llama3": ("LlamaForCausalLM", {"rope_parameters": LLAMA3}),
    "llama-rope-linear": (
        "LlamaForCausalLM",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 500.0, "factor": 3.0}},
    ),
    "llama-rope-dynamic": (
        "LlamaForCausalLM",
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
    ),
    "llama-rope-yarn": ("LlamaForCausalLM", {"rope_parameters": YARN}),
    "llama-rope-yarn-mscale": (
        "LlamaForCausalLM",
        {"rope_parameters": {**YARN, "mscale": 0.7, "mscale_all_dim": 0.3, "beta_fast": 16.0, "truncate": False}},
    ),
    "mistral": ("MistralForCausalLM", {"sliding_window": None}),
    "mistral-window": ("MistralForCausalLM", {"sliding_window": 13}),
    "qwen2": ("Qwen2ForCausalLM", {}),
    "qwen2-window": (
        "Qwen2ForCausalLM",
        {"use_sliding_window": True, "sliding_window": 11, "max_window_layers": 1},
    ),
    "qwen3": ("Qwen3ForCausalLM", {"head_dim": 16}),
    "smollm3": ("SmolLM3ForCausalLM", {"no_rope_layers": [1, 0]}),
    "phi3": ("Phi3ForCausalLM", {}),
    "phi3-partial-window": (
        "Phi3ForCausalLM",
        {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}, "sliding_window": 17},
    ),
    "phi3-longrope-short": (
        "Phi3ForCausalLM",
        {"rope_parameters": _longrope(256), "original_max_position_embeddings": 256},
    ),
    "gemma": ("GemmaForCausalLM", {"head_dim": 8, "tie_word_embeddings": True}),
    "gemma2": (
        "Gemma2ForCausalLM",
        {
            "head_dim": 16,
            "sliding_window": 9,
            "query_pre_attn_scalar": 20,
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 3.0,
            "tie_word_embeddings": True,
        },
    ),
    "gemma3": (
        "Gemma3ForCausalLM",
        {"head_dim": 16, "sliding_window": 9, "query_pre_attn_scalar": 20, "tie_word_embeddings": True},
    ),
    "granite": (
        "GraniteForCausalLM",
        {
            "embedding_multiplier": 3.0,
            "attention_multiplier": 0.2,
            "residual_multiplier": 0.4,
            "logits_scaling": 6.0,
            "tie_word_embeddings": True,
        },
    ),
    "granite-biases": ("GraniteForCausalLM", {"attention_bias": True, "mlp_bias": True}),
    "olmo2": ("Olmo2ForCausalLM", {}),
    "olmo2-biases": ("Olmo2ForCausalLM", {"attention_bias": True, "num_key_value_heads": 6}),
    "olmo3": (
        "Olmo3ForCausalLM",
        {
            "num_hidden_layers": 4,
            "sliding_window": 9,
            "rope_parameters": {
                "full_attention": YARN,
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
        },
    ),
    "glm": ("GlmForCausalLM", {"head_dim": 8, "eos_token_id": [7]}),
    "glm4": (
        "Glm4ForCausalLM",
        {
            "head_dim": 16,
            "eos_token_id": [7],
            "rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.25},
        },
    ),
    "glm4-whole-heads-no-biases": (
        "Glm4ForCausalLM",
        {
            "head_dim": 8,
            "eos_token_id": [7, 9],
            "attention_bias": False,
            "rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 1.0},
        },
    ),
    "youtu": ("YoutuForCausalLM", LATENT),
    "youtu-odd-sizes-biases": (
        "YoutuForCausalLM",
        {**LATENT, "kv_lora_rank": 10, "qk_rope_head_dim": 6, "v_head_dim": 7, "attention_bias": True},
    ),
    "youtu-whole-queries": (
        "YoutuForCausalLM",
        {**LATENT, "q_lora_rank": None, "rope_interleave": False, "attention_bias": True},
    ),
    "youtu-yarn": (
        "YoutuForCausalLM",
        {**LATENT, "rope_parameters": {**YARN, "mscale": 0.7, "mscale_all_dim": 0.9}, "tie_word_embeddings": True},
    ),
    "mixtral": ("MixtralForCausalLM", {"num_local_experts": 5, "num_experts_per_tok": 2}),
    "qwen3-moe": ("Qwen3MoeForCausalLM", {**QWEN3_MOE, "norm_topk_prob": True}),
    "qwen3-moe-dense-layer": ("Qwen3MoeForCausalLM", {**QWEN3_MOE, "mlp_only_layers": [0]}),
    "deepseek-v2": ("DeepseekV2ForCausalLM", {**DEEPSEEK, "q_lora_rank": None, "n_shared_experts": 2}),
    "deepseek-v2-groups": (
        "DeepseekV2ForCausalLM",
        {
            **DEEPSEEK,
            "topk_method": "group_limited_greedy",
            "n_group": 4,
            "topk_group": 2,
            "routed_scaling_factor": 3.0,
        },
    ),
    "deepseek-v3": ("DeepseekV3ForCausalLM", {**DEEPSEEK, "n_group": 4, "topk_group": 2}),
    "qwen2-moe": ("Qwen2MoeForCausalLM", QWEN2_MOE),
    "qwen2-moe-normalised-no-bias": ("Qwen2MoeForCausalLM", {**QWEN2_MOE, "norm_topk_prob": True, "qkv_bias": False}),
    "qwen2-moe-dense-layers-window": (
        "Qwen2MoeForCausalLM",
        {
            **QWEN2_MOE,
            "num_hidden_layers": 4,
            "decoder_sparse_step": 2,
            "mlp_only_layers": [3],
            "use_sliding_window": True,
            "sliding_window": 11,
            "max_window_layers": 2,
        },
    ),
    "olmoe": ("OlmoeForCausalLM", OLMOE),
    "olmoe-normalised-biases": ("OlmoeForCausalLM", {**OLMOE, "norm_topk_prob": True, "attention_bias": True}),
    "gpt-oss": ("GptOssForCausalLM", GPT_OSS),
    "gpt-oss-all-full": (
        "GptOssForCausalLM",
        {**GPT_OSS, "layer_types": ["full_attention"] * 3, "num_experts_per_tok": 1, "swiglu_limit": 7.0},
    ),
    "lfm2": (
        "Lfm2ForCausalLM",
        {
            "num_hidden_layers": 4,
            "layer_types": ["conv", "full_attention", "conv", "conv"],
            "block_multiple_of": 16,
            "eos_token_id": [7],
        },
    ),
    "lfm2-biases-attention-last": (
        "Lfm2ForCausalLM",
        {
            "layer_types": ["conv", "full_attention"],
            "conv_bias": True,
            "conv_L_cache": 4,
            "block_auto_adjust_ff_dim": False,
            "eos_token_id": [7],
            "tie_word_embeddings": True,
        },
    ),
    "qwen3-next": ("Qwen3NextForCausalLM", {**QWEN2_MOE, **DELTA}),
    "qwen3-next-attention-last-dense-layer": (
        "Qwen3NextForCausalLM",
        {**QWEN2_MOE, **DELTA, "layer_types": None, "mlp_only_layers": [1], "linear_num_key_heads": 4},
    ),
    "qwen3.5": ("Qwen3_5ForCausalLM", DELTA),
    "granite-hybrid": (
        "GraniteMoeHybridForCausalLM",
        {
            **STATE_SPACE,
            "embedding_multiplier": 3.0,
            "attention_multiplier": 0.2,
            "residual_multiplier": 0.4,
            "logits_scaling": 6.0,
        },
    ),
    "granite-hybrid-experts": (
        "GraniteMoeHybridForCausalLM",
        {**STATE_SPACE, "num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 24},
    ),
    "qwen3.5-moe": ("Qwen3_5MoeForCausalLM", {**QWEN2_MOE, **DELTA}),
    "granite-hybrid-groups-rope-biases": (
        "GraniteMoeHybridForCausalLM",
        {
            **STATE_SPACE,
            "mamba_n_groups": 3,
            "mamba_proj_bias": True,
            "position_embedding_type": "rope",
            "time_step_limit": (0.1, 0.9),
            "layer_types": ["linear_attention", "full_attention"],
            "num_hidden_layers": 2,
        },
    ),
    "cohere": ("CohereForCausalLM", {"tie_word_embeddings": True}),
    "cohere-biases": ("CohereForCausalLM", {"attention_bias": True, "logit_scale": 0.3}),
    "cohere2": ("Cohere2ForCausalLM", {**ALTERNATING, "head_dim": 16, "sliding_window_pattern": 2}),
    "starcoder2": ("Starcoder2ForCausalLM", {"sliding_window": 9}),
    "starcoder2-no-biases-tied": ("Starcoder2ForCausalLM", {"use_bias": False, "tie_word_embeddings": True}),
    "exaone4": ("Exaone4ForCausalLM", {**ALTERNATING, "sliding_window_pattern": 4, "head_dim": 16}),
    "exaone4-no-windows": (
        "Exaone4ForCausalLM",
        {"sliding_window": None, "layer_types": ["full_attention"] * 2, "tie_word_embeddings": True},
    ),
    "seed-oss": ("SeedOssForCausalLM", {"head_dim": 16}),
    "seed-oss-all-biases": ("SeedOssForCausalLM", {"head_dim": 16, "attention_out_bias": True, "mlp_bias": True}),
    "ernie4.5": ("Ernie4_5ForCausalLM", {"head_dim": 16, "tie_word_embeddings": True}),
    "ernie4.5-biases": ("Ernie4_5ForCausalLM", {"head_dim": 8, "use_bias": True}),
    "ernie4.5-moe": (
        "Ernie4_5_MoeForCausalLM",
        {
            "num_hidden_layers": 4,
            "moe_num_experts": 6,
            "moe_k": 2,
            "moe_num_shared_experts": 2,
            "moe_intermediate_size": 24,
            "moe_layer_start_index": 1,
            "moe_layer_end_index": 2,
        },
    ),
    "hunyuan-dense": ("HunYuanDenseV1ForCausalLM", HUNYUAN),
    "hunyuan-dense-longer-base": (
        "HunYuanDenseV1ForCausalLM",
        {**HUNYUAN, "rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "alpha": 50.0, "factor": 1.0}},
    ),
    "hunyuan-moe": (
        "HunYuanMoEV1ForCausalLM",
        {**HUNYUAN, "num_experts": 5, "moe_topk": [2, 2], "intermediate_size": 32},
    ),
    "apertus": ("ApertusForCausalLM", {"head_dim": 16, "num_hidden_layers": 3}),
    "arcee": ("ArceeForCausalLM", {"head_dim": 16, "mlp_bias": True}),
    "nemotron": ("NemotronForCausalLM", {"head_dim": 16}),
    "nemotron-biases": ("NemotronForCausalLM", {"head_dim": 16, "attention_bias": True, "mlp_bias": True}),
    "phi": ("PhiForCausalLM", {"num_key_value_heads": 6}),
    "gpt-neox": ("GPTNeoXForCausalLM", {"num_key_value_heads": None, "hidden_size": 96}),
    "gpt-neox-in-turn-no-biases": (
        "GPTNeoXForCausalLM",
        {"num_key_value_heads": None, "hidden_size": 96, "use_parallel_residual": False, "attention_bias": False},
    ),
    "stablelm": ("StableLmForCausalLM", {"use_qkv_bias": True, "hidden_size": 96}),
    "helium": ("HeliumForCausalLM", {"head_dim": 8}),
    "ministral": ("MinistralForCausalLM", {"head_dim": 16, "sliding_window": 9}),
    "ministral3": (
        "Ministral3ForCausalLM",
        {
            "head_dim": 16,
            "rope_parameters": {**YARN, "llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 16},
        },
    ),
    "glm4.5": ("Glm4MoeForCausalLM", {**GLM4_MOE, "attention_bias": True, "use_qk_norm": True}),
    "glm4.5-air-groups": (
        "Glm4MoeForCausalLM",
        {**GLM4_MOE, "n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5},
    ),
    "glm4.7-flash": ("Glm4MoeLiteForCausalLM", {**DEEPSEEK, "n_group": 1, "topk_group": 1, "num_hidden_layers": 3}),
    "solar-open": ("SolarOpenForCausalLM", {**GLM4_MOE, "first_k_dense_replace": None}),
    "cwm": ("CwmForCausalLM", {**ALTERNATING, "head_dim": 16, "rope_parameters": LLAMA3, "eos_token_id": [7]}),
    "vaultgemma": (
        "VaultGemmaForCausalLM",
        {"head_dim": 16, "sliding_window": 9, "query_pre_attn_scalar": 20, "tie_word_embeddings": True},
    ),
    "jais2": ("Jais2ForCausalLM", {"head_dim": 16}),
    "dots1": ("Dots1ForCausalLM", {**GLM4_MOE, "sliding_window": 9, "max_window_layers": 1}),
    "minimax-m2": (
        "MiniMaxM2ForCausalLM",
        {"head_dim": 16, "rotary_dim": 8, "num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 24},
    ),
    "granite-moe": ("GraniteMoeForCausalLM", {**GRANITE, "tie_word_embeddings": True}),
    "granite-moe-shared": ("GraniteMoeSharedForCausalLM", {**GRANITE, "shared_intermediate_size": 40}),
    "minicpm3": ("MiniCPM3ForCausalLM", {**LATENT, "scale_emb": 3, "dim_model_base": 16, "v_head_dim": None}),
    "minicpm3-longrope": (
        "MiniCPM3ForCausalLM",
        {**LATENT, "qk_rope_head_dim": 8, "rope_parameters": _longrope(256), "original_max_position_embeddings": 256},
    ),
}


@dataclass(frozen=True)
class Oracle:
    folder: Path
    model: Any

    def logits(self, token_ids: list[int]) -> torch.Tensor:
        with torch.inference_mode():
            result: torch.Tensor = self.model(torch.tensor([token_ids])).logits[0]
        return result

    def logits_and_bound(self, token_ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """`[T, V]`, and how far apart two orders of fp32 sums may bring those of each row, `[T, 1]`.

        Rounding in a sum of n products is the same as exact sums of operands that are off by n eps at most (Higham,
        Accuracy and Stability of Numerical Algorithms, section 3.1). What the model makes of that is measured: all of
        its weights are moved by a small share, up or down at random, and the change is scaled.
        """
        expected, share, depth = self.logits(token_ids), 2.0**-14, len(token_ids)
        source, kept = torch.Generator().manual_seed(1), []
        with torch.no_grad():
            for parameter in self.model.parameters():
                kept.append(parameter.clone())
                depth = max(depth, parameter.shape[-1])
                parameter *= 1 + share * (2 * torch.randint(2, parameter.shape, generator=source) - 1)
            moved = self.logits(token_ids)
            for parameter, before in zip(self.model.parameters(), kept, strict=True):
                parameter.copy_(before)
        change = (moved - expected).abs().amax(-1, keepdim=True)
        return expected, change * (depth * torch.finfo(torch.float32).eps / share)

    def assert_logits(self, found: torch.Tensor, token_ids: list[int], rows: slice = slice(None)) -> None:
        """`found` are the logits of these rows, but for rounding."""
        expected, bound = (each[rows] for each in self.logits_and_bound(token_ids))
        assert found.shape == expected.shape
        most = float(((found - expected).abs() / bound).max())
        assert most <= 1.0, f"{most:.3g} times as far off as rounding explains"

    def assert_greedy(self, prompt: list[int], answer: list[int]) -> None:
        """Every token of the answer is the likeliest after those before it.

        Where two are equally likely but for rounding, either is right: which comes out depends on the order of sums.
        """
        logits, bound = (each[len(prompt) - 1 :] for each in self.logits_and_bound([*prompt, *answer[:-1]]))
        assert_likeliest(logits, answer, bound[:, 0])


def assert_likeliest(logits: torch.Tensor, answer: list[int], bound: torch.Tensor) -> None:
    """`answer[i]` has the largest logit of row i, each of which may be off by `bound[i]`."""
    chosen = logits.gather(1, torch.tensor(answer)[:, None])[:, 0]
    assert (logits.amax(1) - chosen <= 2 * bound).all()


def save_random_model(folder: Path, class_name: str, options: dict[str, Any], **saving: Any) -> Any:
    """A checkpoint of transformers' own making, with every parameter random, norms and biases too."""
    with warnings.catch_warnings():
        # transformers and the libraries it probes for warn of their own deprecations on import
        warnings.simplefilter("ignore")
        import transformers
    logging.getLogger("transformers").setLevel(logging.ERROR)
    torch.manual_seed(sum(map(ord, class_name + str(options))))
    model_class = getattr(transformers, class_name)
    config = model_class.config_class(**{**SMALL, **options})
    model = model_class(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm = "norm" in name
            parameter.normal_(mean=float(is_norm and "gemma" not in config.model_type), std=0.25)
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.normal_(std=0.25)
    model.generation_config.pad_token_id = 0
    model.save_pretrained(folder, **saving)
    return model


@pytest.fixture(scope="module", params=CASES)
def oracle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    class_name, options = CASES[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Oracle(folder, save_random_model(folder, class_name, options))
    torch.set_num_threads(threads)


class PagedRun:
    """Sequences over one paged cache, with block tables in random order: what an engine does, by hand."""

    def __init__(self, decoder: Decoder, num_sequences: int = 1, block_size: int = 4, max_len: int = 192) -> None:
        config = decoder.config
        blocks_each = -(-max_len // block_size)
        shape = (num_sequences * blocks_each, config.num_kv_heads, block_size, config.head_dim)
        order = np.random.default_rng(7).permutation(shape[0]).astype(np.int32)
        self.decoder, self.block_size = decoder, block_size
        # garbage in unwritten slots must not show
        self.keys = [torch.full(shape, 1e4, dtype=decoder.dtype) for _ in range(config.num_kv_layers)]
        self.values = [torch.full(shape, 1e4, dtype=decoder.dtype) for _ in range(config.num_kv_layers)]
        self.key_scales = self.value_scales = [None] * config.num_kv_layers
        self.states = None
        if config.recurrent is not None:
            self.states = RecurrentStates(config, 2 * num_sequences, torch.device("cpu"))
            for tensor in chain.from_iterable(self.states.layers):
                tensor.fill_(1e4)
        self.slots = [ZEROS] * num_sequences  # of the states of sequences, which go back and forth
        self.tables = order.reshape(num_sequences, blocks_each)
        self.lens = [0] * num_sequences

    def extend(self, chunks: dict[int, list[int]], rows: list[int] | None = None) -> torch.Tensor:
        """Appends each sequence's chunk in one step; logits of `rows` (None: all)."""
        config, sequences = self.decoder.config, list(chunks)
        positions = [np.arange(self.lens[s], self.lens[s] + len(chunks[s])) for s in sequences]
        slots = [
            self.tables[s][p // self.block_size] * self.block_size + p % self.block_size
            for s, p in zip(sequences, positions, strict=True)
        ]
        for s in sequences:
            self.lens[s] += len(chunks[s])
        states = {}
        if self.states is not None:
            states["recurrent"] = StateStep(self.states.layers, self._rounds(chunks))
        plan = ops.plan_attention(
            np.cumsum([0, *(len(chunks[s]) for s in sequences)], dtype=np.int32),
            np.array([self.lens[s] for s in sequences], dtype=np.int32),
            self.tables[sequences],
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            block_size=self.block_size,
            device="cpu",
        )
        return self.decoder.forward(
            torch.tensor([t for s in sequences for t in chunks[s]]),
            torch.from_numpy(np.concatenate(positions)).long(),
            self,
            plan,
            torch.from_numpy(np.concatenate(slots)).long(),
            None if rows is None else torch.tensor(rows, dtype=torch.long),
            **states,
        )

    def _rounds(self, chunks: dict[int, list[int]]) -> StateRounds:
        segments, end = [], 0
        for s, chunk in chunks.items():
            written = 2 * s + (self.slots[s] + 1) % 2
            segments.append([end, end + len(chunk), self.slots[s], written])
            self.slots[s], end = written, end + len(chunk)
        return plan_states([np.array(segments, np.int64)], torch.device("cpu"))

    def greedy(self, prompt: list[int], num_tokens: int) -> list[int]:
        self.extend({0: prompt[:5]}, rows=[])
        logits = self.extend({0: prompt[5:]}, rows=[len(prompt) - 6])
        answer = [int(logits[0].argmax())]
        while len(answer) < num_tokens:
            answer.append(int(self.extend({0: answer[-1:]})[0].argmax()))
        return answer


def random_ids(num_tokens: int, seed: int = 0) -> list[int]:
    return [int(t) for t in np.random.default_rng(seed).integers(0, SMALL["vocab_size"], num_tokens)]


def test_logits_and_greedy_text_equal_transformers(oracle: Oracle) -> None:
    decoder = Decoder.from_folder(oracle.folder)
    token_ids = random_ids(60)
    run = PagedRun(decoder)
    chunks = [token_ids[:1], token_ids[1:20], token_ids[20:53], *([t] for t in token_ids[53:])]
    found = torch.cat([run.extend({0: chunk}) for chunk in chunks])
    oracle.assert_logits(found, token_ids)

    oracle.assert_greedy(token_ids[:30], PagedRun(decoder).greedy(token_ids[:30], 64))


def test_a_ragged_batch_computes_what_each_sequence_alone_would(oracle: Oracle) -> None:
    decoder = Decoder.from_folder(oracle.folder)
    sequences = {0: random_ids(9, 1), 1: random_ids(1, 2), 2: random_ids(33, 3)}
    run = PagedRun(decoder, num_sequences=3)
    first = run.extend({0: sequences[0][:4], 2: sequences[2][:32]}, rows=[3, 35])
    assert first.shape == (2, SMALL["vocab_size"])
    second = run.extend({2: sequences[2][32:], 0: sequences[0][4:], 1: sequences[1]}, rows=[0, 5, 6])
    for row, sequence in zip(second, (2, 0, 1), strict=True):
        oracle.assert_logits(row[None], sequences[sequence], slice(-1, None))


def test_a_tokens_logits_are_the_same_bits_however_it_was_computed(oracle: Oracle) -> None:
    """Alone or in a batch, one chunk or many, decode or prefill: not nearly equal, equal."""
    decoder = Decoder.from_folder(oracle.folder)
    token_ids = random_ids(40)
    run = PagedRun(decoder)
    expected = torch.cat([run.extend({0: [token]}) for token in token_ids])
    for cuts in ([40], [1, 40], [17, 23, 39, 40], [2, 5, 9, 14, 40]):
        run = PagedRun(decoder)
        chunks = [token_ids[begin:end] for begin, end in zip([0, *cuts], cuts, strict=False)]
        assert torch.equal(torch.cat([run.extend({0: chunk}) for chunk in chunks]), expected)
    others = {sequence: random_ids(3 * sequence, sequence) for sequence in range(1, 9)}
    run = PagedRun(decoder, num_sequences=9)
    run.extend({**others, 0: token_ids[:39]}, rows=[])
    found = run.extend({3: [5, 6], 0: token_ids[39:], 4: [7]}, rows=[2])
    assert torch.equal(found, expected[39:])


# LayerNorm, attention beside the MLP, MLPs without a gate, norms after rope, layers without positions
BLOCKS = [
    "llama-gqa",
    "cohere2",
    "starcoder2",
    "exaone4",
    "hunyuan-dense",
    "apertus",
    "gpt-neox",
    "glm4.5",
    "ministral3",
]


@pytest.mark.parametrize("case", BLOCKS)
def test_bf16_is_as_near_to_fp32_as_it_is_in_transformers(tmp_path: Path, case: str) -> None:
    model, token_ids = save_random_model(tmp_path, *CASES[case]), random_ids(40)
    expected = Oracle(tmp_path, model).logits(token_ids)
    found = PagedRun(Decoder.from_folder(tmp_path, dtype=torch.bfloat16)).extend({0: token_ids})
    theirs = Oracle(tmp_path, model.to(torch.bfloat16)).logits(token_ids)
    assert (found.float() - expected).norm() < 1.5 * (theirs.float() - expected).norm()


@pytest.mark.parametrize("prompt", ["Hello, who is there?", "12 <|end|> jackets", "Grüße 東京"])
def test_the_bundled_model_writes_the_same_text_in_transformers(prompt: str) -> None:
    folder = resolve_model("nano")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import LlamaForCausalLM
    oracle = Oracle(folder, LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval())
    token_ids = Tokenizer.from_folder(folder).apply_chat_template([{"role": "user", "content": prompt}])
    decoder = Decoder.from_folder(folder, dtype=torch.float32)
    oracle.assert_logits(PagedRun(decoder).extend({0: token_ids}), token_ids)
    oracle.assert_greedy(token_ids, PagedRun(decoder).greedy(token_ids, 64))


def test_the_configuration_is_read_as_transformers_means_it(oracle: Oracle) -> None:
    config, theirs = ModelConfig.from_folder(oracle.folder), oracle.model.config
    assert config.num_layers == theirs.num_hidden_layers
    latent = config.latent
    if latent is None:
        assert config.num_kv_heads == getattr(theirs, "num_key_value_heads", None) or theirs.num_attention_heads
        assert config.head_dim == getattr(theirs, "head_dim", None) or theirs.hidden_size // theirs.num_attention_heads
    else:
        assert config.head_dim == theirs.kv_lora_rank + theirs.qk_rope_head_dim
        assert (latent.plain_dim, latent.value_dim) == (theirs.qk_nope_head_dim, theirs.v_head_dim)
        assert latent.query_rank == (theirs.q_lora_rank or 0)
    assert config.tie_word_embeddings == theirs.tie_word_embeddings
    assert config.eos_ids == tuple(theirs.eos_token_id or ())
