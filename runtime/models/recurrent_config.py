"""Layers that keep a state, most of them instead of keys and values: which they are, and how large a state is.

A state takes the place of all earlier tokens, so its size does not grow with them. Knows no tensors. Sources: short
convolutions LFM2 (arXiv 2511.23404); Gated DeltaNet arXiv 2412.06464, as Qwen3-Next has it; Mamba arXiv 2312.00752,
as Jamba has it too (2403.19887); Mamba 2 arXiv 2405.21060, as Granite 4 has it; Kimi
Delta Attention arXiv 2510.26692; lightning attention arXiv 2501.08313.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from .json_file import MOST_OF_A_NUMBER, MOST_OF_A_SIZE, MOST_WIDTH, Fields

Kind = Literal["short_conv", "delta", "state_space", "selective_scan", "kimi_delta", "lightning"]
Norms = Literal["none", "weights", "plain"]
Norm = Literal["after gate", "before gate", "none"]
MOST_TAPS, MOST_STATE_HEADS, MOST_STATE = 64, 1 << 12, 1 << 10
ATTENTION = ("full_attention", "attention")  # entries of `layer_types`


@dataclass(frozen=True, slots=True)
class RecurrentOptions:
    """What an architecture means by its recurrent layers.

    Attributes:
        kind: what they do.
        base: of their tensors' names, below `model.layers.<i>.`.
        names, others: which entries of `layer_types` mean one, and which mean neither one nor attention.
        out: name of the last projection.
        is_fused: one matrix makes queries, keys, values and gates, key head by key head (Qwen3-Next).
        is_beside: all layers have one, beside attention (Falcon-H1).
        is_wide_by_heads: its width is that of its heads, whatever `mamba_expand` says (Nemotron-H).
        norms: of steps, B and C of a selective scan: learned, or without weights.
        least_step: the key of the least step; "": `time_step_limit` says.
    """

    kind: Kind
    base: str
    names: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    out: str = "out_proj"
    is_fused: bool = False
    is_beside: bool = False
    is_wide_by_heads: bool = False
    norms: Norms = "none"
    least_step: str = ""


@dataclass(frozen=True, slots=True)
class RecurrentConfig:
    """The recurrent layers of a model, all of one shape.

    Attributes:
        layers: of each layer, whether it is recurrent.
        width: taps of the convolution: a token meets this many inputs, its own included; 0: there is none.
        channels: of the convolution.
        has_bias, has_out_bias: of the projections.
        has_conv_bias: of the convolution.
        heads, key_heads, key_dim, value_dim: of the delta rule and of state spaces, whose state is `[heads, key_dim,
            value_dim]`; 0 else. All channels of a selective scan are one head.
        step_rank: width from which a selective scan's steps are made.
        norms_eps: of its norms; 0: that of all others.
        step_limits: between which a state space's steps are kept.
        norm: of a state space's groups, before its gate or after it.
    """

    options: RecurrentOptions
    layers: tuple[bool, ...]
    width: int
    channels: int
    has_bias: bool = False
    has_out_bias: bool = False
    has_conv_bias: bool = False
    heads: int = 0
    key_heads: int = 0
    key_dim: int = 0
    value_dim: int = 0
    step_limits: tuple[float, float] = (0.0, math.inf)
    norm: Norm = "after gate"
    step_rank: int = 0
    norms_eps: float = 0.0

    @staticmethod
    def from_fields(fields: Fields, options: RecurrentOptions, num_layers: int, hidden_size: int) -> RecurrentConfig:
        """Raises ModelError: a number that is missing or odd."""
        layers = _layers(fields, options, num_layers)
        if options.kind == "short_conv":
            has_bias = fields.boolean("conv_bias", False)
            taps = _taps(fields, "conv_L_cache", 3)
            return RecurrentConfig(options, layers, taps, hidden_size, has_bias, has_bias, has_bias)
        if options.kind == "state_space":
            return _state_space(fields, options, layers, hidden_size)
        if options.kind == "selective_scan":
            return _selective_scan(fields, options, layers, hidden_size)
        if options.kind == "kimi_delta":
            return _of_heads(fields, options, layers, "linear_num_heads", "linear_head_dim", 128)
        if options.kind == "lightning":
            return _of_heads(fields, options, layers, "num_attention_heads", "head_dim", hidden_size)
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

    @property
    def attended_size(self) -> int:
        """Inputs of a layer's output projection."""
        return self.heads * self.value_dim if self.heads else self.channels

    @property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The tensors of one layer's state, fp32: last inputs of the convolution, and the heads' matrices."""
        convolved = (self.width - 1, self.channels)
        if not self.width:
            return ((self.heads, self.key_dim, self.value_dim),)
        return (convolved, (self.heads, self.key_dim, self.value_dim)) if self.heads else (convolved,)

    @property
    def num_state_bytes(self) -> int:
        """Bytes of the state of one sequence, in all layers."""
        return 4 * sum(self.layers) * sum(math.prod(shape) for shape in self.state_shapes)

    @property
    def num_fp32(self) -> int:
        """Numbers of a layer that are kept in fp32: the convolution, what heads have for themselves, their norm."""
        convolution = (self.width + self.has_conv_bias) * self.channels
        num_chosen = self.step_rank + 2 * self.key_dim if self.options.norms != "none" else 0
        heads = {
            "short_conv": 0,
            "delta": 2 * self.heads + self.value_dim,
            "kimi_delta": self.heads + self.attended_size + self.value_dim,
            "lightning": 2 * self.heads + self.attended_size,
            "selective_scan": (self.key_dim + 2) * self.channels + num_chosen,
        }
        num_norm = 0 if self.norm == "none" else self.attended_size
        return convolution + heads.get(self.options.kind, 3 * self.heads + num_norm)

    def num_biases(self, hidden_size: int) -> int:
        """Of a layer's first projection and its last."""
        return self.has_bias * self.shapes(hidden_size)[0][0] + self.has_out_bias * hidden_size

    def shapes(self, hidden_size: int) -> list[tuple[int, int]]:
        """(Outputs, inputs) of a layer's matrices."""
        out = (hidden_size, self.attended_size)
        if self.options.kind == "short_conv":
            return [(3 * self.channels, hidden_size), out]
        if self.options.kind == "delta":
            return [(self.channels + self.attended_size, hidden_size), (2 * self.heads, hidden_size), out]
        if self.options.kind == "kimi_delta":
            narrow, wide = (2 * self.value_dim, hidden_size), (self.attended_size, self.value_dim)
            return [(self.channels, hidden_size), (self.heads, hidden_size), narrow, wide, wide, out]
        if self.options.kind == "lightning":
            return [(self.channels, hidden_size), (self.attended_size, hidden_size), out]
        if self.options.kind == "selective_scan":
            chosen, spread = (self.step_rank + 2 * self.key_dim, self.channels), (self.channels, self.step_rank)
            return [(2 * self.channels, hidden_size), chosen, spread, out]
        return [(self.attended_size + self.channels + self.heads, hidden_size), out]


def _taps(fields: Fields, key: str, default: int) -> int:
    width = fields.integer(key, default, at_most=MOST_TAPS)
    if width < 2:
        raise fields.odd(key, "at least 2 taps")
    return width


def _state_space(
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


def _selective_scan(
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


def _of_heads(
    fields: Fields, options: RecurrentOptions, layers: tuple[bool, ...], heads_key: str, dim_key: str, width: int
) -> RecurrentConfig:
    """Heads of their own keys, as wide as their values; lightning attention, whose heads share `width`, has no taps."""
    heads = fields.integer(heads_key, 32, at_most=MOST_STATE_HEADS)
    is_kimi = options.kind == "kimi_delta"
    dim = fields.integer(dim_key, width if is_kimi else max(1, width // heads), at_most=MOST_WIDTH)
    taps = _taps(fields, "linear_conv_kernel_dim", 4) if is_kimi else 0
    return RecurrentConfig(
        options, layers, taps, 3 * heads * dim, heads=heads, key_heads=heads, key_dim=dim, value_dim=dim
    )


def _norm(fields: Fields, options: RecurrentOptions) -> Norm:
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


def _layers(fields: Fields, options: RecurrentOptions, num_layers: int) -> tuple[bool, ...]:
    kinds = None if options.is_beside else fields.values.get("layer_types")
    if kinds is not None:
        known = (*ATTENTION, *options.names, *options.others)
        if not isinstance(kinds, list) or len(kinds) != num_layers or any(kind not in known for kind in kinds):
            raise fields.odd("layer_types", f"{num_layers} entries of {' or '.join(known)}")
        return tuple(kind in options.names for kind in kinds)
    attends = fields.values.get("full_attn_idxs")
    if attends is not None:
        if not isinstance(attends, list) or any(
            type(index) is not int or not 0 <= index < num_layers for index in attends
        ):
            raise fields.odd("full_attn_idxs", f"a list of layers, of 0 to {num_layers - 1}")
        return tuple(index not in attends for index in range(num_layers))
    if options.kind != "delta":
        return (options.kind != "short_conv",) * num_layers
    every = fields.integer("full_attention_interval", 4)
    return tuple((index + 1) % every != 0 for index in range(num_layers))
