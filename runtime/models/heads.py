"""Queries, keys and values of attention heads, from the rows of a projection to the cache.

::

    rows ─┬─ q ─ norm ─ turned ──────── queries
          ├─ k ─ norm ─ turned ─┬────── cache       a layer that reads the keys and values of an earlier one
          ├─ v ─(norm)──────────┘                   (`LayerConfig.kv_of`) has rows of queries alone; values may be
          └─ gate                                   made of the same rows as keys (`LayerConfig.reuses_keys`)

Knows no layers' order and no plan of attention. In fp32 on the CPU a row's bits depend on that row alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...kernels import ops
from .cut import Cut
from .head_norms import norm_own, norm_whole
from .layer_weights import LayerWeights
from .step import KVTensors


def place_heads(
    heads: Tensor,
    layer: LayerWeights,
    cut: Cut,
    index: int,
    positions: Tensor,
    cos_sin: Tensor | None,
    kv_cache: KVTensors,
    kept: int,
    slots: Tensor,
) -> tuple[Tensor, Tensor | None]:
    """Queries `[T, H, head_dim]` and the gate of what they will find, `[T, H · head_dim]` (None: there is none); keys
    and values are in the tensors `kept` of the cache then.

    heads: rows `[T, n · head_dim]` of layer `index`, undefined afterwards. cos_sin: of the layer's positions; None: it
    has none.
    """
    config, eps = cut.config, cut.config.rms_norm_eps
    kv, reuses_keys = config.kv_shape(index), config.layers[index].reuses_keys
    sizes = [
        config.num_heads,
        *[kv.num_heads] * (2 - reuses_keys),
        *[config.num_heads] * config.options.gated_attention,
    ]
    q, k, *rest = torch.split(heads.view(len(positions), -1, kv.head_dim), sizes, dim=1)
    v, *gate = [k, *rest] if reuses_keys else rest
    if layer.v_norm is not None:  # in memory of its own, so that keys may change where they are
        v = ops.rms_norm(v, layer.v_norm, eps)
    norms = None
    if layer.q_norm is not None and layer.k_norm is not None:
        if config.options.whole_norms:
            q = norm_whole(q, layer.q_norm, cut.heads, cut.ranks, eps)
            k = norm_whole(k, layer.k_norm, cut.kv_heads(index), cut.ranks, eps)
        elif config.options.own_norms:
            q, k = norm_own(q, layer.q_norm, eps), norm_own(k, layer.k_norm, eps)
        else:
            norms = layer.q_norm, layer.k_norm
    if config.options.norms_after_rope and norms is not None:
        if cos_sin is not None:
            ops.apply_rope(q, k, positions, cos_sin)
        q, k = ops.rms_norm(q, norms[0], eps), ops.rms_norm(k, norms[1], eps)
        norms = cos_sin = None
    scales = kv_cache.key_scales[kept], kv_cache.value_scales[kept]
    places = kv_cache.keys[kept], kv_cache.values[kept], slots
    q = ops.place_heads(q, k, v, positions, cos_sin, norms, eps, *places, *scales)
    return q, gate[0].flatten(1) if gate else None


def queries(q: Tensor, norm: Tensor | None, eps: float, positions: Tensor, cos_sin: Tensor | None) -> Tensor:
    """Normed and turned, `[T, H, head_dim]`, of a layer whose keys and values are those of another."""
    if norm is not None:
        q = ops.rms_norm(q, norm, eps)
    if cos_sin is not None:
        ops.apply_rope(q, q[:, :0], positions, cos_sin)
    return q
