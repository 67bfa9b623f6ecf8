"""How `config.json` states the shape of each kind of recurrent layer: one function for each kind of `recurrent_kinds`.

Each takes the layers that are of the kind, and raises ModelError: a number that is missing or odd. Knows no tensors.
"""

from __future__ import annotations

import math

from .json_file import MOST_OF_A_NUMBER, MOST_OF_A_SIZE, MOST_WIDTH, Fields
from .recurrent_config import ATTENTION, NormPlace, RecurrentConfig, RecurrentOptions

MOST_TAPS, MOST_STATE_HEADS, MOST_STATE = 64, 1 << 12, 1 << 10


def stated_layers(fields: Fields, options: RecurrentOptions, num_layers: int) -> tuple[bool, ...] | None:
    """Of each layer, whether it is recurrent; None: no list says so. Raises ModelError: one says what is not known."""
    kinds = None if options.is_beside else fields.values.get("layer_types")
    if kinds is not None:
        known = (*ATTENTION, *options.names, *options.others)
        if not isinstance(kinds, list) or len(kinds) != num_layers or any(kind not in known for kind in kinds):
            raise fields.odd("layer_types", f"{num_layers} entries of {' or '.join(known)}")
        return tuple(kind in options.names for kind in kinds)
    attends = fields.values.get("full_attn_idxs")
    if attends is None:
        return None
    if not isinstance(attends, list) or any(type(index) is not int or not 0 <= index < num_layers for index in attends):
        raise fields.odd("full_attn_idxs", f"a list of layers, of 0 to {num_layers - 1}")
    return tuple(index not in attends for index in range(num_layers))


def short_conv_shape(
    fields: Fields, options: RecurrentOptions, layers: tuple[bool, ...], hidden_size: int
) -> RecurrentConfig:
    has_bias = fields.boolean("conv_bias", False)
    return RecurrentConfig(options, layers, _taps(fields, "conv_L_cache", 3), hidden_size, has_bias, has_bias, has_bias)


def delta_shape(
    fields: Fields, options: RecurrentOptions, layers: tuple[bool, ...], hidden_size: int
) -> RecurrentConfig:
    heads = fields.integer("linear_num_value_heads", 32, at_most=MOST_STATE_HEADS)
    key_heads = fields.integer("linear_num_key_heads", 16, at_most=MOST_STATE_HEADS)
    if heads % key_heads:
        raise fields.odd("linear_num_key_heads", f"a divisor of linear_num_value_heads ({heads})")
    key_dim = fields.integer("linear_key_head_dim", 128, at_most=MOST_WIDTH)
    value_dim = fields.integer("linear_value_head_dim", 128, at_most=MOST_WIDTH)
    return RecurrentConfig(
        options,
        layers,
        width=_taps(fields, "linear_conv_kernel_dim", 4),
        channels=2 * key_heads * key_dim + heads * value_dim,
        heads=heads,
        key_heads=key_heads,
        key_dim=key_dim,
        value_dim=value_dim,
    )


def state_space_shape(
    fields: Fields, options: RecurrentOptions, layers: tuple[bool, ...], hidden_size: int
) -> RecurrentConfig:
    heads = fields.integer("mamba_n_heads", 128, at_most=MOST_STATE_HEADS)
    groups = fields.integer("mamba_n_groups", 1, at_most=MOST_STATE_HEADS)
    if heads % groups:
        raise fields.odd("mamba_n_groups", f"a divisor of mamba_n_heads ({heads})")
    inner = fields.integer("mamba_expand", 2, at_most=MOST_WIDTH) * hidden_size
    inner = fields.integer("mamba_d_ssm", inner, at_most=MOST_OF_A_SIZE)
    named = fields.values.get("mamba_d_head", "auto")
    value_dim = inner // heads if named == "auto" else fields.integer("mamba_d_head", at_most=MOST_WIDTH)
    if options.is_wide_by_heads:
        inner = value_dim * heads
    if value_dim * heads != inner:
        raise fields.odd("mamba_n_heads", f"heads that share mamba_expand · hidden_size ({inner})")
    has_bias = fields.boolean("mamba_proj_bias", False)
    key_dim = fields.integer("mamba_d_state", 256, at_most=MOST_WIDTH)
    return RecurrentConfig(
        options,
        layers,
        width=_taps(fields, "mamba_d_conv", 4),
        channels=inner + 2 * groups * key_dim,
        has_bias=has_bias,
        has_out_bias=fields.boolean("projectors_bias", has_bias and not options.is_beside),
        has_conv_bias=fields.boolean("mamba_conv_bias", True),
        heads=heads,
        key_heads=groups,
        key_dim=key_dim,
        value_dim=value_dim,
        step_limits=_limits(fields, options),
        norm=_norm(fields, options),
    )


def selective_scan_shape(
    fields: Fields, options: RecurrentOptions, layers: tuple[bool, ...], hidden_size: int
) -> RecurrentConfig:
    channels = fields.integer("mamba_expand", 2, at_most=MOST_WIDTH) * hidden_size
    channels = fields.integer("mamba_d_ssm", channels, at_most=MOST_WIDTH)
    rank = -(-hidden_size // 16)
    if fields.values.get("mamba_dt_rank", "auto") != "auto":
        rank = fields.integer("mamba_dt_rank", at_most=MOST_WIDTH)
    has_bias = fields.boolean("mamba_proj_bias", False)
    return RecurrentConfig(
        options,
        layers,
        width=_taps(fields, "mamba_d_conv", 4),
        channels=channels,
        has_bias=has_bias,
        has_out_bias=has_bias,
        has_conv_bias=fields.boolean("mamba_conv_bias", True),
        heads=1,
        key_heads=1,
        key_dim=fields.integer("mamba_d_state", 16, at_most=MOST_STATE),
        value_dim=channels,
        step_rank=rank,
        norms_eps=fields.number("mixer_rms_eps", 1e-6) if options.norms == "plain" else 0.0,
    )


def kimi_delta_shape(
    fields: Fields, options: RecurrentOptions, layers: tuple[bool, ...], hidden_size: int
) -> RecurrentConfig:
    heads = fields.integer("linear_num_heads", 32, at_most=MOST_STATE_HEADS)
    dim = fields.integer("linear_head_dim", 128, at_most=MOST_WIDTH)
    return _of_heads(options, layers, _taps(fields, "linear_conv_kernel_dim", 4), heads, dim)


def lightning_shape(
    fields: Fields, options: RecurrentOptions, layers: tuple[bool, ...], hidden_size: int
) -> RecurrentConfig:
    """Heads that share the width, without a convolution."""
    heads = fields.integer("num_attention_heads", 32, at_most=MOST_STATE_HEADS)
    return _of_heads(
        options, layers, 0, heads, fields.integer("head_dim", max(1, hidden_size // heads), at_most=MOST_WIDTH)
    )


def _of_heads(options: RecurrentOptions, layers: tuple[bool, ...], taps: int, heads: int, dim: int) -> RecurrentConfig:
    """Heads of their own keys, as wide as their values."""
    return RecurrentConfig(
        options, layers, taps, 3 * heads * dim, heads=heads, key_heads=heads, key_dim=dim, value_dim=dim
    )


def _taps(fields: Fields, key: str, default: int) -> int:
    width = fields.integer(key, default, at_most=MOST_TAPS)
    if width < 2:
        raise fields.odd(key, "at least 2 taps")
    return width


def _norm(fields: Fields, options: RecurrentOptions) -> NormPlace:
    if not options.is_beside:
        return "after gate"
    if not fields.boolean("mamba_rms_norm", False):
        return "none"
    return "before gate" if fields.boolean("mamba_norm_before_gate", True) else "after gate"


def _limits(fields: Fields, options: RecurrentOptions) -> tuple[float, float]:
    """`time_step_limit`, in which transformers writes infinity as an object of its own."""
    if options.least_step:
        return fields.number(options.least_step, 1e-3, above=-1.0), math.inf
    found = fields.values.get("time_step_limit", [0.0, math.inf])
    if found is None:
        found = [0.0, math.inf]
    if not isinstance(found, list) or len(found) != 2:
        raise fields.odd("time_step_limit", "two numbers")
    low, high = (math.inf if one == {"__float__": "Infinity"} else one for one in found)
    if any(isinstance(one, bool) or not isinstance(one, int | float) for one in (low, high)) or not (
        0 <= low < MOST_OF_A_NUMBER and low < high and (high < MOST_OF_A_NUMBER or high == math.inf)
    ):
        raise fields.odd("time_step_limit", "two rising numbers")
    return float(low), float(high)
