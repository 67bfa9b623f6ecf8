"""GGUF files of families whose tensors are named by the `gguf` package: against transformers on the same numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from phloem.runtime.capacity.planner import plan
from phloem.runtime.models import Decoder

from .decoder_cases import CASES
from .decoder_shapes import LATENT, YARN
from .gguf_files import joins, write_model
from .oracle import Oracle, PagedRun, random_ids, save_random_model

PLAIN = {"rope_type": "default", "rope_theta": 1e4}
WIDE = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4}
MINICPM3 = {**WIDE, "q_lora_rank": 32, "num_key_value_heads": 4}
MINICPM3 |= {"scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 256}  # as llama.cpp has them
EXPERTS = {**WIDE, "intermediate_size": 32}
INNER = {**WIDE, "moe_intermediate_size": 32}
TERNARY = {"hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 1}  # whole blocks of 256
KINDS = {**WIDE, "head_dim": 16, "global_head_dim": 32}
MSCALES = {
    "rope_type": "longrope", "rope_theta": 1e4, "short_mscale": 1.2, "long_mscale": 1.2,
    "short_factor": np.linspace(1, 2, 8).tolist(), "long_factor": np.linspace(1.5, 2.5, 8).tolist(),
    "original_max_position_embeddings": 128,
}  # fmt: skip
HYBRID = {**WIDE, "mamba_n_heads": 4, "mamba_d_head": 32, "shared_intermediate_size": 96}
MULTIPLIERS = {"embedding_multiplier": 3.0, "attention_multiplier": 0.2}
MULTIPLIERS |= {"residual_multiplier": 0.4, "logits_scaling": 6.0}
XIELU = {"alpha_p": [0.4, -0.3, 0.1], "alpha_n": [0.2, 0.7, -0.5], "beta": [0.5] * 3, "eps": [-1e-6] * 3}


def set_xielu(model: torch.nn.Module) -> None:
    """The numbers of all layers, which a file has in its keys."""
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if ".act_fn." in name:
            tensor.fill_(XIELU[name.rpartition(".")[2]][int(name.split(".")[2])])


def _granite(writer: Any) -> None:
    writer.add_embedding_scale(3.0)
    writer.add_attention_scale(0.2)
    writer.add_residual_scale(0.4)
    writer.add_logit_scale(6.0)


def _states(writer: Any) -> None:
    writer.add_feed_forward_length(96)
    writer.add_ssm_conv_kernel(4)
    writer.add_ssm_inner_size(128)
    writer.add_ssm_state_size(16)
    writer.add_ssm_time_step_rank(4)
    writer.add_ssm_group_count(1)
    writer.add_head_count_kv([0, 0, 2, 0])
    writer.add_rope_scaling_finetuned(False)


def _rope(writer: Any) -> None:
    writer.add_feed_forward_length(32)
    writer.add_rope_scaling_finetuned(True)


def _turned(dims: int) -> Any:
    return lambda writer: writer.add_rope_dimension_count(dims)


def _experts(count: int, used: int, inner: int = 32, **more: Any) -> Any:
    def add(writer: Any) -> None:
        writer.add_expert_count(count)
        writer.add_expert_used_count(used)
        writer.add_expert_feed_forward_length(inner)
        for name, value in more.items():
            getattr(writer, f"add_{name}")(value)

    return add


def _grouped(count: int, used: int, inner: int = 32, **more: Any) -> Any:
    return _experts(count, used, inner, expert_gating_func=gguf.ExpertGatingFuncType.SIGMOID, **more)


def _dense_width(writer: Any) -> None:
    writer.add_feed_forward_length(96)


def _lfm2(writer: Any) -> None:
    writer.add_feed_forward_length(64)  # as `Lfm2MLP` works it out
    writer.add_shortconv_l_cache(3)
    writer.add_head_count_kv([0, 2, 0, 0])


def _latent(query_rank: int) -> Any:
    """One head, as wide as the latents; those of queries and values are said apart."""

    def add(writer: Any) -> None:
        writer.add_head_count_kv(1)
        if query_rank:
            writer.add_q_lora_rank(query_rank)
        writer.add_kv_lora_rank(LATENT["kv_lora_rank"])
        writer.add_key_length(LATENT["kv_lora_rank"] + LATENT["qk_rope_head_dim"])
        writer.add_value_length(LATENT["kv_lora_rank"])
        writer.add_key_length_mla(LATENT["qk_nope_head_dim"] + LATENT["qk_rope_head_dim"])
        writer.add_value_length_mla(LATENT["v_head_dim"])
        writer.add_rope_dimension_count(LATENT["qk_rope_head_dim"])

    return add


def _yarn_of_latents(writer: Any) -> None:
    _yarn(writer)
    writer.add_rope_scaling_yarn_log_mul(0.07)


def _nextn(writer: Any) -> None:
    """A layer more, which predicts the token after the next."""
    writer.add_block_count(3)
    writer.add_nextn_predict_layers(1)
    writer.add_tensor("blk.2.nextn.eh_proj.weight", np.zeros((64, 128), np.float32))


def _streams(writer: Any) -> None:
    """What the converter writes of Gemma 3n, but for logits' caps, which llama.cpp knows."""
    writer.add_sliding_window(9)
    writer.add_sliding_window_pattern([True, False, True, False])
    writer.add_altup_active_idx(0)
    writer.add_altup_num_inputs(4)
    writer.add_embedding_length_per_layer_input(32)
    writer.add_shared_kv_layers(2)
    shares = torch.tensor([0.9, 0.4, 0.0, 0.2])
    writer.add_activation_sparsity_scale(torch.distributions.normal.Normal(0, 1).icdf(shares).tolist())


def _xielu(writer: Any) -> None:
    """As the model has them: see `test_logits_and_greedy_text_equal_transformers`."""
    for name, values in XIELU.items():
        getattr(writer, f"add_xielu_{name}")(values)


def _kinds(slides: list[bool], turned: int, **more: Any) -> Any:
    """What the converter writes of Gemma 4: layers with a window have heads of 16, and others of 32, half of which turn
    in `turned` pairs."""

    def add(writer: Any) -> None:
        writer.add_sliding_window(9)
        writer.add_sliding_window_pattern(slides)
        writer.add_final_logit_softcapping(3.0)
        for end, dim in (("", 32), ("_swa", 16)):
            getattr(writer, f"add_key_length{end}")(dim)
            getattr(writer, f"add_value_length{end}")(dim)
            getattr(writer, f"add_rope_dimension_count{end}")(dim)
        writer.add_rope_freq_base_swa(1e4)
        writer.add_tensor("rope_freqs.weight", np.array([1.0] * turned + [1e30] * (16 - turned), np.float32))
        for name, value in {"shared_kv_layers": 0, "embedding_length_per_layer_input": 0, **more}.items():
            getattr(writer, f"add_{name}")(value)

    return add


def _side_by_side(writer: Any) -> None:
    _turned(4)(writer)
    writer.add_parallel_residual(True)


def _in_turn(writer: Any) -> None:
    _turned(4)(writer)
    writer.add_parallel_residual(False)


def _sections(writer: Any) -> None:
    writer.add_rope_dimension_sections([3, 3, 2, 0])
    writer.add_num_deepstack_layers(3)


def _ministral(writer: Any) -> None:
    _yarn(writer)
    writer.add_rope_scaling_yarn_log_mul(0.7)
    writer.add_attn_temperature_scale(0.1)


def _falcon(heads: int, width: int) -> Any:
    def add(writer: Any) -> None:
        writer.add_tensor_data_layout("jploski")
        writer.add_head_count_kv(heads)
        writer.add_feed_forward_length(width)

    return add


def _longrope(writer: Any) -> None:
    writer.add_rope_dimension_count(16)
    writer.add_rope_scaling_orig_ctx_len(128)
    writer.add_rope_scaling_attn_factors(1.2)
    _long_and_short(np.linspace(1.5, 2.5, 8), np.linspace(1, 2, 8))(writer)


def _long_and_short(long: Any, short: Any) -> Any:
    def add(writer: Any) -> None:
        for which, factors in (("long", long), ("short", short)):
            writer.add_tensor(f"rope_factors_{which}.weight", np.array(factors, np.float32))

    return add


def _plain_scaling(writer: Any) -> None:
    writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
    writer.add_rope_scaling_factor(1.0)


def _inner(writer: Any) -> None:
    writer.add_feed_forward_length(256)


def _minicpm3(turned: int) -> Any:
    """What the converter writes, which is neither how wide value heads are nor the factors."""

    def add(writer: Any) -> None:
        writer.add_q_lora_rank(32)
        writer.add_kv_lora_rank(LATENT["kv_lora_rank"])
        writer.add_key_length(LATENT["qk_nope_head_dim"] + turned)
        del writer.kv_data[0]["minicpm3.attention.value_length"]
        writer.add_rope_dimension_count(turned)

    return add


def _joined_qkv(writer: Any) -> None:
    """Queries, keys and values become one tensor, as those of ChatGLM's own checkpoints are."""
    joins(writer, r"(attn_)[qkv](\.\w+)", r"\1qkv\2", 3, 0)


def _separate_experts(writer: Any) -> None:
    """Gates and up projections of experts become two tensors."""
    add = writer.add_tensor

    def add_tensor(name: str, data: np.ndarray[Any, Any], **kinds: Any) -> None:
        parts = ("gate", "up") if "gate_up_exps" in name else ("gate_up",)
        for part, rows in zip(parts, np.split(data, len(parts), 1) if len(parts) == 2 else [data], strict=True):
            add(name.replace("gate_up", part), np.ascontiguousarray(rows), **kinds)

    writer.add_tensor = add_tensor


def _all(*added: Any) -> Any:
    def add(writer: Any) -> None:
        for one in added:
            one(writer)

    return add


def _logit_scale(value: float) -> Any:
    return lambda writer: writer.add_logit_scale(value)


def _said(key: str, text: str) -> Any:
    return lambda writer: writer.add_string(f"{writer.arch}.{key}", text)


def _window(size: int) -> Any:
    return lambda writer: writer.add_sliding_window(size)


def _yarn(writer: Any) -> None:
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(4.0)
    writer.add_rope_scaling_orig_ctx_len(64)


# name: (architecture in the file, the case, what differs from it, type, keys)
MODELS: dict[str, tuple[str, str, dict[str, Any], str, Any]] = {
    "granite": ("granite", "granite", WIDE, "Q8_0", _granite),
    "granite, experts": ("granitemoe", "granite-moe", EXPERTS, "Q4_0", _all(_granite, _experts(5, 2))),
    "granite, shared": (
        "granitemoe", "granite-moe-shared", {**EXPERTS, "shared_intermediate_size": 64}, "Q5_0",
        _all(_granite, _experts(5, 2, expert_shared_feed_forward_length=64)),
    ),
    "gemma3n": (
        "gemma3n", "gemma3n", {**WIDE, "laurel_rank": 32, "hidden_size_per_layer_input": 32}, "Q8_0", _streams,
    ),
    "gemma4": (
        "gemma4", "gemma4-small", {**KINDS, "hidden_size_per_layer_input": 32}, "Q8_0",
        _kinds(
            [True, True, False] * 2, 4, shared_kv_layers=3, embedding_length_per_layer_input=32,
            feed_forward_length=[96] * 3 + [192] * 3,
        ),
    ),
    "gemma4, experts": (
        "gemma4", "gemma4-moe", {**KINDS, "moe_intermediate_size": 32, "num_global_key_value_heads": 1}, "Q8_0",
        _all(_kinds([True, False] * 2, 4, head_count_kv=[2, 1] * 2), _experts(5, 2)),
    ),
    "gemma4, experts apart": (
        "gemma4", "gemma4-moe", {**KINDS, "moe_intermediate_size": 32, "num_global_key_value_heads": 1}, "Q8_0",
        _all(_kinds([True, False] * 2, 4, head_count_kv=[2, 1] * 2), _experts(5, 2), _separate_experts),
    ),
    "granite-hybrid": ("granitehybrid", "granite-hybrid", HYBRID, "Q8_0", _all(_granite, _states)),
    "granite-hybrid, experts": (
        "granitehybrid", "granite-hybrid-experts",
        {**HYBRID, **MULTIPLIERS, "intermediate_size": 32, "position_embedding_type": "rope"}, "Q8_0",
        _all(_granite, _states, _rope, _experts(6, 2, expert_shared_feed_forward_length=96)),
    ),
    "olmo2": ("olmo2", "olmo2", WIDE, "Q8_0", None),
    "olmo3": (
        "olmo2", "olmo3",
        {**WIDE, "rope_parameters": dict.fromkeys(("full_attention", "sliding_attention"), PLAIN)},
        "F16", _window(9),
    ),
    "olmoe": ("olmoe", "olmoe", {**EXPERTS, "num_key_value_heads": 4}, "Q8_0", _experts(6, 2)),
    "chatglm": ("chatglm", "glm", {**WIDE, "head_dim": 16}, "Q8_0", _turned(8)),
    "chatglm, joined": (
        "chatglm", "glm", {**WIDE, "head_dim": 16, "attention_bias": True}, "Q8_0", _all(_turned(8), _joined_qkv),
    ),
    "glm4": ("glm4", "glm4", {**WIDE, "attention_bias": True}, "F16", _turned(4)),
    "glm4.5": (
        "glm4moe", "glm4.5", INNER, "Q8_0",
        _all(
            _turned(8), _nextn,
            _grouped(8, 2, leading_dense_block_count=1, expert_shared_count=1, expert_weights_norm=True),
        ),
    ),
    "cohere": ("command-r", "cohere", WIDE, "F16", _logit_scale(0.0625)),
    "cohere2": (
        "cohere2", "cohere2", {**WIDE, "tie_word_embeddings": True, "sliding_window_pattern": 4}, "Q8_0",
        _all(_logit_scale(0.0625), _window(9)),
    ),
    "starcoder2": ("starcoder2", "starcoder2", {**WIDE, "sliding_window": None}, "Q8_0", None),
    "exaone4": ("exaone4", "exaone4", WIDE, "Q8_0", _window(9)),
    "exaone4, no windows": ("exaone4", "exaone4-no-windows", WIDE, "F16", None),
    "seed-oss": ("seed_oss", "seed-oss", WIDE, "Q8_0", None),
    "ernie4.5": ("ernie4_5", "ernie4.5", WIDE, "Q8_0", None),
    "ernie4.5, experts": (
        "ernie4_5-moe", "ernie4.5-moe", {**INNER, "moe_layer_end_index": -1}, "Q8_0",
        _experts(6, 2, leading_dense_block_count=1, interleave_moe_layer_step=1, expert_shared_count=2,
                 expert_shared_feed_forward_length=64),
    ),
    "hunyuan": ("hunyuan-dense", "hunyuan-dense", WIDE, "Q8_0", None),
    "hunyuan, experts": ("hunyuan-moe", "hunyuan-moe", EXPERTS, "Q8_0", _experts(5, 2)),
    "arcee": ("arcee", "arcee", {**WIDE, "mlp_bias": False}, "Q8_0", None),
    "nemotron": ("nemotron", "nemotron", WIDE, "Q8_0", _turned(8)),
    "phi2": ("phi2", "phi", {**WIDE, "num_key_value_heads": 4}, "Q8_0", _turned(8)),
    "phimoe": (
        "phimoe", "phi3.5-moe", {**EXPERTS, "router_jitter_noise": 0.01}, "Q8_0", _all(_window(11), _experts(6, 2)),
    ),
    "phimoe, longrope": (
        "phimoe", "phi3.5-moe-longrope",
        {**EXPERTS, "rope_parameters": MSCALES, "original_max_position_embeddings": 128, "attention_bias": True},
        "BF16", _all(_longrope, _experts(4, 2)),
    ),
    "bitnet": (
        "bitnet", "bitnet", {**WIDE, **TERNARY, "hidden_act": "silu", "tie_word_embeddings": True}, "TQ2_0",
        _plain_scaling,
    ),
    "bitnet, relu2": (
        "bitnet", "bitnet", {**WIDE, "tie_word_embeddings": True}, "F16", _said("hidden_activation", "relu2"),
    ),
    "gpt-neox": ("gptneox", "gpt-neox", {**WIDE, "num_key_value_heads": 4}, "Q8_0", _side_by_side),
    "gpt-neox, in turn": (
        "gptneox", "gpt-neox", {**WIDE, "num_key_value_heads": 4, "use_parallel_residual": False}, "F16", _in_turn,
    ),
    "falcon-7b": ("falcon", "falcon-7b", WIDE, "Q8_0", _falcon(1, 256)),
    "falcon-40b": (
        "falcon", "falcon-40b", {**WIDE, "bias": False, "ffn_hidden_size": 96, "tie_word_embeddings": True}, "Q8_0",
        _falcon(2, 96),
    ),
    "falcon-11b": (
        "falcon", "falcon-11b", {**WIDE, "num_kv_heads": 2, "num_key_value_heads": 2}, "F16", _falcon(2, 256),
    ),
    "qwen2-vl": ("qwen2vl", "qwen2", WIDE, "Q8_0", _sections),
    "qwen3-vl": ("qwen3vl", "qwen3", WIDE, "F16", _sections),
    "qwen3-vl, experts": ("qwen3vlmoe", "qwen3-moe", INNER, "Q8_0", _all(_sections, _experts(7, 3))),
    "ministral3": (
        "mistral3", "ministral3",
        {**WIDE, "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.7, "llama_4_scaling_beta": 0.1}},
        "Q8_0", _ministral,
    ),
    "jais2": ("jais2", "jais2", WIDE, "Q8_0", None),
    "stablelm": ("stablelm", "stablelm", WIDE, "Q8_0", _turned(4)),
    "gpt2": ("gpt2", "gpt2", {**WIDE, "num_key_value_heads": 4}, "Q8_0", _inner),
    "apertus": ("apertus", "apertus", {**WIDE, "rope_parameters": PLAIN}, "Q8_0", _xielu),
    "dots1": (
        "dots1", "dots1",
        {**INNER, "num_key_value_heads": 4, "sliding_window": None, "use_sliding_window": False}, "Q8_0",
        _grouped(8, 2, leading_dense_block_count=1, expert_shared_count=1, expert_weights_norm=False),
    ),
    "minimax-m2": ("minimax-m2", "minimax-m2", EXPERTS, "Q8_0", _all(_turned(8), _grouped(6, 2))),
    "deepseek-v2": (
        "deepseek2", "deepseek-v2", {}, "BF16",
        _all(_latent(0), _experts(8, 2, 24, leading_dense_block_count=1, expert_shared_count=2)),
    ),
    "deepseek-v3": (
        "deepseek2", "deepseek-v3",
        {"routed_scaling_factor": 2.5, "rope_parameters": {**YARN, "mscale": 0.7, "mscale_all_dim": 0.7}}, "BF16",
        _all(
            _latent(24), _yarn_of_latents,
            _grouped(8, 2, 24, leading_dense_block_count=1, expert_shared_count=1, expert_group_count=4,
                     expert_group_used_count=2, expert_weights_scale=2.5, expert_weights_norm=True),
        ),
    ),
    "youtu": ("deepseek2", "youtu", {"tie_word_embeddings": True}, "F16", _latent(24)),
    "minicpm3": ("minicpm3", "minicpm3", MINICPM3, "Q8_0", _minicpm3(16)),
    "minicpm3, longrope": (
        "minicpm3", "minicpm3-longrope", {**MINICPM3, "v_head_dim": None}, "F16",
        _all(_minicpm3(8), _long_and_short([1.5, 2.0, 3.0, 4.0], [1.0, 1.1, 1.2, 1.3])),
    ),
    "lfm2": ("lfm2", "lfm2", WIDE, "Q8_0", _lfm2),
    "llama4": (
        "llama4", "llama4", {**EXPERTS, "intermediate_size_mlp": 96, "attention_chunk_size": 8192, "floor_scale": 8192},
        "Q8_0", _all(_dense_width, _experts(5, 1, interleave_moe_layer_step=1)),
    ),
    "gpt-oss": ("gpt-oss", "gpt-oss", {"swiglu_limit": 7.0}, "MXFP4", _all(_window(9), _yarn, _experts(6, 3))),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_greedy_text_equal_transformers(name: str, tmp_path: Path) -> None:
    arch, case, differs, kind, keys = MODELS[name]
    class_name, options = CASES[case]
    model, path = save_random_model(tmp_path, class_name, {**options, **differs}), tmp_path / "model.gguf"
    with torch.no_grad():
        set_xielu(model)
        write_model(path, model, arch, kind, keys=keys)
    decoder, token_ids = Decoder.from_folder(path, dtype=torch.float32, max_positions=128), random_ids(40)
    run = PagedRun(decoder)
    found = torch.cat([run.extend({0: chunk}) for chunk in (token_ids[:29], token_ids[29:])])
    oracle = Oracle(tmp_path, model)
    oracle.assert_logits(found, token_ids)
    oracle.assert_greedy(token_ids[:30], PagedRun(decoder).greedy(token_ids[:30], 24))
    capacity = plan(decoder.config, pool_bytes=1 << 20, on_cpu=True, weight_dtype="float32")
    assert capacity.weight_bytes == decoder.num_weight_bytes
