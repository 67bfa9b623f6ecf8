"""Layers that keep a state instead of keys and values: which they are, and how large a state is.

A state takes the place of all earlier tokens, so its size does not grow with them; see `kernels/state_rounds.py`. Knows
no tensors. Sources: short convolutions LFM2 (arXiv 2511.23404); Gated DeltaNet arXiv 2412.06464, as Qwen3-Next has it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from .json_file import MOST_WIDTH, Fields

Kind = Literal["short_conv", "delta"]
MOST_TAPS, MOST_STATE_HEADS = 64, 1 << 12


@dataclass(frozen=True, slots=True)
class RecurrentOptions:
    """What an architecture means by its recurrent layers.

    Attributes:
        kind: what they do.
        base: of their tensors' names, below `model.layers.<i>.`.
        names: which entries of `layer_types` mean one.
        is_fused: one matrix makes queries, keys, values and gates, key head by key head (Qwen3-Next).
    """

    kind: Kind
    base: str
    names: tuple[str, ...]
    is_fused: bool = False


@dataclass(frozen=True, slots=True)
class RecurrentConfig:
    """The recurrent layers of a model, all of one shape.

    Attributes:
        layers: of each layer, whether it is recurrent.
        width: taps of the convolution: a token meets this many inputs, its own included.
        channels: of the convolution.
        has_bias: of the projections and the convolution of `short_conv`.
        heads, key_heads, key_dim, value_dim: of the delta rule, whose state is `[heads, key_dim, value_dim]`; 0 else.
    """

    options: RecurrentOptions
    layers: tuple[bool, ...]
    width: int
    channels: int
    has_bias: bool = False
    heads: int = 0
    key_heads: int = 0
    key_dim: int = 0
    value_dim: int = 0

    @staticmethod
    def from_fields(fields: Fields, options: RecurrentOptions, num_layers: int, hidden_size: int) -> RecurrentConfig:
        """Raises ModelError: a number that is missing or odd."""
        layers = _layers(fields, options, num_layers)
        if options.kind == "short_conv":
            width = fields.integer("conv_L_cache", 3, at_most=MOST_TAPS)
            if width < 2:
                raise fields.odd("conv_L_cache", "at least 2 taps")
            return RecurrentConfig(options, layers, width, hidden_size, fields.boolean("conv_bias", False))
        width = fields.integer("linear_conv_kernel_dim", 4, at_most=MOST_TAPS)
        if width < 2:
            raise fields.odd("linear_conv_kernel_dim", "at least 2 taps")
        heads = fields.integer("linear_num_value_heads", 32, at_most=MOST_STATE_HEADS)
        key_heads = fields.integer("linear_num_key_heads", 16, at_most=MOST_STATE_HEADS)
        if heads % key_heads:
            raise fields.odd("linear_num_key_heads", f"a divisor of linear_num_value_heads ({heads})")
        key_dim = fields.integer("linear_key_head_dim", 128, at_most=MOST_WIDTH)
        value_dim = fields.integer("linear_value_head_dim", 128, at_most=MOST_WIDTH)
        channels = 2 * key_heads * key_dim + heads * value_dim
        return RecurrentConfig(options, layers, width, channels, False, heads, key_heads, key_dim, value_dim)

    @property
    def attended_size(self) -> int:
        """Inputs of a layer's output projection."""
        return self.heads * self.value_dim if self.heads else self.channels

    @property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The tensors of one layer's state, fp32: last inputs of the convolution, and what the delta rule keeps."""
        convolved = (self.width - 1, self.channels)
        return (convolved, (self.heads, self.key_dim, self.value_dim)) if self.heads else (convolved,)

    @property
    def num_state_bytes(self) -> int:
        """Bytes of the state of one sequence, in all layers."""
        return 4 * sum(self.layers) * sum(math.prod(shape) for shape in self.state_shapes)

    @property
    def num_fp32(self) -> int:
        """Numbers of a layer that are kept in fp32: the convolution, the heads' rates and their biases, their norm."""
        convolution = (self.width + self.has_bias) * self.channels
        return convolution + (2 * self.heads + self.value_dim if self.heads else 0)

    @property
    def num_biases(self) -> int:
        """Of a layer's first projection."""
        return 3 * self.channels * self.has_bias

    def shapes(self, hidden_size: int) -> list[tuple[int, int]]:
        """(Outputs, inputs) of a layer's matrices."""
        out = (hidden_size, self.attended_size)
        if not self.heads:
            return [(3 * hidden_size, hidden_size), out]
        return [(self.channels + self.attended_size, hidden_size), (2 * self.heads, hidden_size), out]


def _layers(fields: Fields, options: RecurrentOptions, num_layers: int) -> tuple[bool, ...]:
    kinds = fields.values.get("layer_types")
    if kinds is not None:
        known = ("full_attention", *options.names)
        if not isinstance(kinds, list) or len(kinds) != num_layers or any(kind not in known for kind in kinds):
            raise fields.odd("layer_types", f"{num_layers} entries of {' or '.join(known)}")
        return tuple(kind in options.names for kind in kinds)
    attends = fields.values.get("full_attn_idxs")
    if isinstance(attends, list):
        return tuple(index not in attends for index in range(num_layers))
    if options.kind == "short_conv":
        return (False,) * num_layers
    every = fields.integer("full_attention_interval", 4)
    return tuple((index + 1) % every != 0 for index in range(num_layers))
