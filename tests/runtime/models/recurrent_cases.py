"""Decoders with layers that keep a state, compared with transformers as the others are."""

from __future__ import annotations

from typing import Any

from .decoder_shapes import (
    DELTA,
    FALCON_H1,
    JAMBA,
    KIMI,
    MAMBA,
    MAMBA2,
    NEMOTRON_H,
    QWEN2_MOE,
    STATE_SPACE,
)

RECURRENT_CASES: dict[str, tuple[str, dict[str, Any]]] = {
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
    "falcon-h1": ("FalconH1ForCausalLM", {**FALCON_H1, "mamba_rms_norm": True}),
    "falcon-h1-no-norm-biases": (
        "FalconH1ForCausalLM",
        {
            **FALCON_H1,
            "attention_bias": True,
            "mlp_bias": True,
            "mamba_proj_bias": True,
            "projectors_bias": True,
            "mamba_n_groups": 1,
            "mamba_conv_bias": False,
        },
    ),
    "nemotron-h": (
        "NemotronHForCausalLM",
        {**NEMOTRON_H, "n_group": 2, "topk_group": 1, "time_step_min": 0.4, "moe_latent_size": 40},
    ),
    "nemotron-h-no-experts-attention-last": (
        "NemotronHForCausalLM",
        {
            **NEMOTRON_H,
            "layers_block_type": ["mlp", "linear_attention", "full_attention"],
            "use_bias": True,
            "mlp_bias": True,
        },
    ),
    "bamba": (
        "BambaForCausalLM",
        {
            "num_hidden_layers": 3,
            "attn_layer_indices": [1],
            "mamba_n_heads": 6,
            "mamba_d_state": 16,
            "mamba_n_groups": 3,
            "attention_bias": True,
        },
    ),
    "mamba2": ("Mamba2ForCausalLM", MAMBA2),
    "mamba2-tied-biases": (
        "Mamba2ForCausalLM",
        {**MAMBA2, "n_groups": 1, "use_bias": True, "use_conv_bias": False, "tie_word_embeddings": True},
    ),
    "mamba": ("MambaForCausalLM", {**MAMBA, "use_bias": True}),
    "falcon-mamba": ("FalconMambaForCausalLM", {**MAMBA, "time_step_rank": 7, "mixer_rms_eps": 0.25}),
    "jamba": ("JambaForCausalLM", JAMBA),
    "lfm2-moe": (
        "Lfm2MoeForCausalLM",
        {
            "num_hidden_layers": 4,
            "layer_types": ["conv", "full_attention", "conv", "conv"],
            "num_dense_layers": 1,
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 24,
            "tie_word_embeddings": True,
        },
    ),
    "kimi-linear": ("KimiLinearForCausalLM", {**KIMI, "num_expert_group": 4, "topk_group": 2}),
    "minimax": (
        "MiniMaxForCausalLM",
        {
            "num_hidden_layers": 4,
            "layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"],
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "intermediate_size": 24,
            "block_size": 16,
            "linear_attn_alpha_factor": 1.7,
            "full_attn_alpha_factor": 1.3,
            "mlp_alpha_factor": 1.9,
            "mlp_beta_factor": 0.8,
        },
    ),
}
