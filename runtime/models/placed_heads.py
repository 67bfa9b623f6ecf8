"""From one projection to the cache: queries, keys and values of a layer whose heads have their own.

::

    projection ─ split ─┬─ queries ─ norm ─ rope ───────────────► returned
                        ├─ keys ──── norm ─ rope ──► the cache
                        ├─ values (or the keys once more) ─(norm)─► the cache
                        └─ gates ───────────────────────────────► returned

Which of these there are, and in which order, is the architecture's.
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
    made: Tensor,
    layer: LayerWeights,
    cut: Cut,
    index: int,
    positions: Tensor,
    table: Tensor | None,
    kv_cache: KVTensors,
    kept: int,
    slots: Tensor,
) -> tuple[Tensor, Tensor | None]:
    """Queries `[T, H, head_dim]` and their gates `[T, H · head_dim]`; None: there are none.

    Args:
        made: what the projection of layer `index` made, `[T, rows]`.
        table: of `rope_table`; None: the layer has no positions.
        kept: the layer's place in the cache.
    """
    config, options = cut.config, cut.config.options
    eps, kv = config.rms_norm_eps, config.kv_shape(index)
    heads = made.view(len(positions), -1, kv.head_dim)
    reuses_keys = config.layers[index].reuses_keys
    sizes = [config.num_heads, kv.num_heads] + [kv.num_heads] * (not reuses_keys)
    q, k, *rest = torch.split(heads, sizes + [config.num_heads] * options.gated_attention, dim=1)
    v = k if reuses_keys else rest.pop(0)
    if layer.v_norm is not None:  # a copy, so that the keys may be turned where they are
        v = ops.rms_norm(v, layer.v_norm, eps)
    norms = None
    if layer.q_norm is not None and layer.k_norm is not None:
        if options.whole_norms:
            q = norm_whole(q, layer.q_norm, cut.heads, cut.ranks, eps)
            k = norm_whole(k, layer.k_norm, cut.kv_heads, cut.ranks, eps)
        elif options.own_norms:
            q, k = norm_own(q, layer.q_norm, eps), norm_own(k, layer.k_norm, eps)
        else:
            norms = layer.q_norm, layer.k_norm
    if options.norms_after_rope and norms is not None:
        if table is not None:
            ops.apply_rope(q, k, positions, table)
        q, k = ops.rms_norm(q, norms[0], eps), ops.rms_norm(k, norms[1], eps)
        norms = table = None
    scales = kv_cache.key_scales[kept], kv_cache.value_scales[kept]
    caches = kv_cache.keys[kept], kv_cache.values[kept]
    return ops.place_heads(q, k, v, positions, table, norms, eps, *caches, slots, *scales), (
        rest[0].flatten(1) if rest else None
    )
