"""Layers that keep a state, most of them instead of keys and values: which they are, and how large a state is.

A state takes the place of all earlier tokens, so its size does not grow with them. Knows no tensors; what one kind of
layer is, is in `recurrent_kinds`. Sources: short
convolutions LFM2 (arXiv 2511.23404); Gated DeltaNet arXiv 2412.06464, as Qwen3-Next has it; Mamba arXiv 2312.00752,
as Jamba has it too (2403.19887); Mamba 2 arXiv 2405.21060, as Granite 4 has it; Kimi
Delta Attention arXiv 2510.26692; lightning attention arXiv 2501.08313.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Kind = Literal["short_conv", "delta", "state_space", "selective_scan", "kimi_delta", "lightning"]
Norms = Literal["none", "weights", "plain"]
NormPlace = Literal["after gate", "before gate", "none"]
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
        fuses_rates: one matrix makes what is forgotten and learnt, key head by key head (Qwen3-Next, in GGUF too).
        is_beside: all layers have one, beside attention (Falcon-H1).
        is_wide_by_heads: its width is that of its heads, whatever `mamba_expand` says (Nemotron-H).
        norms: of steps, B and C of a selective scan: learned, or without weights.
        has_rates: rates are stored as they are used, below 0, and not as logarithms (GGUF).
        least_step: the key of the least step; "": `time_step_limit` says.
    """

    kind: Kind
    base: str
    names: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    out: str = "out_proj"
    is_fused: bool = False
    fuses_rates: bool = False
    is_beside: bool = False
    is_wide_by_heads: bool = False
    norms: Norms = "none"
    has_rates: bool = False
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
    norm: NormPlace = "after gate"
    step_rank: int = 0
    norms_eps: float = 0.0

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
