"""What an MLP makes between its projections, of gates and what they open, or of single numbers. Knows no linear map."""

from __future__ import annotations

from torch import Tensor

from ...kernels import Gate, ops
from .cut import Cut
from .gateless import bend
from .head_norms import norm_inner
from .layer_weights import LayerWeights


def activated(gate_up: Tensor, weights: LayerWeights, cut: Cut, gate: Gate) -> Tensor:
    """`[T, 2F]`, or `[T, F]` without a gate, IN PLACE where the gate has a factor -> `[T, F]`, F of this rank."""
    config = cut.config
    if config.factors.gate != 1.0:
        gate_up[:, : gate_up.shape[1] // 2] *= config.factors.gate
    inner = ops.gated(gate_up, gate) if config.curve is None else bend(gate_up, config.curve, weights.curve)
    return norm_inner(inner, weights.down_norm, cut.inner, cut.ranks, config.rms_norm_eps)
