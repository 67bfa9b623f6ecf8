"""Problems of attention over paged KV, and clocks: what `attention` compares on and `tune_attention` fits with."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from phloem.kernels import AttentionPlan, plan_attention
from phloem.kernels.launch import SHARING_COSTS, SharingCosts

BLOCK_SIZE = 16
Call = Callable[[], Tensor]


@dataclass(frozen=True)
class Case:
    """Requests of equal length; `shared` leading keys are the same blocks for all."""

    name: str
    heads: tuple[int, int, int]
    batch: int
    context_len: int
    q_len: int = 1
    shared: int = 0


NANO, SMOLLM, LLAMA_8B = (6, 2, 32), (9, 3, 64), (32, 8, 128)


@dataclass(frozen=True)
class Problem:
    """The tensors of a case, paged and contiguous."""

    q: Tensor  # [T, H, D]
    k_cache: Tensor
    v_cache: Tensor
    tables: np.ndarray
    blocks: Tensor  # the tables on the device, for torch to index by: a graph may copy nothing from the host
    context_len: int

    @staticmethod
    def of(case: Case, device: torch.device, dtype: torch.dtype) -> Problem:
        num_heads, num_kv_heads, head_dim = case.heads
        width = -(-case.context_len // BLOCK_SIZE)
        common = case.shared // BLOCK_SIZE
        num_blocks = common + case.batch * (width - common)
        free = np.random.permutation(num_blocks).astype(np.int32)
        tables = np.empty((case.batch, width), np.int32)
        tables[:, :common] = free[:common]
        tables[:, common:] = free[common:].reshape(case.batch, width - common)
        shape = (num_blocks, num_kv_heads, BLOCK_SIZE, head_dim)
        k_cache, v_cache = (torch.randn(shape, device=device, dtype=dtype) for _ in range(2))
        q = torch.randn(case.batch * case.q_len, num_heads, head_dim, device=device, dtype=dtype)
        return Problem(q, k_cache, v_cache, tables, torch.from_numpy(tables).long().to(device), case.context_len)

    def gather(self) -> tuple[Tensor, Tensor]:
        """Keys and values as `[B, Hkv, N, D]`, copies."""
        k, v = (cache[self.blocks].transpose(1, 2).flatten(2, 3) for cache in (self.k_cache, self.v_cache))
        return k[:, :, : self.context_len], v[:, :, : self.context_len]

    def plan(self, case: Case, *, share: bool, costs: SharingCosts = SHARING_COSTS) -> AttentionPlan:
        num_heads, num_kv_heads, head_dim = case.heads
        return plan_attention(
            np.arange(case.batch + 1, dtype=np.int32) * case.q_len,
            np.full(case.batch, case.context_len, np.int32),
            self.tables,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            block_size=BLOCK_SIZE,
            device=self.q.device,
            share_prefixes=share,
            costs=costs,
        )


def time_on_cpu(call: Call) -> float:
    """Microseconds of CPU time, median."""
    call()
    times: list[float] = []
    while len(times) < 5 or (sum(times) < 0.3 and len(times) < 200):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return statistics.median(times) * 1e6


def time_on_cuda(call: Call) -> float:
    """Microseconds on the device, median of 30 graph replays with a flushed L2."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    flush = torch.empty(256 << 20, dtype=torch.int8, device="cuda")
    times = []
    for _ in range(30):
        flush.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return statistics.median(times)
