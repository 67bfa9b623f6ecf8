"""What attention has to do in one step, planned once for all layers. Knows lengths and block ids, no KV."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from .attention_mass import AttentionMass
from .cpu.work import CpuWork, plan_cpu_work
from .cuda_work import num_programs_at_once, plan_cuda_work
from .launch import SHARING_COSTS, SharingCosts
from .work_buffers import CudaWork, WorkBuffers

IntArray = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """One step's attention over a ragged batch; made by `plan_attention`, read by `attention`."""

    query_starts: IntArray  # [B + 1] rows of request b are query_starts[b] : query_starts[b + 1]
    context_lens: IntArray  # [B] keys of each request, the new tokens included
    block_tables: IntArray  # [B, M] block ids, root to leaf
    num_heads: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    device: torch.device
    cpu_work: CpuWork | None  # the items, if the device is the CPU
    cuda_work: CudaWork | None  # the items, if it is a GPU: already there
    mass: AttentionMass | None = None  # what attention adds to besides its values

    @property
    def num_requests(self) -> int:
        return len(self.context_lens)

    @property
    def num_tokens(self) -> int:
        return int(self.query_starts[-1])


def plan_attention(
    query_starts: IntArray,
    context_lens: IntArray,
    block_tables: IntArray,
    *,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    block_size: int,
    device: torch.device | str = "cpu",
    share_prefixes: bool = True,
    deterministic: bool = False,
    itemsize: int = 2,
    quantised: bool = False,
    costs: SharingCosts = SHARING_COSTS,
    buffers: WorkBuffers | None = None,
    num_tokens: int = 0,
) -> AttentionPlan:
    """Plan a step. query_starts `[B + 1]`, context_lens `[B]`, block_tables `[B, M]`: int32 numpy.

    share_prefixes: where it saves time, keys of blocks that several tables begin with are read once for all of them.
    It changes no bit on the CPU; on a GPU it may, through the tile class, unless `deterministic`:
    then every row goes through one tile class, and decode, chunked prefill and cached prefill take the same
    instructions in the same order.

    itemsize: bytes of a number of the queries; quantised: keys and values have one byte. fp32 takes smaller tiles on a
    GPU, and over one byte the smallest.
    costs: what decides on a GPU whether sharing saves time.
    buffers: lay the work list for Triton out in them, over that of the step before, so that a captured graph finds it;
    num_tokens: the least number of tokens to lay it out for. Neither changes any result.

    Raises:
        ValueError: lengths that contradict each other, or a table too narrow for its context.
    """
    query_starts = np.ascontiguousarray(query_starts, np.int32)
    context_lens = np.ascontiguousarray(context_lens, np.int32)
    block_tables = np.ascontiguousarray(block_tables, np.int32)
    _check(query_starts, context_lens, block_tables, block_size, num_heads, num_kv_heads)
    device = torch.device(device)
    heads = (num_heads, num_kv_heads, head_dim)
    cpu_work, cuda_work = None, None
    if device.type == "cpu" and buffers is None:
        cpu_work = plan_cpu_work(query_starts, context_lens, block_tables, block_size, share_prefixes)
    else:
        cuda_work = plan_cuda_work(
            query_starts,
            context_lens,
            block_tables,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            block_size=block_size,
            num_processors=buffers.num_processors if buffers is not None else num_programs_at_once(device),
            share=share_prefixes,
            deterministic=deterministic,
            device=device,
            itemsize=itemsize,
            quantised=quantised,
            costs=costs,
            buffers=buffers,
            num_tokens=num_tokens,
        )
    return AttentionPlan(query_starts, context_lens, block_tables, *heads, block_size, device, cpu_work, cuda_work)


def _check(
    query_starts: IntArray,
    context_lens: IntArray,
    block_tables: IntArray,
    block_size: int,
    num_heads: int,
    num_kv_heads: int,
) -> None:
    q_lens = np.diff(query_starts)
    num_requests, width = block_tables.shape
    if (len(query_starts), len(context_lens)) != (num_requests + 1, num_requests):
        raise ValueError(
            f"{num_requests} block_tables need {num_requests + 1} query_starts and as many context_lens, "
            f"got {len(query_starts)} and {len(context_lens)}"
        )
    if query_starts[0] != 0 or (q_lens < 0).any() or (context_lens < q_lens).any():
        raise ValueError("query_starts must rise from 0, and context_lens include the new tokens")
    if num_requests and int(context_lens.max()) > width * block_size:
        raise ValueError(f"block_tables of {width} blocks of {block_size} cannot hold {context_lens.max()} keys")
    if num_kv_heads < 1 or num_heads % num_kv_heads:
        raise ValueError(f"{num_heads} query heads cannot be shared among {num_kv_heads} KV heads")
