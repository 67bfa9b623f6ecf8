"""Factors on activations that a configuration names one by one (Falcon-H1, MiniMax). Knows no tensors.

::

    normed · attention_in ── attention ── · attention_out ┐
    normed · recurrent_in ── recurrent ── · recurrent_out ┴ +

Those on keys, embeddings and logits are folded into `ModelConfig.attention_scale`, `embedding_scale` and `width_scale`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .architecture import Architecture
from .json_file import Fields


@dataclass(frozen=True, slots=True)
class Factors:
    """Attributes:

    attention_in, attention_out, recurrent_in, recurrent_out: on what goes into these and comes out of them.
    gate, down: on the gate of an MLP, and on what the MLP makes.
    keeps: on the normed input that is added to what a recurrent mixer, attention and an MLP make; (): none is.
    adds: on what these make.
    sections: on what a state space's first projection makes: gate, x, B, C and steps.
    """

    attention_in: float = 1.0
    attention_out: float = 1.0
    recurrent_in: float = 1.0
    recurrent_out: float = 1.0
    gate: float = 1.0
    down: float = 1.0
    sections: tuple[float, ...] = (1.0,) * 5
    keeps: tuple[float, ...] = ()
    adds: tuple[float, ...] = (1.0, 1.0, 1.0)

    @staticmethod
    def from_fields(fields: Fields) -> Factors:
        """Raises ModelError: one is no number."""

        def several(key: str, count: int) -> tuple[float, ...]:
            if key not in fields:
                return (1.0,) * count
            found = fields.numbers(key)
            if len(found) != count:
                raise fields.odd(key, f"{count} numbers")
            return found

        gate, down = several("mlp_multipliers", 2)
        return Factors(
            attention_in=fields.number("attention_in_multiplier", 1.0),
            attention_out=fields.number("attention_out_multiplier", 1.0),
            recurrent_in=fields.number("ssm_in_multiplier", 1.0),
            recurrent_out=fields.number("ssm_out_multiplier", 1.0),
            gate=gate,
            down=down,
            sections=several("ssm_multipliers", 5),
        )

    @staticmethod
    def of_normed(fields: Fields) -> Factors:
        """MiniMax's. Raises ModelError: one is no number."""

        def several(which: str) -> tuple[float, ...]:
            return tuple(fields.number(f"{part}_{which}_factor", 1.0) for part in ("linear_attn", "full_attn", "mlp"))

        return Factors(keeps=several("alpha"), adds=several("beta"))


def embedding_scale(fields: Fields, options: Architecture, hidden_size: int) -> float:
    """On token embeddings."""
    if isinstance(options.scale_embedding, str):
        return fields.number(options.scale_embedding, 1.0)
    return math.sqrt(hidden_size) if options.scale_embedding else 1.0


def residual_scale(fields: Fields, options: Architecture, num_layers: int) -> float:
    """On what attention and MLP add."""
    if options.multipliers:
        return fields.number("residual_multiplier", 1.0)
    depth = math.sqrt(num_layers)
    return fields.number("scale_depth", depth) / depth if options.depth_scale else 1.0


def width_scale(fields: Fields, options: Architecture, hidden_size: int) -> float:
    """On the last hidden state."""
    if options.multipliers:
        return 1.0 / fields.number("logits_scaling", 1.0)
    if options.logit_scale:
        return fields.number(options.logit_scale, 1.0)
    return fields.number("dim_model_base", hidden_size) / hidden_size if options.width_scale else 1.0
