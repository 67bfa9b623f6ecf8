"""Which layers of a decoder one compiled call of the CPU takes together, and that call (`kernels/cpu/dense_layers.py`).

They are all but the last, of which only some rows are wanted, where each of them is attention over all keys and a gated
MLP with an RMS norm before each, as in Llama, Qwen 2 and 3, Phi-3 and SmolLM. Knows weights; it knows no step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from itertools import pairwise

from torch import Tensor

from ...kernels.cpu.dense_layers import DenseLayer, DenseLayers
from ...kernels.cpu.elementwise import GATES
from ...kernels.gate import Gate
from ..parallel.ranks import Ranks
from .config import ModelConfig
from .factors import Factors
from .layer_config import LayerConfig
from .layer_weights import LayerWeights

_READ = {"input_norm", "qkv", "q_norm", "k_norm", "o", "mlp_norm", "gate_up", "down"}
_OTHERS = [field.name for field in fields(LayerWeights) if field.name not in _READ]


def plain_layers(
    config: ModelConfig, layers: Sequence[tuple[LayerConfig, LayerWeights]], gate: Gate, ranks: Ranks
) -> DenseLayers | None:
    """All layers but the last; None: at least one of them is not as above, or not in fp32 on the CPU."""
    rope, options = layers[0][0].rope, config.options
    norms = options.own_norms or options.whole_norms or options.norms_after_rope
    if len(layers) < 2 or ranks.size > 1 or options.parallel or options.gated_attention or norms:
        return None
    is_scaled = config.residual_scale != 1.0 or config.factors != Factors()
    if is_scaled or gate.kind not in GATES or config.curve is not None or config.hidden_size % 8:
        return None
    found = []
    for (spec, weights), (_, following) in pairwise(layers):
        layer = _dense_layer(weights, following)
        if spec != LayerConfig(0, rope) or layer is None or not layer.is_readable(config.head_dim):
            return None
        found.append(layer)
    return DenseLayers(
        found,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        gate=gate,
        eps=config.rms_norm_eps,
        scale=config.attention_scale,
        soft_cap=config.attention_soft_cap,
    )


def _dense_layer(weights: LayerWeights, following: LayerWeights) -> DenseLayer | None:
    """None: the layer has other weights, or not all of these."""
    others = [getattr(weights, name) for name in _OTHERS]
    if any(other is not None and not isinstance(other, float) for other in others) or weights.scalar != 1.0:
        return None
    qkv, o, gate_up, down = weights.qkv, weights.o, weights.gate_up, weights.down
    mlp_norm, next_norm = weights.mlp_norm, following.input_norm
    if qkv is None or o is None or gate_up is None or down is None:
        return None
    if not (isinstance(weights.input_norm, Tensor) and isinstance(mlp_norm, Tensor) and isinstance(next_norm, Tensor)):
        return None
    return DenseLayer(qkv, o, gate_up, down, weights.q_norm, weights.k_norm, mlp_norm, next_norm)
