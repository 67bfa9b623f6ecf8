"""The CPU's work list of one step: which rows pass over which keys, in which order. Knows no tensors.

An item is (block-table row, range of keys, run of query rows). Items that follow from shared prefixes form chains, in
which a row's running sums pass from item to item; chains are independent (`core/cpu_work.h`).

Invariant: every (row, visible key) is covered by exactly one item, and each row meets its keys in rising order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..._core import kernels as core

IntArray = npt.NDArray[np.int32]

TILE = 64  # keys per tile; the grid of prefix sharing on the CPU

# columns of an item
TABLE_ROW, KEY_BEGIN, KEY_END, ROW_BEGIN, ROW_END, IS_LAST = range(6)


@dataclass(frozen=True, slots=True)
class CpuWork:
    """The work list of one step."""

    items: IntArray  # [N, 6], see the column names above
    chain_starts: IntArray  # [C + 1] chain c = items[chain_starts[c] : chain_starts[c + 1]]
    rows: IntArray  # [T] token of each row; requests in prefix order
    positions: IntArray  # [T] absolute position of each row's token
    num_pairs: int  # (row, visible key) pairs: what the step costs
    lists: core.Lists  # all of these and the block tables, for the loops


def plan_cpu_work(
    query_starts: IntArray, context_lens: IntArray, block_tables: IntArray, block_size: int, share: bool
) -> CpuWork:
    """Lay out one step. share: read keys that several requests share once (never changes a bit)."""
    items, chain_starts, rows, positions, num_pairs = core.plan_cpu_work(
        query_starts, context_lens, block_tables, block_size, TILE, share
    )
    lists = core.Lists(chain_starts, items, rows, positions, block_tables, num_pairs)
    return CpuWork(items, chain_starts, rows, positions, num_pairs, lists)
