"""What a layer makes of hidden states after attention: an MLP, a mixture of experts, or both beside each other.

::

    normed ─ gate·up ─(sparse)─ activation ─ down ─┐
    normed ─ router, chosen experts ───────────────┴─ one of them, or both (`beside_mlp.py`)

Knows no order of layers and no residual sums. In fp32 on the CPU a row's bits depend on that row alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ...kernels import Gate, LoraPlan, ops
from .beside_mlp import add_mixture
from .cut import Cut
from .experts import ExpertRules, mixture
from .gateless import bend
from .head_norms import norm_inner
from .layer_weights import LayerWeights
from .norms import scaled
from .partial_linear import AT_DOWN, AT_GATE_UP, adapted_linear
from .sparse_gate import sparsen


@dataclass(frozen=True, slots=True)
class MlpRules:
    """What the MLPs of all layers have in common; experts: None, there are none."""

    cut: Cut
    gate: Gate
    experts: ExpertRules | None

    @staticmethod
    def of(cut: Cut) -> MlpRules:
        return MlpRules(cut, Gate(cut.config.activation), ExpertRules.of(cut.config, cut.experts))


def run_mlp(
    normed: Tensor,
    weights: LayerWeights,
    rules: MlpRules,
    index: int,
    slots: Tensor | None,
    lora: LoraPlan | None,
    residual: Tensor,
) -> Tensor:
    """What layer `index` makes of hidden states `[T, C]`, `[T, C]`: the sum of all ranks.

    residual: the same before the norm. slots: `[T]` int64; rows below 0 only fill a step up.
    """
    config, ranks, experts = rules.cut.config, rules.cut.ranks, weights.experts
    if experts is not None and rules.experts is not None and weights.beside_norms is None:
        return ranks.sum(mixture(normed, experts, rules.experts, slots, ranks))
    assert weights.gate_up is not None
    assert weights.down is not None
    gate_up, curve, factors = (
        adapted_linear(normed, weights.gate_up, lora, index, AT_GATE_UP),
        config.curve,
        config.factors,
    )
    if factors.gate != 1.0:
        gate_up[:, : gate_up.shape[1] // 2] *= factors.gate
    sparsen(gate_up, config.layers[index].sparsity, ranks)
    inner = ops.gated(gate_up, rules.gate) if curve is None else bend(gate_up, curve, weights.curve)
    inner = norm_inner(inner, weights.down_norm, rules.cut.inner(index), ranks, config.rms_norm_eps)
    made = scaled(adapted_linear(inner, weights.down, lora, index, AT_DOWN, ranks), factors.down)
    if experts is None or rules.experts is None or weights.beside_norms is None:
        return ranks.sum(made)
    return add_mixture(made, residual, weights.beside_norms, experts, rules.experts, slots, ranks, config.rms_norm_eps)
