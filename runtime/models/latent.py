"""Multi-head latent attention with absorbed projections (MLA, DeepSeek-V2, arXiv 2405.04434, section 2.1.2).

Keys and values of all heads are projections of one latent per token. Scores and sums are linear in them, so the
projections move to the other side of the attention, and the cache keeps latents alone::

    hidden ─ down ─┬─ query latent ─ norm ─ up ─ per head ┬ plain ─ · key projection ─┐
                   │                                      └ rotary ─ turned ──────────┴─ query, as wide as the cache
                   ├─ latent ─ norm ───────────┐
                   └─ rotary key ─ turned ─────┴─ written to the cache, once for all heads

    query · cache ─ softmax ─ sum of latents, per head ─ · value projection ─ output

Invariant: what is written depends on the token and what came before it, never on the step. Cost: the cache is `rank +
rotary_dim` numbers a token and layer (576 for 2 · 16 heads of 128: a seventh of plain heads); a query meets a key in
`rank + rotary_dim` multiplications instead of `plain_dim + rotary_dim`, which decode, bound by reading, does not notice
and a long prefill does.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...errors import ModelError
from ...kernels import LinearWeight, LinearWeights, ops
from .latent_config import LatentConfig
from .part import Axis, count
from .reader import Reader

NORM_EPS = 1e-6  # of the latents' norms, whatever the configuration says of the others


@dataclass(frozen=True, slots=True)
class LatentWeights:
    """The projections of one layer, but for the output's; norms are fp32."""

    down: LinearWeight  # hidden_size -> queries (or their latent), latent, rotary key
    query_norm: Tensor | None  # [query_rank], None where queries have no latent
    query_up: LinearWeight | None  # query_rank -> num_heads · query_dim
    norm: Tensor  # [rank]
    key_up: LinearWeights  # per head, plain_dim -> rank: the key projection, seen from the query
    value_up: LinearWeights  # per head, rank -> value_dim


def read_latent_weights(reader: Reader, base: str, latent: LatentConfig) -> LatentWeights:
    """The tensors below `base` (`model.layers.<i>.self_attn.`).

    Raises:
        ModelError: a tensor is missing or odd, or the GPU's kernel has no tiles for these widths.
    """
    if reader.device.type == "cuda" and any(size & (size - 1) for size in (latent.rank, latent.rotary_dim)):
        sizes = f"kv_lora_rank {latent.rank} and qk_rope_head_dim {latent.rotary_dim}"
        raise ModelError(f"{sizes}: on a GPU both must be powers of two; run this model on the CPU")
    hidden, num_heads, cut = reader.config.hidden_size, reader.config.num_heads, reader.cut
    query_size, rank = num_heads * latent.query_dim, latent.query_rank
    first, num_first = ("q_a_proj", rank) if rank else ("q_proj", query_size)
    names = [f"{base}{first}", f"{base}kv_a_proj_with_mqa"]
    rows: list[Axis] = [rank or cut.by_head(latent.query_dim), latent.width]
    matrix = reader.weight(names, rows, hidden)
    bias = None
    if latent.has_bias:  # queries that are projected at once have none
        named = [f"{name}.bias" for name in names[0 if rank else 1 :]]
        bias = reader.tensor(named, rows[0 if rank else 1 :], [])
        bias = torch.cat([bias.new_zeros(sum(map(count, rows)) - len(bias)), bias])
    keys = _halves(torch.arange(latent.width).view(1, -1), latent)[0].to(reader.device) + num_first
    queries = _halves(torch.arange(query_size).view(num_heads, -1), latent).flatten().to(reader.device)
    order = torch.cat([torch.arange(num_first, device=keys.device) if rank else queries, keys])
    query_up = reader.weight([f"{base}q_b_proj"], [cut.by_head(latent.query_dim)], rank)[queries] if rank else None
    # absorbed, a projection meets its outputs as inputs, which have no groups
    key_up, value_up = f"{base}k_b_proj.weight", f"{base}v_b_proj.weight"  # GGUF files have them apart
    if key_up in reader.checkpoint:
        keys_up = reader.numbers([key_up], [cut.heads], [latent.rank, latent.plain_dim])
        values_up = reader.numbers([value_up], [cut.heads], [latent.value_dim, latent.rank])
    else:
        up = reader.wide([f"{base}kv_b_proj"], [cut.by_head(latent.plain_dim + latent.value_dim)], latent.rank)
        up = up.view(num_heads, -1, latent.rank)
        keys_up, values_up = up[:, : latent.plain_dim].transpose(1, 2), up[:, latent.plain_dim :]
    return LatentWeights(
        down=reader.packing.one(matrix[order], None if bias is None else bias[order]),
        query_norm=reader.norm(f"{base}q_a_layernorm.weight", rank) if rank else None,
        query_up=None if query_up is None else reader.packing.one(query_up),
        norm=reader.norm(f"{base}kv_a_layernorm.weight", latent.rank),
        key_up=reader.packing.each(keys_up),
        value_up=reader.packing.each(values_up),
    )


def _halves(rows: Tensor, latent: LatentConfig) -> Tensor:
    """Rows `[heads, … + rotary_dim]` with the rotary ones so that pairs stand half of them apart."""
    if not latent.is_interleaved:
        return rows
    rotary = rows[:, -latent.rotary_dim :]
    return torch.cat([rows[:, : -latent.rotary_dim], rotary[:, ::2], rotary[:, 1::2]], dim=1)


def queries_and_latents(
    normed: Tensor, weights: LatentWeights, latent: LatentConfig, positions: Tensor, rope_table: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Queries `[T, H, rank + rotary_dim]` and what the cache keeps, `[T, rank + rotary_dim]`, of hidden `[T, C]`."""
    down = ops.linear(normed, weights.down)
    queries, own = down[:, : -latent.width], down[:, -latent.width :]
    if weights.query_norm is not None and weights.query_up is not None:
        queries = ops.linear(ops.rms_norm(queries, weights.query_norm, NORM_EPS), weights.query_up)
    heads = queries.reshape(len(down), -1, latent.query_dim)
    q = torch.cat([ops.linear_heads(heads[..., : latent.plain_dim], weights.key_up), heads[..., latent.plain_dim :]], 2)
    kept = torch.cat([ops.rms_norm(own[:, : latent.rank], weights.norm, NORM_EPS), own[:, latent.rank :]], 1)
    if rope_table is not None:
        ops.apply_rope(q[..., latent.rank :], kept[:, None, latent.rank :], positions, rope_table)
    return q, kept


def values(attended: Tensor, weights: LatentWeights) -> Tensor:
    """The heads' sums of latents `[T, H, rank]` as their values, side by side: `[T, H · value_dim]`."""
    return ops.linear_heads(attended, weights.value_up).flatten(1)
