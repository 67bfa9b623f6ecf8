"""Norms of queries and keys before RoPE, or after it, and norms over what all ranks have: those that no kernel has.

::

    of a head     RMSNorm, one weight for all heads          [head_dim]         in `ops.place_heads`
    whole         RMSNorm over all heads together            [H · head_dim]     OLMo 2
    own           LayerNorm, each head with its own weight   [H, head_dim]      Command R+, StableLM 2 12B

In fp32 on the CPU a row's bits depend on that row alone.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ...kernels import ops
from ..parallel.ranks import Ranks
from .pair_order import head_order
from .part import Part
from .reader import Reader


def read_head_norms(reader: Reader, base: str, index: int) -> tuple[Tensor | None, Tensor | None]:
    """The weights of queries and keys of a layer that attends, below `base`; of its own norms this rank's heads. Keys
    have none where the layer reads those of another.

    Raises:
        ModelError: one is missing or odd.
    """
    config, names, cut = reader.config, reader.config.options.names, reader.cut
    options, dim = config.options, config.kv_shape(index).head_dim
    if not options.qk_norm or (options.weightless_norms and config.layers[index].rope < 0):
        return None, None
    if options.weightless_norms:
        ones = torch.ones(dim, device=reader.device)
        return ones, ones
    if options.own_norms:
        return _read_own(reader, f"{base}{names.q_norm}", cut.heads), _read_own(
            reader, f"{base}{names.k_norm}", cut.kv_heads(index)
        )
    sizes = [dim, dim]
    if options.whole_norms:  # on every rank: a norm is of all heads
        sizes = [number * dim for number in (cut.whole.num_heads, cut.whole.num_kv_heads)]
    q_norm = reader.norm(f"{base}{names.q_norm}.weight", sizes[0])
    keeps_kv = config.layers[index].keeps_kv
    return q_norm, reader.norm(f"{base}{names.k_norm}.weight", sizes[1]) if keeps_kv else None


def read_value_norm(reader: Reader, index: int) -> Tensor | None:
    """Ones, by which values are normed without weights; None: they are not, or the layer has none of its own."""
    config = reader.config
    if not config.options.norms_values or not config.layers[index].keeps_kv:
        return None
    return torch.ones(config.kv_shape(index).head_dim, device=reader.device)


def _read_own(reader: Reader, name: str, heads: Part) -> Tensor:
    """One tensor, or one for each head where the name has a place for its number."""
    dim, order = reader.config.head_dim, head_order(reader.config)
    if "{}" in name:
        parts = [f"{name.format(head)}.weight" for head in range(heads.size)]
        weight = heads.of(reader.tensor(parts, [dim] * heads.size, []).view(heads.size, dim), 0)
    else:
        weight = reader.tensor([f"{name}.weight"], [heads], [dim])
    return weight.float() if order is None else weight[:, order].float()


def norm_own(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Every head of `[T, H, head_dim]` by itself, computed in fp32."""
    return (F.layer_norm(x.float(), x.shape[-1:], None, None, eps) * weight).to(x.dtype)


def norm_whole(x: Tensor, weight: Tensor, own: Part, ranks: Ranks, eps: float) -> Tensor:
    """One norm over the heads of all ranks, `[T, H, head_dim]`; heads that are on several ranks count once."""
    copies = ranks.size * own.count // own.size
    whole = torch.cat(ranks.gather(x.flatten(1))[::copies], 1)
    return own.of(ops.rms_norm(whole, weight, eps).view(len(x), own.size, -1), 1)


def read_inner_norm(reader: Reader, module: str, own: Part) -> Tensor:
    """The weights of a norm over the inputs of a last projection on all ranks, fp32."""
    return reader.norm(f"{module}.weight", own.size)


def norm_inner(x: Tensor, weight: Tensor | None, own: Part, ranks: Ranks, eps: float) -> Tensor:
    """One norm over the inputs of a last projection on all ranks, of which this one has `[T, K]`; None: as it is."""
    return x if weight is None else norm_whole(x[..., None], weight, own, ranks, eps).flatten(1)
