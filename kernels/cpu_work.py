"""The CPU's work list of one step: which rows pass over which keys, in which order. Knows no tensors.

An item is (block-table row, range of keys, run of query rows). Requests are sorted so that those that share
leading blocks stand side by side; a node of the forest (`sharing`) becomes the items of its range of keys for
all its requests' rows. Items of one tree form a chain, root to leaf, because a row's running sums pass from
item to item; a request that shares nothing gives a chain per tile of rows. Chains are independent.

Invariant: every (row, visible key) is covered by exactly one item, and each row meets its keys in rising order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .compiled import compiled
from .sharing import forest, order_by_prefix, shared_lens

IntArray = npt.NDArray[np.int32]

TILE = 64  # keys per tile; the grid of prefix sharing on the CPU
MAX_ITEM_TOKENS = 64  # of one item: their queries and sums stay in L2 beside the tile

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


def plan_cpu_work(
    query_starts: IntArray, context_lens: IntArray, block_tables: IntArray, block_size: int, share: bool
) -> CpuWork:
    """Lay out one step. share: read keys that several requests share once (never changes a bit)."""
    num_requests = len(context_lens)
    q_lens = query_starts[1:] - query_starts[:-1]
    if share and num_requests > 1:
        order = order_by_prefix(block_tables)
        shared = shared_lens(order, block_tables, context_lens, q_lens, block_size, TILE)
    else:
        order = np.arange(num_requests, dtype=np.int32)
        shared = np.zeros(num_requests, np.int32)
    num_pairs = int(np.dot(q_lens, 2 * context_lens.astype(np.int64) - q_lens + 1)) // 2
    nodes = forest(shared, context_lens[order])
    items, chain_starts, rows, positions = _lay_out(nodes, order, query_starts, context_lens)
    return CpuWork(items, chain_starts, rows, positions, num_pairs)


@compiled()
def _lay_out(
    nodes: IntArray, order: IntArray, query_starts: IntArray, context_lens: IntArray
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    num_tokens = query_starts[-1]
    rows, positions = np.empty(num_tokens, np.int32), np.empty(num_tokens, np.int32)
    row_starts = np.zeros(len(order) + 1, np.int32)
    for i in range(len(order)):
        b, row = order[i], row_starts[i]
        for token in range(query_starts[b], query_starts[b + 1]):
            rows[row] = token
            positions[row] = context_lens[b] - query_starts[b + 1] + token
            row += 1
        row_starts[i + 1] = row
    capacity = 0
    for n in range(len(nodes)):
        capacity += (row_starts[nodes[n, 1]] - row_starts[nodes[n, 0]]) // MAX_ITEM_TOKENS + 1
    items, chain_starts = np.empty((capacity, 6), np.int32), np.empty(capacity + 1, np.int32)
    num_items, num_chains, tree = 0, 0, -1
    for n in range(len(nodes)):
        first, last, key_begin, key_end, node_tree = nodes[n, 0], nodes[n, 1], nodes[n, 2], nodes[n, 3], nodes[n, 4]
        is_leaf = last - first == 1 and key_end == context_lens[order[first]]
        is_alone = is_leaf and key_begin == 0  # its row tiles depend on nobody: a chain each
        for row in range(row_starts[first], row_starts[last], MAX_ITEM_TOKENS):
            row_end = min(row + MAX_ITEM_TOKENS, row_starts[last])
            end = min(key_end, positions[row_end - 1] + 1) if is_leaf else key_end
            if is_alone or tree != node_tree:
                chain_starts[num_chains] = num_items
                num_chains += 1
                tree = node_tree
            item = items[num_items]
            item[TABLE_ROW], item[KEY_BEGIN], item[KEY_END] = order[first], key_begin, end
            item[ROW_BEGIN], item[ROW_END], item[IS_LAST] = row, row_end, is_leaf
            num_items += 1
    chain_starts[num_chains] = num_items
    return items[:num_items], chain_starts[: num_chains + 1], rows, positions
