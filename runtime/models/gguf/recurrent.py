"""Layers that keep a state, in GGUF: their keys in the words of a `config.json`, and the names of their tensors.

What the converter made of the numbers is undone where they are read: rates are stored below 0, as they are used
(`RecurrentOptions.has_rates`), norms with their offset added, and value heads of a delta rule in another order
(`value_order.py`). Factors of Falcon-H1 are in its matrices. Knows no tensors but by their names and shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..architecture import Architecture
from ..json_file import Fields
from ..recurrent_config import Kind
from .file import GgufFile

STATES = ("ssm.conv_kernel", "ssm.inner_size", "ssm.state_size", "ssm.time_step_rank", "ssm.group_count")
INTERVALS = ("full_attention_interval", "attention.recurrent_layers")
DELTA = (*STATES, *INTERVALS, "rope.dimension_sections")
KIMI = ("ssm.conv_kernel", "kda.head_dim")
SCAN = (*STATES, "ssm.dt_b_c_rms")
SHORT_CONV = ("shortconv.l_cache",)

_HEADS = {"A_log": "ssm_a", "dt_bias": "ssm_dt.bias"}
_IN_AND_OUT = {"in_proj": "ssm_in", "out_proj": "ssm_out", "conv1d": "ssm_conv1d", "D": "ssm_d"}
# names of a recurrent layer's modules, and in full of tensors that are none of a module's
RECURRENT_NAMES: dict[Kind, dict[str, str]] = {
    "short_conv": {name: f"shortconv.{name}" for name in ("conv", "in_proj", "out_proj")},
    "state_space": {**_IN_AND_OUT, **_HEADS, "norm": "ssm_norm"},
    "selective_scan": {
        **_IN_AND_OUT, "A_log": "ssm_a", "x_proj": "ssm_x", "dt_proj": "ssm_dt", "dt_layernorm": "ssm_dt_norm",
        "b_layernorm": "ssm_b_norm", "c_layernorm": "ssm_c_norm",
    },
    "delta": {
        **_HEADS, "in_proj_qkvz": "ssm_in", "in_proj_qkv": "attn_qkv", "in_proj_z": "attn_gate",
        "in_proj_ba": "ssm_ba", "in_proj_b": "ssm_beta", "in_proj_a": "ssm_alpha", "conv1d": "ssm_conv1d",
        "norm": "ssm_norm", "out_proj": "ssm_out",
    },
    "kimi_delta": {
        **_HEADS, **{f"{part}_proj": f"attn_{part}" for part in "qkv"},
        **{f"{part}_conv1d": f"ssm_conv1d_{part}" for part in "qkv"},
        **{f"{part}_proj": f"ssm_{part}" for part in ("f_a", "f_b", "g_a", "g_b")},
        "b_proj": "ssm_beta", "o_norm": "ssm_norm", "out_proj": "attn_output",
    },
    "lightning": {
        "qkv_proj": "attn_qkv", "output_gate": "attn_gate", "norm": "attn_norm_2", "out_proj": "attn_output",
    },
}  # fmt: skip


def recurrent_values(file: GgufFile, fields: Fields, options: Architecture, num_layers: int) -> dict[str, Any]:
    """The shape of recurrent layers, and which layers are such; nothing where the architecture has none.

    Raises:
        ModelError: a number is missing or odd.
    """
    if options.recurrent is None:
        return {}
    values: dict[str, Any] = _SHAPES[options.recurrent.kind](file, fields)
    if options.recurrent.is_beside:
        return values
    values["layer_types"] = _layer_types(file, fields, options, num_layers)
    if options.experts is not None and not options.one_part:
        values["mlp_layer_types"] = [_kind_of_mlp(file, index, "sparse", "dense") for index in range(num_layers)]
    return values


def _layer_types(file: GgufFile, fields: Fields, options: Architecture, num_layers: int) -> list[str] | None:
    """Layers without heads of keys and values are recurrent ones; None: all are (Mamba)."""
    assert options.recurrent is not None
    recurrent = next(iter(options.recurrent.names), "")
    if options.recurrent.kind in _INTERVAL:
        keeps = _whole(fields, "attention.recurrent_layers", num_layers)
        if keeps is None:
            every = fields.integer("full_attention_interval", _INTERVAL[options.recurrent.kind])
            keeps = [(index + 1) % every != 0 for index in range(num_layers)]
        return [recurrent if each else "full_attention" for each in keeps]
    heads = _whole(fields, "attention.head_count_kv", num_layers)
    if heads is None:
        if options.one_part and not recurrent:
            return None
        raise fields.odd("attention.head_count_kv", f"{num_layers} numbers")
    kinds = ["full_attention" if each else recurrent for each in heads]
    if options.one_part:  # Nemotron-H
        widths = _whole(fields, "feed_forward_length", num_layers) or [0] * num_layers
        for index, width in enumerate(widths):
            kinds[index] = _kind_of_mlp(file, index, "moe", "mlp") if width else kinds[index]
    return kinds


def _whole(fields: Fields, key: str, num_layers: int) -> list[Any] | None:
    """What a key says of each layer, without those that predict tokens beyond the next; None: no list is there."""
    found = fields.values.get(key)
    if not isinstance(found, list):
        return None
    if len(found) != num_layers + fields.integer("nextn_predict_layers", 0, at_least=0):
        raise fields.odd(key, f"{num_layers} entries")
    return found[:num_layers]


def _kind_of_mlp(file: GgufFile, index: int, sparse: str, dense: str) -> str:
    return sparse if f"blk.{index}.ffn_gate_inp.weight" in file.tensors else dense


def _has(file: GgufFile, what: str) -> bool:
    return any(name.endswith(f".{what}") for name in file.tensors)


def _short_conv(file: GgufFile, fields: Fields) -> dict[str, Any]:
    return {
        "conv_L_cache": fields.integer("shortconv.l_cache"),
        "conv_bias": _has(file, "shortconv.in_proj.bias"),
        "block_auto_adjust_ff_dim": False,
    }


def _heads_of(fields: Fields) -> tuple[int, int]:
    """Heads, and how wide each one's values are."""
    inner, heads = fields.integer("ssm.inner_size"), fields.integer("ssm.time_step_rank")
    if inner % heads:
        raise fields.odd("ssm.inner_size", f"a multiple of ssm.time_step_rank ({heads})")
    return heads, inner // heads


def _state_space(file: GgufFile, fields: Fields) -> dict[str, Any]:
    """Mamba 2. Attention of Granite 4 has positions if a key does not say that it has none."""
    heads, width = _heads_of(fields)
    return {
        "mamba_n_heads": heads,
        "mamba_d_head": width,
        "mamba_d_ssm": heads * width,
        "mamba_d_state": fields.integer("ssm.state_size"),
        "mamba_n_groups": fields.integer("ssm.group_count"),
        "mamba_d_conv": fields.integer("ssm.conv_kernel"),
        "mamba_conv_bias": _has(file, "ssm_conv1d.bias"),
        "mamba_proj_bias": _has(file, "ssm_in.bias"),
        "projectors_bias": _has(file, "ssm_out.bias"),
        "mamba_rms_norm": _has(file, "ssm_norm.weight"),
        "mamba_norm_before_gate": False,
        "time_step_min": 0.0,  # no key says otherwise
        "position_embedding_type": "rope" if fields.boolean("rope.scaling.finetuned", True) else "nope",
    }


def _selective_scan(file: GgufFile, fields: Fields) -> dict[str, Any]:
    """Mamba, where one epsilon is that of all norms."""
    return {
        "mamba_d_ssm": fields.integer("ssm.inner_size"),
        "mamba_d_state": fields.integer("ssm.state_size"),
        "mamba_dt_rank": fields.integer("ssm.time_step_rank"),
        "mamba_d_conv": fields.integer("ssm.conv_kernel"),
        "mamba_conv_bias": _has(file, "ssm_conv1d.bias"),
        "mamba_proj_bias": _has(file, "ssm_in.bias"),
        "mixer_rms_eps": fields.number("attention.layer_norm_rms_epsilon"),
    }


def _delta(file: GgufFile, fields: Fields) -> dict[str, Any]:
    heads, width = _heads_of(fields)
    return {
        "linear_num_value_heads": heads,
        "linear_value_head_dim": width,
        "linear_num_key_heads": fields.integer("ssm.group_count"),
        "linear_key_head_dim": fields.integer("ssm.state_size"),
        "linear_conv_kernel_dim": fields.integer("ssm.conv_kernel"),
        "is_fused": _has(file, "ssm_in.weight"),  # in the first files of Qwen3-Next
    }


def _kimi_delta(file: GgufFile, fields: Fields) -> dict[str, Any]:
    return {
        "linear_num_heads": fields.integer("attention.head_count"),
        "linear_head_dim": fields.integer("kda.head_dim"),
        "linear_conv_kernel_dim": fields.integer("ssm.conv_kernel"),
    }


def _lightning(file: GgufFile, fields: Fields) -> dict[str, Any]:
    """One factor on what is added to; heads are those of attention."""
    factor = fields.number("residual_scale")
    return {f"{part}_alpha_factor": factor for part in ("linear_attn", "full_attn", "mlp")}


_INTERVAL: dict[Kind, int] = {"delta": 4, "lightning": 8}  # every n-th layer attends where no key says otherwise
_SHAPES: dict[Kind, Callable[[GgufFile, Fields], dict[str, Any]]] = {
    "short_conv": _short_conv,
    "state_space": _state_space,
    "selective_scan": _selective_scan,
    "delta": _delta,
    "kimi_delta": _kimi_delta,
    "lightning": _lightning,
}
