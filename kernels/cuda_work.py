"""The device's work list of one step: items, partial slots and what to merge. Knows no KV.

Every request's keys lie on one absolute grid of splits. A request is either walked by one item per tile of
query rows and KV head (direct: it folds its splits itself), or cut into one item per split, whose partial
results are merged afterwards. It is cut if its walk would be longer than a processor's fair share of the
step, or if it shares splits with others: a shared split is one item for the rows of all sharers.

    cut request        slot of (token, split, head) = slots[token, 0] + split * slots[token, 1] + head

Cutting, sharing and the order of items are matters of speed; no result depends on them. (Through the tile
class it may: 16 and 32 rows take another MMA instruction than 64, and the widest class, for prefill, runs through
its splits without folding. `deterministic` uses one class, which folds.)

Cost: a sort and compiled loops over requests and items, about 0.1 ms for 64 requests of 8k tokens.
Where the lists lie is `work_buffers`' matter.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from numba import njit

from .compiled import compiled
from .launch import SHARING_COSTS, SPLIT_SIZE, SharingCosts, folds_splits, tile_classes
from .sharing import forest, order_by_prefix, shared_lens
from .work_buffers import CudaWork, Launch, WorkBuffers, send_work

IntArray = npt.NDArray[np.int32]

MAX_PARTIAL_BYTES = 2 << 30
PARTIAL_SHARE = 32  # and no more than this part of a device's memory
MAX_SHARING_ROWS = 64  # packed rows of one request; beyond, a tile reads its keys for many rows anyway

# columns of an item; `triton_attention.attend_items` reads them
TABLE, KV_HEAD, KEY_BEGIN, KEY_END, ROW_BEGIN, NUM_ROWS, IS_DIRECT, TILE_CLASS = range(8)


def num_programs_at_once(device: torch.device) -> int:
    """Programs that a device runs side by side: two per multiprocessor; one in Triton's interpreter."""
    if device.type != "cuda":
        return 1
    return 2 * int(torch.cuda.get_device_properties(device).multi_processor_count)


def most_partial_bytes(device: torch.device) -> int:
    """Bytes of partial results beyond which nothing is shared, and if that is not enough, nothing cut."""
    if device.type != "cuda":
        return MAX_PARTIAL_BYTES
    return min(MAX_PARTIAL_BYTES, int(torch.cuda.get_device_properties(device).total_memory) // PARTIAL_SHARE)


def plan_cuda_work(
    query_starts: IntArray,
    context_lens: IntArray,
    block_tables: IntArray,
    *,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    block_size: int,
    num_processors: int,
    share: bool,
    deterministic: bool,
    device: torch.device,
    itemsize: int = 2,
    quantised: bool = False,
    costs: SharingCosts = SHARING_COSTS,
    buffers: WorkBuffers | None = None,
    num_tokens: int = 0,
) -> CudaWork:
    """Lay out one step and upload it. num_processors: programs that run at once (two or three per SM).

    buffers: where to lay it, None: into new memory; num_tokens: lay it out for at least so many tokens.
    """
    group = num_heads // num_kv_heads
    q_lens = query_starts[1:] - query_starts[:-1]
    classes = np.array(tile_classes(head_dim, deterministic, itemsize, quantised), np.int32)
    launch = costs.launch_bytes / (4 * num_kv_heads * head_dim)
    most_slots = most_partial_bytes(device) // (4 * (head_dim + 2))
    ways = ((True, True), (False, True), (False, False))
    for shares, cuts in ways if share else ways[1:]:
        order = np.arange(len(context_lens), dtype=np.int32)
        shared = np.zeros(len(context_lens), np.int32)
        if shares and len(context_lens) > 1:
            order, shared = _sharers(context_lens, block_tables, q_lens, group, block_size)
            _drop_poor_sharing(shared, context_lens[order], q_lens[order] * group, costs.partial, launch)
        nodes = forest(shared, context_lens[order])
        is_cut = np.zeros(len(order), np.bool_)
        if cuts:
            is_cut = _choose_cut(nodes, order, q_lens, context_lens, group, num_kv_heads, classes, num_processors)
        rows, row_starts, positions, slots, num_slots = _place(order, query_starts, context_lens, is_cut, num_heads)
        if num_slots <= most_slots:
            break
    items = _list_items(nodes, order, rows, row_starts, positions, context_lens, is_cut, group, num_kv_heads, classes)
    kinds, lens = items[:, TILE_CLASS], items[:, KEY_END] - items[:, KEY_BEGIN]
    is_walk = (items[:, IS_DIRECT] == 1) & (lens > SPLIT_SIZE)
    num_items, num_walks = (np.bincount(chosen, minlength=len(classes)) for chosen in (kinds, kinds[is_walk]))
    return send_work(
        items[np.lexsort((-lens, kinds))],
        tuple(
            Launch(block_rows, folds=walks > 0 and folds_splits(block_rows, head_dim), num_items=count)
            for block_rows, walks, count in zip(classes.tolist(), num_walks.tolist(), num_items.tolist(), strict=True)
            if count
        ),
        rows,
        positions,
        slots,
        np.flatnonzero(np.repeat(is_cut, q_lens)).astype(np.int32),
        block_tables,
        -(-context_lens // block_size),
        num_slots=num_slots,
        num_tokens=num_tokens,
        head_dim=head_dim,
        device=device,
        buffers=buffers,
    )


def _sharers(
    context_lens: IntArray, block_tables: IntArray, q_lens: IntArray, group: int, block_size: int
) -> tuple[IntArray, IntArray]:
    """The order that puts sharers side by side, and how many keys each shares with the one before."""
    order = order_by_prefix(block_tables)
    few_rows = q_lens[order] * group <= MAX_SHARING_ROWS
    order = np.concatenate([order[few_rows], order[~few_rows]])
    shared = shared_lens(order, block_tables, context_lens, q_lens, block_size, SPLIT_SIZE)
    shared[int(few_rows.sum()) :] = 0
    return order, shared


@compiled()
def _drop_poor_sharing(
    shared: IntArray, context_lens: IntArray, packed_rows: IntArray, partial: float, launch: float
) -> None:
    """Unshare, in place, each run of sharers that saves less than it costs; partial, launch: in keys of a KV head.

    Saved per KV head: the shared lengths of neighbours, summed, are exactly the keys read less. Added: its requests
    are cut, so a partial for each of their packed rows and splits.
    """
    num_requests = len(shared)
    begin = 0
    while begin < num_requests:
        end = begin + 1
        while end < num_requests and shared[end] > 0:
            end += 1
        saved, added = 0, 0
        for i in range(begin, end):
            saved += shared[i]
            added += packed_rows[i] * (1 + (context_lens[i] - 1) // SPLIT_SIZE)
        if saved < partial * added + launch:
            shared[begin:end] = 0
        begin = end


@njit(inline="always")
def _tile_class(num_rows, classes):  # type: ignore[no-untyped-def]  # numba infers
    """The smallest class that holds the rows, or the largest."""
    for i in range(len(classes)):
        if num_rows <= classes[i]:
            return i
    return len(classes) - 1


@compiled()
def _choose_cut(nodes, order, q_lens, context_lens, group, num_kv_heads, classes, num_processors):  # type: ignore[no-untyped-def]
    """By request: does it share splits, or walk further than a processor's fair share of the step?"""
    walks = np.zeros(len(order), np.int64)  # splits of each request alone; 0 if it shares
    is_cut = np.zeros(len(order), np.bool_)
    work = 0
    for n in range(len(nodes)):
        first, last, key_begin, key_end = nodes[n, 0], nodes[n, 1], nodes[n, 2], nodes[n, 3]
        b = order[first]
        num_splits = 1 + (key_end - key_begin - 1) // SPLIT_SIZE
        num_rows = 0
        for i in range(first, last):
            num_rows += q_lens[order[i]] * group
        width = classes[_tile_class(num_rows, classes)]
        work += num_splits * (1 + (num_rows - 1) // width) * num_kv_heads
        if last - first == 1 and key_begin == 0:
            walks[b] = num_splits
        else:
            for i in range(first, last):
                is_cut[order[i]] = True
    for b in range(len(order)):
        # the partial results of a wide tile are as many bytes as its keys: a few tiles that walk are better than that
        width = classes[_tile_class(q_lens[b] * group, classes)]
        spread = num_processors if width <= 16 else num_processors // 2 if width <= 32 else num_processors // 4
        if walks[b] * spread > max(work, spread):
            is_cut[b] = True
    return is_cut


@compiled()
def _place(order, query_starts, context_lens, is_cut, num_heads):  # type: ignore[no-untyped-def]
    """Where rows, tokens and partials lie: rows, row_starts (sorted requests), positions, slots, num_slots."""
    num_tokens = query_starts[-1]
    rows, row_starts = np.empty(num_tokens, np.int32), np.zeros(len(order) + 1, np.int32)
    positions, slots = np.empty(num_tokens, np.int32), np.zeros((num_tokens, 2), np.int32)
    row, num_slots = 0, 0
    for i in range(len(order)):
        b = order[i]
        q_len = query_starts[b + 1] - query_starts[b]
        for j in range(q_len):
            token = query_starts[b] + j
            rows[row] = token
            positions[token] = context_lens[b] - q_len + j
            slots[token, 0], slots[token, 1] = num_slots + j * num_heads, q_len * num_heads
            row += 1
        row_starts[i + 1] = row
        if is_cut[b]:
            num_slots += q_len * num_heads * (1 + (context_lens[b] - 1) // SPLIT_SIZE)
    return rows, row_starts, positions, slots, num_slots


@compiled()
def _list_items(  # type: ignore[no-untyped-def]
    nodes, order, rows, row_starts, positions, context_lens, is_cut, group, num_kv_heads, classes
):
    """Every node, cut into tiles of packed rows and (if its requests are cut) splits, for every KV head."""
    capacity = 0
    for n in range(len(nodes)):
        num_rows = (row_starts[nodes[n, 1]] - row_starts[nodes[n, 0]]) * group
        num_tiles = 1 + (num_rows - 1) // classes[_tile_class(num_rows, classes)]
        num_splits = 1 + (nodes[n, 3] - nodes[n, 2] - 1) // SPLIT_SIZE if is_cut[order[nodes[n, 0]]] else 1
        capacity += num_tiles * num_splits * num_kv_heads
    items = np.empty((capacity, 8), np.int32)
    count = 0
    for n in range(len(nodes)):
        first, last, key_begin, key_end = nodes[n, 0], nodes[n, 1], nodes[n, 2], nodes[n, 3]
        row_begin, row_end = row_starts[first] * group, row_starts[last] * group
        tile_class = _tile_class(row_end - row_begin, classes)
        cut = is_cut[order[first]]
        is_leaf = last - first == 1 and key_end == context_lens[order[first]]
        for row in range(row_begin, row_end, classes[tile_class]):
            num_rows = min(classes[tile_class], row_end - row)
            end = key_end
            if is_leaf:  # rows of a chunk see no further than the last of them
                end = min(end, positions[rows[(row + num_rows - 1) // group]] + 1)
            key = key_begin
            while key < end:
                until = min(end, key + SPLIT_SIZE) if cut else end
                for kv_head in range(num_kv_heads):
                    item = items[count]
                    item[TABLE], item[KV_HEAD], item[KEY_BEGIN], item[KEY_END] = order[first], kv_head, key, until
                    item[ROW_BEGIN], item[NUM_ROWS] = row, num_rows
                    item[IS_DIRECT], item[TILE_CLASS] = not cut, tile_class
                    count += 1
                key = until
    return items[:count]
