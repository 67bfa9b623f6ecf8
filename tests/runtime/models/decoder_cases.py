"""Decoders that are compared with transformers: one case for each thing in which architectures differ."""

from __future__ import annotations

from typing import Any

from .decoder_shapes import (
    ALTERNATING,
    DEEPSEEK,
    GLM4_MOE,
    GPT_OSS,
    GRANITE,
    HUNYUAN,
    LATENT,
    LLAMA3,
    LLAMA4,
    OLMOE,
    QWEN2_MOE,
    QWEN3_MOE,
    YARN,
    longrope,
)
from .recurrent_cases import RECURRENT_CASES

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
        {"rope_parameters": longrope(256), "original_max_position_embeddings": 256},
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
    "llama4": ("Llama4ForCausalLM", LLAMA4),
    "llama4-dense-layers": (
        "Llama4ForCausalLM",
        {
            **LLAMA4,
            "interleave_moe_layer_step": 2,
            "num_experts_per_tok": 2,
            "no_rope_layer_interval": 2,
            "use_qk_norm": False,
            "attn_temperature_tuning": False,
            "attention_bias": True,
        },
    ),
    "cohere": ("CohereForCausalLM", {"tie_word_embeddings": True}),
    "cohere-norms-of-heads": ("CohereForCausalLM", {"tie_word_embeddings": True, "use_qk_norm": True}),
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
    "stablelm-side-by-side-norms-of-heads": (
        "StableLmForCausalLM",
        {"hidden_size": 96, "use_parallel_residual": True, "qk_layernorm": True},
    ),
    "phi3.5-moe": (
        "PhimoeForCausalLM",
        {
            "attention_bias": True,
            "lm_head_bias": True,
            "router_jitter_noise": 0.3,
            "num_local_experts": 6,
            "intermediate_size": 24,
            "sliding_window": 11,
        },
    ),
    "phi3.5-moe-longrope": (
        "PhimoeForCausalLM",
        {
            "num_local_experts": 4,
            "intermediate_size": 24,
            "rope_parameters": {**longrope(256), "short_mscale": 1.2, "long_mscale": 1.2},
            "original_max_position_embeddings": 256,
        },
    ),
    "falcon-7b": ("FalconForCausalLM", {"num_key_value_heads": 1}),
    "falcon-40b": (
        "FalconForCausalLM",
        {"hidden_size": 96, "new_decoder_architecture": True, "num_kv_heads": 2, "bias": True, "ffn_hidden_size": 80},
    ),
    "falcon-11b": (
        "FalconForCausalLM",
        {
            "new_decoder_architecture": True,
            "num_kv_heads": 3,
            "num_key_value_heads": 3,
            "num_ln_in_parallel_attn": 1,
        },
    ),
    "falcon-in-turn": (
        "FalconForCausalLM",
        {"multi_query": False, "num_key_value_heads": 6, "parallel_attn": False, "tie_word_embeddings": True},
    ),
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
        {**LATENT, "qk_rope_head_dim": 8, "rope_parameters": longrope(256), "original_max_position_embeddings": 256},
    ),
} | RECURRENT_CASES
