"""Ragged batches over a paged cache, for every path of attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from phloem.kernels import SPLIT_SIZE, AttentionPlan, plan_attention
from phloem.kernels.cuda_work import plan_cuda_work
from phloem.kernels.launch import SharingCosts
from phloem.kernels.plain import ops as reference
from phloem.kernels.work_buffers import CudaWork

from .rounding import gamma, stored_bound


@dataclass(frozen=True)
class PagedBatch:
    """A ragged batch over a paged cache in which every slot that no request owns is NaN."""

    q: Tensor
    k_cache: Tensor
    v_cache: Tensor
    query_starts: np.ndarray[Any, Any]
    context_lens: np.ndarray[Any, Any]
    block_tables: np.ndarray[Any, Any]

    def plan(self, **options: Any) -> AttentionPlan:
        """For the CPU path and the reference."""
        _, num_kv_heads, block_size, head_dim = self.k_cache.shape
        return plan_attention(
            self.query_starts,
            self.context_lens,
            self.block_tables,
            num_heads=self.q.shape[1],
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            block_size=block_size,
            **options,
        )

    def cuda_work(self, num_processors: int = 264, **options: Any) -> CudaWork:
        """For the Triton kernels, on whatever device the tensors are."""
        _, num_kv_heads, block_size, head_dim = self.k_cache.shape
        return plan_cuda_work(
            self.query_starts,
            self.context_lens,
            self.block_tables,
            num_heads=self.q.shape[1],
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            block_size=block_size,
            num_processors=num_processors,
            device=self.q.device,
            **{"share": True, "deterministic": False, "costs": SharingCosts(0.0, 0.0), **options},
        )

    def exact(self, scale: float, sinks: Tensor | None = None, **options: Any) -> Tensor:
        """The answer in float64, on the CPU; options: as of attention."""
        on_cpu = [t.cpu() for t in (self.q, self.k_cache, self.v_cache)]
        sinks = None if sinks is None else sinks.cpu()
        return reference.attention_in(torch.float64, *on_cpu, self.plan(), scale=scale, sinks=sinks, **options)

    def bound(self, scale: float, sinks: Tensor | None = None, soft_cap: float = 0.0, **options: Any) -> Tensor:
        """How far a path may be off `exact` that sums in fp32 and has weights and results of the type of q.

        An error of a score is a relative one of its weight, and a weight stands above and below the fraction, where up
        to n of them are summed and, tile by tile, rescaled. |q| |k| is bounded by the product of the lengths.
        """
        q, keys = self.q.cpu().double(), self.k_cache.cpu().double().nan_to_num()
        dtype, most_keys = self.q.dtype, int(self.context_lens.max())
        scores = gamma(q.shape[-1] + 16) * scale * q.norm(dim=-1) * keys.norm(dim=-1).max() + gamma(16) * soft_cap
        if sinks is not None:
            scores = scores + gamma(16) * sinks.cpu().double().abs()
        size = replace(self, v_cache=self.v_cache.abs()).exact(scale, sinks, soft_cap=soft_cap, **options)
        share = torch.expm1(2 * (scores + gamma(2 * most_keys + 64)))[..., None]
        if dtype == torch.float32:
            return share * size
        kind, most = torch.finfo(dtype), self.v_cache.cpu().double().nan_to_num().abs().max()
        off = (share + kind.eps / 2) * size + most_keys * kind.smallest_normal * kind.eps / 2 * most
        return stored_bound(off, size, dtype)

    def behind(self, window: int) -> PagedBatch:
        """The same step with tables that begin at the last multiple of SPLIT_SIZE before the window, and name a block
        of zeros where no row sees a key."""
        block_size, starts = self.k_cache.shape[2], self.context_lens - np.diff(self.query_starts)
        oldest = np.maximum(starts - window + 1, 0)
        first = oldest // SPLIT_SIZE * SPLIT_SIZE
        tables = np.full_like(self.block_tables, len(self.k_cache))
        for row, table, begin, seen in zip(tables, self.block_tables, first // block_size, oldest, strict=True):
            known = table[begin:].copy()
            known[: seen // block_size - begin] = len(self.k_cache)
            row[: len(known)] = known
        caches = [torch.cat([cache, torch.zeros_like(cache[:1])]) for cache in (self.k_cache, self.v_cache)]
        lens = (self.context_lens - first).astype(np.int32)
        return PagedBatch(self.q, *caches, self.query_starts, lens, tables)

    def only(self, index: int, skip: int = 0, take: int | None = None) -> PagedBatch:
        """Request `index` alone, and of its new tokens those from `skip` on, `take` of them."""
        begin, end = int(self.query_starts[index]), int(self.query_starts[index + 1])
        take = end - begin - skip if take is None else take
        computed = int(self.context_lens[index]) - (end - begin) + skip
        return PagedBatch(
            self.q[begin + skip : begin + skip + take],
            self.k_cache,
            self.v_cache,
            np.array([0, take], np.int32),
            np.array([computed + take], np.int32),
            self.block_tables[index : index + 1],
        )


def make_batch(
    q_lens: Sequence[int],
    context_lens: Sequence[int],
    heads: tuple[int, int, int],
    block_size: int = 16,
    *,
    shared: int = 0,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> PagedBatch:
    """Of fresh random numbers; heads: (H, Hkv, D).

    shared: how many leading keys all requests have in common (rounded down to whole blocks).
    """
    num_heads, num_kv_heads, head_dim = heads
    counts = [-(-n // block_size) for n in context_lens]
    total = sum(counts) + 3
    free = np.random.permutation(total).astype(np.int32)
    tables = np.full((len(counts), max(counts) + 1), free[-1], np.int32)  # a block without an owner
    caches = torch.full((2, total, num_kv_heads, block_size, head_dim), torch.nan)
    taken = 0
    for b, count in enumerate(counts):
        tables[b, :count] = free[taken : taken + count]
        taken += count
        tables[b, : shared // block_size] = tables[0, : shared // block_size]
        for n in range(context_lens[b]):
            caches[:, tables[b, n // block_size], :, n % block_size] = torch.randn(2, num_kv_heads, head_dim)
    q = torch.randn(sum(q_lens), num_heads, head_dim)
    return PagedBatch(
        *(t.to(dtype).to(device) for t in (q, *caches)),
        np.concatenate([[0], np.cumsum(q_lens)]).astype(np.int32),
        np.array(context_lens, np.int32),
        tables,
    )


def attention_case(
    q_lens: Sequence[int],
    context_lens: Sequence[int],
    heads: tuple[int, int, int],
    block_size: int,
    shared: int,
    options: dict[str, Any],
    **where: Any,
) -> tuple[PagedBatch, dict[str, Any]]:
    """A batch and the options of attention over it; "sinks": whether there are some."""
    batch = make_batch(q_lens, context_lens, heads, block_size, shared=shared, **where)
    sinks = {"sinks": torch.randn(heads[0], device=batch.q.device)} if options.get("sinks") else {}
    return batch, {"scale": heads[2] ** -0.5, **options, **sinks}
