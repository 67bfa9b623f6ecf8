"""Attention on the CPU: straight over the paged blocks, one compiled call per layer for the whole batch.

A work item is (block-table row, range of keys, run of query rows); it is done for every KV head. A chain is a list of
items that run one after another, root to leaf, because a row's running sums pass from item to item; chains are
independent, and with the heads they are what a team of threads shares out::

    one thread    item by item, all heads of each: in memory the heads of a block are neighbours
    a team        tasks, each a run of (chain, KV head)

A row's bits are the same for every batch, chunking, cache hit, prefix sharing and number of threads
(`cpu_attention_loops`). (The matmuls around it are another matter: a BLAS may change its order of summation with the
row count.)

q is fp32, KV fp32, int8 or fp8; `ops.attention` takes the reference for other types.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from numba import carray, njit  # type: ignore[attr-defined]  # carray: numba does not name its exports
from torch import Tensor

from . import simd
from .compiled import Task, compiled
from .cpu_atomics import pointer
from .cpu_attention_loops import (
    HEAD_DIM,
    KINDS,
    NUM_HEADS,
    NUM_KV_HEADS,
    NUM_NUMBERS,
    NUM_TOKENS,
    STORED,
    run_items,
    run_serial,
    workspace,
)
from .cpu_team import argument, share
from .cpu_threads import thread_team
from .cpu_work import CpuWork

IntArray = npt.NDArray[np.int32]

# what a task is told besides the numbers: addresses, and the sizes of what lies there
_STARTS_AT, _ITEMS_AT, _ROWS_AT, _POSITIONS_AT, _TABLES_AT, _SINKS_AT, _STATES_AT, _FACTORS_AT = range(18, 26)
_NUM_STARTS, _NUM_SINKS, _NUM_TABLES, _WIDTH, _NUM_TASKS = range(26, 31)
_MOST_TASKS = 16  # each takes the memory of a thread anew
NO_SINKS = np.empty(0, np.float32)


def cpu_attention(
    work: CpuWork,
    block_tables: IntArray,
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    *,
    scale: float,
    window: int,
    soft_cap: float,
    sinks: Tensor | None,
    k_scales: Tensor | None,
    v_scales: Tensor | None,
) -> Tensor:
    """`attention` for fp32 q on the CPU; q `[T, H, D]` may be a view with any strides but a dense last axis.

    The caches are fp32, or int8 or fp8 with their scales: a tile of those is widened once for all its rows.
    """
    num_tokens, num_heads, head_dim = q.shape
    _, num_kv_heads, block_size, _ = k_cache.shape
    out = torch.empty(q.shape)
    numbers = (
        q.data_ptr(),
        *q.stride()[:2],
        k_cache.data_ptr(),
        v_cache.data_ptr(),
        *k_cache.stride()[:3],
        block_size,
        out.data_ptr(),
        num_heads,
        num_kv_heads,
        head_dim,
        window,
        KINDS[k_cache.dtype],
        0 if k_scales is None else k_scales.data_ptr(),
        0 if v_scales is None else v_scales.data_ptr(),
        num_tokens,
    )
    factors = (scale * simd.LOG2_E, soft_cap * simd.LOG2_E)
    lists = (work.chain_starts, work.items, work.rows, work.positions, block_tables)
    sink_logits = NO_SINKS if sinks is None else sinks.float().contiguous().numpy()
    num_multiply_adds = work.num_pairs * num_heads * head_dim * 2
    with thread_team(num_multiply_adds) as team:
        if team:
            _share_chains(team, CHAINS.address, *lists, sink_logits, numbers, factors)
        else:
            run_serial(*lists, sink_logits, numbers, factors)
    return out


@njit
def share_chains(team, function, chain_starts, items, rows, positions, tables, sinks, numbers, factors):  # type: ignore[no-untyped-def]
    """What `run_serial` does, with a team: chain by chain, head by head. function: the address of `CHAINS`."""
    states = np.empty((numbers[NUM_TOKENS] * numbers[NUM_HEADS], 2), np.float32)
    both = np.array(factors, np.float32)
    words = np.empty(_NUM_TASKS + 1, np.int64)
    for index in range(NUM_NUMBERS):
        words[index] = numbers[index]
    words[_STARTS_AT], words[_ITEMS_AT], words[_ROWS_AT] = chain_starts.ctypes.data, items.ctypes.data, rows.ctypes.data
    words[_POSITIONS_AT], words[_TABLES_AT] = positions.ctypes.data, tables.ctypes.data
    words[_SINKS_AT], words[_STATES_AT], words[_FACTORS_AT] = sinks.ctypes.data, states.ctypes.data, both.ctypes.data
    words[_NUM_STARTS], words[_NUM_SINKS] = len(chain_starts), len(sinks)
    words[_NUM_TABLES], words[_WIDTH] = tables.shape
    words[_NUM_TASKS] = min(_MOST_TASKS, (len(chain_starts) - 1) * numbers[NUM_KV_HEADS])
    share(team, function, words, words[_NUM_TASKS])
    states[0, 0], both[0] = 0.0, 0.0  # so that they are still there


@compiled()
def _share_chains(team, function, chain_starts, items, rows, positions, tables, sinks, numbers, factors):  # type: ignore[no-untyped-def]
    share_chains(team, function, chain_starts, items, rows, positions, tables, sinks, numbers, factors)


@njit
def _numbers(at):  # type: ignore[no-untyped-def]
    return (
        argument(at, 0), argument(at, 1), argument(at, 2), argument(at, 3), argument(at, 4), argument(at, 5),
        argument(at, 6), argument(at, 7), argument(at, 8), argument(at, 9), argument(at, 10), argument(at, 11),
        argument(at, 12), argument(at, 13), argument(at, 14), argument(at, 15), argument(at, 16), argument(at, 17),
    )  # fmt: skip


@Task
def CHAINS(at, index):  # type: ignore[no-untyped-def]
    """A task of `share_chains`: a run of chains and KV heads."""
    numbers = _numbers(at)
    num_starts, num_states = argument(at, _NUM_STARTS), numbers[NUM_TOKENS] * numbers[NUM_HEADS]
    chain_starts = carray(pointer(argument(at, _STARTS_AT)), (num_starts,), np.int32)
    items = carray(pointer(argument(at, _ITEMS_AT)), (chain_starts[num_starts - 1], 6), np.int32)
    rows = carray(pointer(argument(at, _ROWS_AT)), (numbers[NUM_TOKENS],), np.int32)
    positions = carray(pointer(argument(at, _POSITIONS_AT)), (numbers[NUM_TOKENS],), np.int32)
    tables = carray(pointer(argument(at, _TABLES_AT)), (argument(at, _NUM_TABLES), argument(at, _WIDTH)), np.int32)
    sinks = carray(pointer(argument(at, _SINKS_AT)), (argument(at, _NUM_SINKS),), np.float32)
    states = carray(pointer(argument(at, _STATES_AT)), (num_states, 2), np.float32)
    both = carray(pointer(argument(at, _FACTORS_AT)), (2,), np.float32)
    lists, floats = workspace(numbers[HEAD_DIM], numbers[STORED])
    factors, num_kv_heads, num_tasks = (both[0], both[1]), numbers[NUM_KV_HEADS], argument(at, _NUM_TASKS)
    num_pairs = (num_starts - 1) * num_kv_heads
    for pair in range(num_pairs * index // num_tasks, num_pairs * (index + 1) // num_tasks):
        chain, head = pair // num_kv_heads, pair % num_kv_heads
        begin, end = chain_starts[chain], chain_starts[chain + 1]
        run_items(begin, end, head, items, rows, positions, tables, states, sinks, numbers, factors, lists, floats)
    lists[0, 0], floats[0] = 0, 0.0  # so that they are still there
