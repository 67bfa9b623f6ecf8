"""GGUF files of models with recurrent layers, written as llama.cpp's converter writes them from a saved checkpoint.

The checkpoint's matrices are rounded to the file's type first, and saved again, so that both hold the same numbers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import load_file, save_file

from .gguf_files import KIND, add_numbers, dequantised, finish, named_by_package, package_names, paired
from .gguf_keys import JOINED_EXPERTS

Config = dict[str, Any]
Keys = Callable[[Any, Config], None]
Array = np.ndarray[Any, Any]

_PARTS = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
_PLAIN = r"norm|conv|A_log|\.D$|bias|router|\.gate\.weight|in_proj_b\b|in_proj_a|x_proj|dt_proj|shared_expert_gate"
_ROUTERS = r"\.(gate|router|router\.layer|shared_expert_gate)\.weight$"
_LIGHTNING = {"qkv_proj": "attn_qkv", "output_gate": "attn_gate", "norm": "attn_norm_2", "out_proj": "attn_output"}
_FACTORS = {
    "down_proj": lambda config: config["mlp_multipliers"][1],
    "gate_proj": lambda config: config["mlp_multipliers"][0],
    "k_proj": lambda config: config["key_multiplier"] * config["attention_in_multiplier"],
    "q_proj": lambda config: config["attention_in_multiplier"],
    "v_proj": lambda config: config["attention_in_multiplier"],
    "o_proj": lambda config: config["attention_out_multiplier"],
    "out_proj": lambda config: config["ssm_out_multiplier"],
    "lm_head": lambda config: config["lm_head_multiplier"],
    "embed_tokens": lambda config: config["embedding_multiplier"],
}


def convert(folder: Path, path: Path, arch: str, kind: str, keys: Keys) -> None:
    """The checkpoint of `folder` as a file, its matrices in `kind`; those of the checkpoint become the same."""
    config = json.loads((folder / "config.json").read_text())
    tensors = load_file(folder / "model.safetensors")
    torch.manual_seed(3)
    for name, tensor in tensors.items():
        if name.endswith("expert_bias"):  # which is made of zeros
            tensor.normal_(std=0.25)
        if _is_rounded(name, tensor.shape):
            tensors[name] = torch.from_numpy(dequantised(gguf.quants.quantize(tensor.numpy(), KIND[kind]), kind)).view(
                tensor.shape
            )
        elif re.search(_ROUTERS, name):  # F32 in files, but from checkpoints in bf16
            tensors[name] = tensor.bfloat16().float()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    writer = gguf.GGUFWriter(path, arch)
    keys(writer, config)
    names = package_names("llama" if arch == "minimax-01" else arch, _count(config))  # which it does not have
    written = [
        part
        for name, tensor in _stacked(tensors, arch).items()
        for part in _converted(name, tensor.float().numpy(), config, arch)
    ]
    for name, numbers in written:
        there = name if name.startswith("blk.") else named_by_package(name, names)
        add_numbers(writer, there, numbers, kind if _is_rounded(name, numbers.shape) else "F32")
    finish(writer)


def _is_rounded(name: str, shape: Any) -> bool:
    return len(shape) > 1 and shape[-1] % 32 == 0 and not re.search(_PLAIN, name)


def _count(config: Config) -> int:
    kinds = config.get("layers_block_type") or config.get("layer_types")
    return len(kinds) if kinds else int(config["num_hidden_layers"])


def _stacked(tensors: dict[str, torch.Tensor], arch: str) -> dict[str, torch.Tensor]:
    """The same with the experts of a layer in three tensors, or two."""
    found, experts = {}, {}
    for name, tensor in tensors.items():
        match = re.fullmatch(r"(?:model|backbone)\.layers\.(\d+)\..*\.experts\.(\d+)\.(\w+)\.weight", name)
        if match is None:
            found[name] = tensor
        else:
            merged = f"model.layers.{match[1]}.mlp.experts.{_PARTS.get(match[3], match[3])}.weight"
            experts.setdefault(merged, {})[int(match[2])] = tensor
    return found | {name: torch.stack([parts[index] for index in sorted(parts)]) for name, parts in experts.items()}


def _converted(name: str, numbers: Array, config: Config, arch: str) -> Iterator[tuple[str, Array]]:
    """What a tensor becomes, by the names that the `gguf` package knows, or those of a file."""
    if arch in ("mamba2", "nemotron_h", "nemotron_h_moe"):
        name = name if ".mlp.experts." in name else re.sub(r"^model\.", "backbone.", name)
    if arch == "minimax-01" and (
        match := re.search(r"\.(\d+)\.self_attn\.(qkv_proj|output_gate|norm|out_proj)\.", name)
    ):
        yield f"blk.{match[1]}.{_LIGHTNING[match[2]]}.weight", numbers
        return
    if name.endswith(("slope_rate", "_decay")):
        return
    name = re.sub(r"block_sparse_moe\.(\w+_proj)", r"mlp.\1", name)  # of a dense layer
    name = re.sub(r"\.dt_bias$", ".dt.bias" if arch == "nemotron_h_moe" else ".dt_proj.bias", name)
    name = re.sub(r"e_score_correction_bias$", "e_score_correction.bias", name)
    name = re.sub(r"expert_bias$", "expert_bias.bias", name)
    if name.endswith("A_log"):
        numbers = -np.exp(numbers)
    if "conv1d.weight" in name or ".conv.conv.weight" in name:
        numbers = numbers.reshape(1, -1, 1, numbers.shape[-1]) if arch == "kimi-linear" else numbers.squeeze()
    if arch in ("mamba2", "granitehybrid", "falcon-h1", "nemotron_h", "nemotron_h_moe"):
        if name.endswith((".A_log", ".D")):
            numbers = numbers.reshape(-1, 1)
        if name.endswith(("mamba.norm.weight", "mixer.norm.weight")):
            numbers = numbers.reshape(config.get("n_groups") or config["mamba_n_groups"], -1)
    if arch.startswith("qwen"):
        yield from _qwen(name, numbers, config, arch)
    elif arch == "falcon-h1":
        yield name, _scaled(name, numbers, config)
    elif match := re.search(r"\.(\d+)\.(shared_mlp|block_sparse_moe)\.(in|out)put_linear\.", name):
        beside = "_shexp" if config["num_local_experts"] else ""
        end = beside if match[2] == "shared_mlp" else "_exps"
        parts = ("ffn_gate", "ffn_up") if match[3] == "in" else ("ffn_down",)
        for part, rows in zip(parts, np.split(numbers, len(parts), -2), strict=True):
            yield f"blk.{match[1]}.{part}{end}.weight", rows
    elif arch == "granitehybrid" and re.search(r"\.[qk]_proj\.", name):
        yield name, paired(numbers, config["num_attention_heads" if "q_proj" in name else "num_key_value_heads"])
    elif name.endswith("kv_b_proj.weight"):
        heads = numbers.reshape(config["num_attention_heads"], -1, numbers.shape[1])
        keys, values = np.split(heads, [config["qk_nope_head_dim"]], axis=1)
        yield name.replace("kv_b", "k_b"), keys.swapaxes(1, 2)
        yield name.replace("kv_b", "v_b"), values
    else:
        yield name, numbers


def _scaled(name: str, numbers: Array, config: Config) -> Array:
    """Falcon-H1's, with its factors."""
    module = name.split(".")[-2]
    if module == "in_proj":
        inner, keys = config["mamba_d_ssm"], config["mamba_n_groups"] * config["mamba_d_state"]
        sizes = [inner, inner, keys, keys, config["mamba_n_heads"]]
        factors = np.repeat(config["ssm_multipliers"], sizes) * config["ssm_in_multiplier"]
        return numbers * factors[:, None].astype(np.float32)
    return numbers * np.float32(_FACTORS[module](config) if module in _FACTORS else 1.0)


def _qwen(name: str, numbers: Array, config: Config, arch: str) -> Iterator[tuple[str, Array]]:
    """Norms with their offset; a key head's value heads apart, and in Qwen3-Next queries, keys, values and gates."""
    if name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight"):
        numbers = numbers + np.float32(1)
    key_heads, heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    key_dim, value_dim = config["linear_key_head_dim"], config["linear_value_head_dim"]
    if name.endswith("in_proj_qkvz.weight") and not config.get("is_fused"):
        each = heads // key_heads * value_dim
        parts = np.split(
            numbers.reshape(key_heads, -1, numbers.shape[1]), np.cumsum([key_dim, key_dim, each]).tolist(), axis=1
        )
        parts = [part.reshape(-1, numbers.shape[1]) for part in parts]
        yield f"blk.{name.split('.')[2]}.attn_qkv.weight", np.concatenate(parts[:3])
        yield f"blk.{name.split('.')[2]}.attn_gate.weight", parts[3]
        return
    if "linear_attn." in name and arch != "qwen3next":
        num_keys = 2 * key_heads * key_dim
        if "in_proj_qkv." in name or "conv1d" in name:
            values = _in_turn(numbers[num_keys:], key_heads, heads)
            numbers = np.concatenate([numbers[:num_keys], values])
        elif "out_proj" in name:
            numbers = _in_turn(numbers.T, key_heads, heads).T
        elif "linear_attn.norm" not in name:
            numbers = _in_turn(numbers, key_heads, heads)
    yield name, numbers


def _in_turn(rows: Array, key_heads: int, heads: int) -> Array:
    by_head = rows.reshape(key_heads, heads // key_heads, -1, *rows.shape[1:])
    return by_head.swapaxes(0, 1).reshape(rows.shape)


# -- keys ----------------------------------------------------------------------------------------------------------


def _say(writer: Any, config: Config, **values: Any) -> None:
    """What every file says, and these values, by the names of the writer's methods without "add_"; None: not said."""
    own = next(config[key] for key in ("layer_norm_epsilon", "rms_norm_eps", "norm_eps") if key in config)
    common = {
        "context_length": config.get("max_position_embeddings", 1 << 20),
        "embedding_length": config["hidden_size"],
        "block_count": _count(config),
        "vocab_size": config["vocab_size"],
        "feed_forward_length": config.get("intermediate_size") or 0,
        "layer_norm_rms_eps": own,
        "head_count": config.get("num_attention_heads"),
        "head_count_kv": config.get("num_key_value_heads"),
        "rope_freq_base": (config.get("rope_parameters") or {}).get("rope_theta"),
    }
    for name, value in {**common, **values}.items():
        if value is not None:
            getattr(writer, f"add_{name}")(value)


def _states(config: Config, taps: str, inner: int, size: str, rank: str, groups: str = "") -> dict[str, Any]:
    """Of recurrent layers, by the names that the configuration has for them."""
    return {
        "ssm_conv_kernel": config[taps],
        "ssm_inner_size": inner,
        "ssm_state_size": config[size],
        "ssm_time_step_rank": config[rank],
        "ssm_group_count": config[groups] if groups else None,
    }


def _mamba2(config: Config) -> dict[str, Any]:
    inner = config.get("mamba_d_ssm") or config["mamba_n_heads"] * config["mamba_d_head"]
    return _states(config, "mamba_d_conv", inner, "mamba_d_state", "mamba_n_heads", "mamba_n_groups")


def _heads_where(config: Config, attends: list[bool]) -> dict[str, Any]:
    return {"head_count_kv": [config["num_key_value_heads"] if each else 0 for each in attends]}


def _heads(config: Config) -> dict[str, Any]:
    return {"key_length": config["head_dim"], "value_length": config["head_dim"]}


def _experts(config: Config, count: str = "num_experts", used: str = "num_experts_per_tok") -> dict[str, Any]:
    return {
        "expert_count": config[count],
        "expert_used_count": config[used],
        "expert_feed_forward_length": config.get("moe_intermediate_size"),
    }


def mamba(writer: Any, config: Config) -> None:
    states = _states(config, "conv_kernel", config["intermediate_size"], "state_size", "time_step_rank")
    is_normed = config["model_type"] == "falcon_mamba"
    _say(writer, config, feed_forward_length=0, head_count=0, ssm_dt_b_c_rms=is_normed, **states)


def mamba2(writer: Any, config: Config) -> None:
    inner = config["num_heads"] * config["head_dim"]
    states = _states(config, "conv_kernel", inner, "state_size", "num_heads", "n_groups")
    _say(writer, config, feed_forward_length=0, head_count=0, **states)


def jamba(writer: Any, config: Config) -> None:
    period, offset = config["attn_layer_period"], config["attn_layer_offset"]
    heads = _heads_where(config, [index % period == offset for index in range(config["num_hidden_layers"])])
    inner = config["mamba_expand"] * config["hidden_size"]
    states = _states(config, "mamba_d_conv", inner, "mamba_d_state", "mamba_dt_rank")
    _say(writer, config, **heads, **states, **_experts(config))


def lfm2(writer: Any, config: Config) -> None:
    """Of which the MLP's width is two thirds of what the configuration says."""
    heads = _heads_where(config, [kind == "full_attention" for kind in config["layer_types"]])
    width = config["intermediate_size"] * 2 // 3
    _say(writer, config, **heads, feed_forward_length=width, shortconv_l_cache=config["conv_L_cache"])


def lfm2moe(writer: Any, config: Config) -> None:
    _say(
        writer,
        config,
        **_heads_where(config, [kind == "full_attention" for kind in config["layer_types"]]),
        **_experts(config),
        leading_dense_block_count=config["num_dense_layers"],
        expert_gating_func=gguf.ExpertGatingFuncType.SIGMOID,
        shortconv_l_cache=config["conv_L_cache"],
    )


def falcon_h1(writer: Any, config: Config) -> None:
    _say(writer, config, **_heads(config), **_mamba2(config))


def granite(writer: Any, config: Config) -> None:
    shared, more = config["shared_intermediate_size"], {}
    if config["num_local_experts"]:
        more = {**_experts(config, "num_local_experts"), "expert_shared_feed_forward_length": shared}
    _say(
        writer,
        config,
        **_mamba2(config),
        **_heads_where(config, ["attention" in kind and kind != "linear_attention" for kind in config["layer_types"]]),
        feed_forward_length=config["intermediate_size"] if more else shared,
        rope_scaling_finetuned=config["position_embedding_type"] == "rope",
        embedding_scale=config["embedding_multiplier"],
        attention_scale=config["attention_multiplier"],
        residual_scale=config["residual_multiplier"],
        logit_scale=config["logits_scaling"],
        **more,
    )


def bamba(writer: Any, config: Config) -> None:
    """With whole heads in pairs, though half of each turns."""
    heads = _heads_where(config, [index in config["attn_layer_indices"] for index in range(_count(config))])
    turned = config["hidden_size"] // config["num_attention_heads"] // 2
    _say(writer, config, **_mamba2(config), **heads, rope_dimension_count=turned, rope_scaling_finetuned=True)


def nemotron_h(writer: Any, config: Config) -> None:
    kinds = config.get("layers_block_type") or config["layer_types"]
    inner = config["mamba_num_heads"] * config["mamba_head_dim"]
    more, width = {}, config["intermediate_size"]
    if "moe" in kinds:
        width = config["moe_intermediate_size"]
        more = {
            **_experts(config, "n_routed_experts"),
            "expert_shared_feed_forward_length": config["moe_shared_expert_intermediate_size"],
            "expert_shared_count": config["n_shared_experts"],
            "expert_weights_norm": config["norm_topk_prob"],
            "expert_weights_scale": config["routed_scaling_factor"],
            "expert_group_count": config["n_group"],
            "moe_latent_size": config.get("moe_latent_size"),
        }
    _say(
        writer,
        config,
        **_heads(config),
        **_heads_where(config, [kind in ("attention", "full_attention") for kind in kinds]),
        **_states(config, "conv_kernel", inner, "ssm_state_size", "mamba_num_heads", "n_groups"),
        layer_norm_eps=config["layer_norm_epsilon"],
        rope_dimension_count=config["hidden_size"],  # of no use, and larger than a head
        rope_scaling_finetuned=False,
        feed_forward_length=[width if kind in ("moe", "mlp") else 0 for kind in kinds],
        **more,
    )


def _interval(config: Config) -> dict[str, Any]:
    return {"full_attention_interval": 1 + config["layer_types"].index("full_attention")}


def qwen(writer: Any, config: Config) -> None:
    inner = config["linear_num_value_heads"] * config["linear_value_head_dim"]
    rank, groups = "linear_num_value_heads", "linear_num_key_heads"
    _say(
        writer,
        config,
        **_heads(config),
        **_states(config, "linear_conv_kernel_dim", inner, "linear_key_head_dim", rank, groups),
        **_interval(config),
        rope_dimension_count=config["head_dim"] // 4,
        rope_dimension_sections=[1, 1, 0, 0] if config["model_type"] != "qwen3_next" else None,
        **(_experts(config) if "num_experts" in config else {}),
        expert_shared_feed_forward_length=config.get("shared_expert_intermediate_size"),
    )


def fused_qwen(writer: Any, config: Config) -> None:
    """As the first converter wrote it."""
    qwen(writer, config)
    config["is_fused"] = True


def joined_qwen(writer: Any, config: Config) -> None:
    """With gates and up projections of experts in one tensor."""
    qwen(writer, config)
    JOINED_EXPERTS(writer)


def minimax(writer: Any, config: Config) -> None:
    """With an interval, which the converter leaves to its default, 8."""
    turned = config["hidden_size"] // config["num_attention_heads"]
    factors = {"residual_scale": config["mlp_alpha_factor"], "rope_dimension_count": turned}
    _say(writer, config, **factors, **_interval(config), **_experts(config, "num_local_experts"))


def kimi_linear(writer: Any, config: Config) -> None:
    rank, rotary = config["kv_lora_rank"], config["qk_rope_head_dim"]
    _say(
        writer,
        config,
        head_count_kv=[int(kind == "full_attention") for kind in config["layer_types"]],
        ssm_conv_kernel=config["linear_conv_kernel_dim"],
        kda_head_dim=config["linear_head_dim"],
        kv_lora_rank=rank,
        rope_dimension_count=rotary,
        key_length=rank + rotary,
        value_length=rank,
        key_length_mla=config["qk_nope_head_dim"] + rotary,
        value_length_mla=config["v_head_dim"],
        **_experts(config, used="num_experts_per_token"),
        expert_gating_func=gguf.ExpertGatingFuncType.SIGMOID,
        expert_shared_count=config["num_shared_experts"],
        leading_dense_block_count=config["mlp_layer_types"].index("sparse"),
        expert_weights_scale=config["routed_scaling_factor"],
    )
