"""Decoders that are written as GGUF files: one case for each family, and for what its files may say or hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np
import torch

from .decoder_cases import CASES
from .decoder_shapes import LLAMA3, QWEN2_MOE, YARN
from .gguf_files import write_model
from .gguf_keys import (
    GRANITE_KEYS,
    JOINED_QKV,
    NEXTN,
    SECTIONS,
    STREAMS,
    XIELU,
    YARN_KEYS,
    Keys,
    experts,
    grouped,
    kinds,
    latent,
    llama3,
    long_and_short,
    longrope,
    minicpm3,
    said,
    says,
    separate_experts,
    set_xielu,
)  # fmt: skip
from .oracle import Oracle, save_random_model


class GgufCase(NamedTuple):
    """Attributes:

    arch: the architecture in the file. case: of `CASES`, or transformers' class. differs: options that differ from it.
    kind: type of matrices. keys: that are added. others: part of a tensor's name -> its type.
    """

    arch: str
    case: str
    differs: dict[str, Any]
    kind: str
    keys: Keys | None = None
    others: dict[str, str] | None = None


def save_case(folder: Path, case: GgufCase) -> Any:
    """transformers' model of random numbers, as a checkpoint in the folder."""
    class_name, options = CASES.get(case.case, (case.case, {}))
    return save_random_model(folder, class_name, {**options, **case.differs})


def write_case(folder: Path, name: str) -> tuple[Path, Oracle]:
    """The file, and the model on the file's numbers."""
    case, path = GGUF_CASES[name], folder / "model.gguf"
    model = save_case(folder, case)
    with torch.no_grad():
        set_xielu(model)
        write_model(path, model, case.arch, case.kind, others=case.others, keys=case.keys)
    return path, Oracle(folder, model)


PLAIN = {"rope_type": "default", "rope_theta": 1e4}
WIDE = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4}
MINICPM3 = {**WIDE, "q_lora_rank": 32, "num_key_value_heads": 4}
MINICPM3 |= {"scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 256}  # as llama.cpp has them
EXPERTS = {**WIDE, "intermediate_size": 32}
INNER = {**WIDE, "moe_intermediate_size": 32}
TERNARY = {"hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 1}  # whole blocks of 256
KINDS = {**WIDE, "head_dim": 16, "global_head_dim": 32}
TURNED = {
    "rope_type": "longrope", "rope_theta": 1e4, "short_factor": np.linspace(1, 2, 8).tolist(),
    "long_factor": np.linspace(1.5, 2.5, 8).tolist(), "original_max_position_embeddings": 128,
}  # fmt: skip
LONGROPE = {"rope_parameters": TURNED, "original_max_position_embeddings": 128}
MSCALES = {**LONGROPE, "rope_parameters": {**TURNED, "short_mscale": 1.2, "long_mscale": 1.2}}
WIDEST = {"hidden_size": 256, "intermediate_size": 256, "num_attention_heads": 4}  # whole blocks of 256
Q4_K_M = {"attn_v": "Q6_K", "ffn_down": "Q6_K", "token_embd": "Q6_K"}
GEMMA = {**WIDE, "head_dim": 16, "tie_word_embeddings": True}
CAPPED = {"sliding_window": 9, "query_pre_attn_scalar": 16}
CAPPED |= {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0}

GGUF_CASES: dict[str, GgufCase] = {
    "llama": GgufCase("llama", "LlamaForCausalLM", WIDE, "Q4_0", others={"token_embd": "Q8_0"}),
    "llama, biases": GgufCase("llama", "LlamaForCausalLM", {**WIDE, "attention_bias": True, "mlp_bias": True}, "F16"),
    "llama 3": GgufCase("llama", "LlamaForCausalLM", {**WIDE, "rope_parameters": LLAMA3}, "BF16", llama3()),
    "llama, yarn": GgufCase("llama", "LlamaForCausalLM", {**WIDE, "rope_parameters": YARN}, "F32", YARN_KEYS),
    "llama, linear": GgufCase(
        "llama", "LlamaForCausalLM",
        {**WIDE, "rope_parameters": {"rope_type": "linear", "rope_theta": 500.0, "factor": 3.0}}, "F32",
        says(rope_scaling_type=gguf.RopeScalingType.LINEAR, rope_scaling_factor=3.0), {"attn": "Q8_0"},
    ),
    "llama, Q4_K_M": GgufCase(
        "llama", "LlamaForCausalLM", {**WIDEST, "tie_word_embeddings": True}, "Q4_K", others=Q4_K_M
    ),
    "mistral": GgufCase(
        "llama", "MistralForCausalLM", {**WIDE, "sliding_window": None}, "Q4_1", others={"output": "F16"}
    ),
    "mixtral": GgufCase("llama", "mixtral", WIDE, "Q5_0", experts(5, 2, 0), {"ffn_down": "Q8_0"}),
    "qwen2": GgufCase("qwen2", "qwen2", WIDE, "Q5_1", others={"attn_v": "Q8_0"}),
    "qwen2, Q5_K_M": GgufCase("qwen2", "qwen2", WIDEST, "Q5_K", others={**Q4_K_M, "output": "Q6_K"}),
    "qwen2moe": GgufCase(
        "qwen2moe", "Qwen2MoeForCausalLM", {**QWEN2_MOE, **INNER, "shared_expert_intermediate_size": 64}, "Q8_0",
        experts(7, 3, expert_shared_feed_forward_length=64),
    ),
    "qwen3": GgufCase("qwen3", "qwen3", {**WIDE, "head_dim": 32}, "Q8_0"),
    "qwen3moe": GgufCase("qwen3moe", "qwen3-moe", INNER, "Q4_1", experts(7, 3), {"attn": "F16"}),
    "smollm3": GgufCase(
        "smollm3", "SmolLM3ForCausalLM", {**WIDE, "num_hidden_layers": 4, "no_rope_layers": [1, 1, 1, 0]}, "Q4_0"
    ),
    "phi3": GgufCase("phi3", "Phi3ForCausalLM", {**WIDE, "sliding_window": 9}, "IQ4_NL", says(sliding_window=9)),
    "phi3, part turned": GgufCase(
        "phi3", "Phi3ForCausalLM", {**WIDE, "rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}},
        "Q4_0", says(rope_dimension_count=8),
    ),
    "phi3, longrope": GgufCase(
        "phi3", "Phi3ForCausalLM", {**WIDE, **LONGROPE}, "MXFP4", longrope(float(np.sqrt(1 + np.log(2) / np.log(128))))
    ),
    "gemma": GgufCase("gemma", "GemmaForCausalLM", GEMMA, "Q4_0", others={"token_embd": "Q8_0"}),
    "gemma2": GgufCase(
        "gemma2", "Gemma2ForCausalLM", {**GEMMA, **CAPPED}, "Q5_0",
        says(sliding_window=9, attn_logit_softcapping=5.0, final_logit_softcapping=3.0),
    ),
    "gemma3": GgufCase(
        "gemma3", "Gemma3ForCausalLM",
        {**GEMMA, "sliding_window": 9, "query_pre_attn_scalar": 16, "num_hidden_layers": 7}, "Q4_0",
        says(sliding_window=9),
    ),
    "granite": GgufCase("granite", "granite", WIDE, "Q8_0", GRANITE_KEYS),
    "granite, experts": GgufCase("granitemoe", "granite-moe", EXPERTS, "Q4_0", says(GRANITE_KEYS, experts(5, 2))),
    "granite, shared": GgufCase(
        "granitemoe", "granite-moe-shared", {**EXPERTS, "shared_intermediate_size": 64}, "Q5_0",
        says(GRANITE_KEYS, experts(5, 2, expert_shared_feed_forward_length=64)),
    ),
    "gemma3n": GgufCase(
        "gemma3n", "gemma3n", {**WIDE, "laurel_rank": 32, "hidden_size_per_layer_input": 32}, "Q8_0", STREAMS,
    ),
    "gemma4": GgufCase(
        "gemma4", "gemma4-small", {**KINDS, "hidden_size_per_layer_input": 32}, "Q8_0",
        kinds(
            [True, True, False] * 2, 4, shared_kv_layers=3, embedding_length_per_layer_input=32,
            feed_forward_length=[96] * 3 + [192] * 3,
        ),
    ),
    "gemma4, experts": GgufCase(
        "gemma4", "gemma4-moe", {**KINDS, "moe_intermediate_size": 32, "num_global_key_value_heads": 1}, "Q8_0",
        says(kinds([True, False] * 2, 4, head_count_kv=[2, 1] * 2), experts(5, 2)),
    ),
    "gemma4, experts apart": GgufCase(
        "gemma4", "gemma4-moe", {**KINDS, "moe_intermediate_size": 32, "num_global_key_value_heads": 1}, "Q8_0",
        says(kinds([True, False] * 2, 4, head_count_kv=[2, 1] * 2), experts(5, 2), separate_experts),
    ),
    "olmo2": GgufCase("olmo2", "olmo2", WIDE, "Q8_0"),
    "olmo3": GgufCase(
        "olmo2", "olmo3",
        {**WIDE, "rope_parameters": dict.fromkeys(("full_attention", "sliding_attention"), PLAIN)},
        "F16", says(sliding_window=9),
    ),
    "olmoe": GgufCase("olmoe", "olmoe", {**EXPERTS, "num_key_value_heads": 4}, "Q8_0", experts(6, 2)),
    "chatglm": GgufCase("chatglm", "glm", {**WIDE, "head_dim": 16}, "Q8_0", says(rope_dimension_count=8)),
    "chatglm, joined": GgufCase(
        "chatglm", "glm", {**WIDE, "head_dim": 16, "attention_bias": True}, "Q8_0",
        says(JOINED_QKV, rope_dimension_count=8),
    ),
    "glm4": GgufCase("glm4", "glm4", {**WIDE, "attention_bias": True}, "F16", says(rope_dimension_count=4)),
    "glm4.5": GgufCase(
        "glm4moe", "glm4.5", INNER, "Q8_0",
        says(
            NEXTN, grouped(8, 2, leading_dense_block_count=1, expert_shared_count=1), expert_weights_norm=True,
            rope_dimension_count=8,
        ),
    ),
    "cohere": GgufCase("command-r", "cohere", WIDE, "F16", says(logit_scale=0.0625)),
    "cohere2": GgufCase(
        "cohere2", "cohere2", {**WIDE, "tie_word_embeddings": True, "sliding_window_pattern": 4}, "Q8_0",
        says(logit_scale=0.0625, sliding_window=9),
    ),
    "starcoder2": GgufCase("starcoder2", "starcoder2", {**WIDE, "sliding_window": None}, "Q8_0"),
    "exaone4": GgufCase("exaone4", "exaone4", WIDE, "Q8_0", says(sliding_window=9)),
    "exaone4, no windows": GgufCase("exaone4", "exaone4-no-windows", WIDE, "F16"),
    "seed-oss": GgufCase("seed_oss", "seed-oss", WIDE, "Q8_0"),
    "ernie4.5": GgufCase("ernie4_5", "ernie4.5", WIDE, "Q8_0"),
    "ernie4.5, experts": GgufCase(
        "ernie4_5-moe", "ernie4.5-moe", {**INNER, "moe_layer_end_index": -1}, "Q8_0",
        experts(6, 2, leading_dense_block_count=1, interleave_moe_layer_step=1, expert_shared_count=2,
                 expert_shared_feed_forward_length=64),
    ),
    "hunyuan": GgufCase("hunyuan-dense", "hunyuan-dense", WIDE, "Q8_0"),
    "hunyuan, experts": GgufCase("hunyuan-moe", "hunyuan-moe", EXPERTS, "Q8_0", experts(5, 2)),
    "arcee": GgufCase("arcee", "arcee", {**WIDE, "mlp_bias": False}, "Q8_0"),
    "nemotron": GgufCase("nemotron", "nemotron", WIDE, "Q8_0", says(rope_dimension_count=8)),
    "phi2": GgufCase("phi2", "phi", {**WIDE, "num_key_value_heads": 4}, "Q8_0", says(rope_dimension_count=8)),
    "phimoe": GgufCase(
        "phimoe", "phi3.5-moe", {**EXPERTS, "router_jitter_noise": 0.01}, "Q8_0",
        experts(6, 2, sliding_window=11),
    ),
    "phimoe, longrope": GgufCase(
        "phimoe", "phi3.5-moe-longrope",
        {**EXPERTS, **MSCALES, "attention_bias": True},
        "BF16", says(longrope(1.2), experts(4, 2)),
    ),
    "bitnet": GgufCase(
        "bitnet", "bitnet", {**WIDE, **TERNARY, "hidden_act": "silu", "tie_word_embeddings": True}, "TQ2_0",
        says(rope_scaling_type=gguf.RopeScalingType.LINEAR, rope_scaling_factor=1.0),
    ),
    "bitnet, relu2": GgufCase(
        "bitnet", "bitnet", {**WIDE, "tie_word_embeddings": True}, "F16", said("hidden_activation", "relu2"),
    ),
    "gpt-neox": GgufCase(
        "gptneox", "gpt-neox", {**WIDE, "num_key_value_heads": 4}, "Q8_0",
        says(rope_dimension_count=4, parallel_residual=True),
    ),
    "gpt-neox, in turn": GgufCase(
        "gptneox", "gpt-neox", {**WIDE, "num_key_value_heads": 4, "use_parallel_residual": False}, "F16",
        says(rope_dimension_count=4, parallel_residual=False),
    ),
    "falcon-7b": GgufCase(
        "falcon", "falcon-7b", WIDE, "Q8_0",
        says(tensor_data_layout="jploski", head_count_kv=1, feed_forward_length=256),
    ),
    "falcon-40b": GgufCase(
        "falcon", "falcon-40b", {**WIDE, "bias": False, "ffn_hidden_size": 96, "tie_word_embeddings": True}, "Q8_0",
        says(tensor_data_layout="jploski", head_count_kv=2, feed_forward_length=96),
    ),
    "falcon-11b": GgufCase(
        "falcon", "falcon-11b", {**WIDE, "num_kv_heads": 2, "num_key_value_heads": 2}, "F16",
        says(tensor_data_layout="jploski", head_count_kv=2, feed_forward_length=256),
    ),
    "qwen2-vl": GgufCase("qwen2vl", "qwen2", WIDE, "Q8_0", SECTIONS),
    "qwen3-vl": GgufCase("qwen3vl", "qwen3", WIDE, "F16", SECTIONS),
    "qwen3-vl, experts": GgufCase("qwen3vlmoe", "qwen3-moe", INNER, "Q8_0", says(SECTIONS, experts(7, 3))),
    "ministral3": GgufCase(
        "mistral3", "ministral3",
        {**WIDE, "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.7, "llama_4_scaling_beta": 0.1}},
        "Q8_0", says(YARN_KEYS, rope_scaling_yarn_log_mul=0.7, attn_temperature_scale=0.1),
    ),
    "jais2": GgufCase("jais2", "jais2", WIDE, "Q8_0"),
    "stablelm": GgufCase("stablelm", "stablelm", WIDE, "Q8_0", says(rope_dimension_count=4)),
    "gpt2": GgufCase("gpt2", "gpt2", {**WIDE, "num_key_value_heads": 4}, "Q8_0", says(feed_forward_length=256)),
    "apertus": GgufCase(
        "apertus", "apertus", {**WIDE, "rope_parameters": PLAIN}, "Q8_0",
        says(**{f"xielu_{name}": values for name, values in XIELU.items()}),
    ),
    "dots1": GgufCase(
        "dots1", "dots1",
        {**INNER, "num_key_value_heads": 4, "sliding_window": None, "use_sliding_window": False}, "Q8_0",
        grouped(8, 2, leading_dense_block_count=1, expert_shared_count=1, expert_weights_norm=False),
    ),
    "minimax-m2": GgufCase("minimax-m2", "minimax-m2", EXPERTS, "Q8_0", grouped(6, 2, rope_dimension_count=8)),
    "deepseek-v2": GgufCase(
        "deepseek2", "deepseek-v2", {}, "BF16",
        says(latent(0), experts(8, 2, 24, leading_dense_block_count=1, expert_shared_count=2)),
    ),
    "deepseek-v3": GgufCase(
        "deepseek2", "deepseek-v3",
        {"routed_scaling_factor": 2.5, "rope_parameters": {**YARN, "mscale": 0.7, "mscale_all_dim": 0.7}}, "BF16",
        says(
            latent(24), YARN_KEYS, says(rope_scaling_yarn_log_mul=0.07),
            grouped(8, 2, 24, leading_dense_block_count=1, expert_shared_count=1, expert_group_count=4,
                     expert_group_used_count=2, expert_weights_scale=2.5, expert_weights_norm=True),
        ),
    ),
    "youtu": GgufCase("deepseek2", "youtu", {"tie_word_embeddings": True}, "F16", latent(24)),
    "minicpm3": GgufCase("minicpm3", "minicpm3", MINICPM3, "Q8_0", minicpm3(16)),
    "minicpm3, longrope": GgufCase(
        "minicpm3", "minicpm3-longrope", {**MINICPM3, "v_head_dim": None}, "F16",
        says(minicpm3(8), long_and_short([1.5, 2.0, 3.0, 4.0], [1.0, 1.1, 1.2, 1.3])),
    ),
    "llama4": GgufCase(
        "llama4", "llama4", {**EXPERTS, "intermediate_size_mlp": 96, "attention_chunk_size": 8192, "floor_scale": 8192},
        "Q8_0", experts(5, 1, interleave_moe_layer_step=1, feed_forward_length=96),
    ),
    "gpt-oss": GgufCase(
        "gpt-oss", "gpt-oss", {"swiglu_limit": 7.0}, "MXFP4", says(YARN_KEYS, experts(6, 3), sliding_window=9)
    ),
}  # fmt: skip
