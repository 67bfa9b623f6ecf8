"""What the configurations of several decoders under test have in common, in transformers' names."""

from __future__ import annotations

from typing import Any

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


def longrope(max_positions: int) -> dict[str, Any]:
    return {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0, 1.1, 1.2, 1.3],
        "long_factor": [1.5, 2.0, 3.0, 4.0],
        "original_max_position_embeddings": max_positions,
    }


GEMMA4 = {
    "head_dim": 8,
    "global_head_dim": 16,
    "num_hidden_layers": 4,
    "sliding_window": 9,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "hidden_size_per_layer_input": 0,
    "final_logit_softcapping": 3.0,
    "tie_word_embeddings": True,
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
FALCON_H1 = {
    "mamba_n_heads": 4,
    "mamba_d_ssm": 64,
    "mamba_d_state": 16,
    "mamba_d_head": 16,
    "mamba_n_groups": 2,
    "attention_in_multiplier": 0.8,
    "attention_out_multiplier": 0.6,
    "ssm_in_multiplier": 1.3,
    "ssm_out_multiplier": 0.7,
    "key_multiplier": 0.4,
    "embedding_multiplier": 3.0,
    "lm_head_multiplier": 0.3,
    "mlp_multipliers": [0.7, 0.5],
    "ssm_multipliers": [0.5, 0.6, 0.7, 0.8, 0.9],
}
NEMOTRON_H = {
    "head_dim": 16,
    "layers_block_type": ["linear_attention", "moe", "linear_attention", "full_attention", "mlp"],
    "mamba_num_heads": 4,
    "mamba_head_dim": 16,
    "ssm_state_size": 16,
    "n_groups": 2,
    "n_routed_experts": 6,
    "n_shared_experts": 1,
    "moe_intermediate_size": 24,
    "moe_shared_expert_intermediate_size": 32,
}
MAMBA2 = {"num_heads": 6, "head_dim": 16, "state_size": 16, "n_groups": 3, "intermediate_size": None}
MAMBA = {"intermediate_size": 96, "state_size": 5, "expand": 2, "hidden_size": 48}
JAMBA = {
    "num_hidden_layers": 4,
    "attn_layer_period": 3,
    "attn_layer_offset": 1,
    "expert_layer_period": 2,
    "expert_layer_offset": 1,
    "num_experts": 5,
    "num_experts_per_tok": 2,
    "mamba_dt_rank": "auto",
    "use_mamba_kernels": False,
}
KIMI = {
    **LATENT,
    "q_lora_rank": None,
    "num_hidden_layers": 4,
    "layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"],
    "linear_num_heads": 2,
    "linear_head_dim": 16,
    "num_experts": 8,
    "num_experts_per_token": 2,
    "num_shared_experts": 1,
    "moe_intermediate_size": 24,
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
LLAMA4 = {
    "head_dim": 16,
    "num_hidden_layers": 4,
    "attention_chunk_size": 16,
    "floor_scale": 16,
    "num_local_experts": 5,
    "intermediate_size": 32,
    "intermediate_size_mlp": 40,
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
GEMMA3N = {
    "num_hidden_layers": 4,
    "head_dim": 16,
    "sliding_window": 9,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "num_kv_shared_layers": 2,
    "hidden_size_per_layer_input": 16,
    "vocab_size_per_layer_input": 119,  # an id that `random_ids` has is the first beyond
    "laurel_rank": 8,
    "activation_sparsity_pattern": [0.9, 0.4, 0.0, 0.2],
    "tie_word_embeddings": True,
}
