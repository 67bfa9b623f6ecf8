"""The device's work list of one step: items, partial slots and what to merge. Knows no KV.

Every request's keys lie on one absolute grid of splits. A request is either walked by one item per tile of
query rows and KV head (direct: it folds its splits itself), or cut into one item per split, whose partial
results are merged afterwards. It is cut if its walk would be longer than a processor's fair share of the
step, or if it shares splits with others: a shared split is one item for the rows of all sharers.

    cut request        slot of (token, split, head) = slots[token, 0] + split * slots[token, 1] + head

Cutting, sharing and the order of items are matters of speed; no result depends on them. (Through the tile
class it may: 16 and 32 rows take another MMA instruction than 64, and the widest class, for prefill, runs through
its splits without folding. `deterministic` uses one class, which folds.)

The planning is in `core/cuda_work.h`, the layout of the lists in `work_buffers`. Cost: a sort and loops over
requests and items, about 0.1 ms for 64 requests of 8k tokens.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from .._core import kernels as core
from .launch import SHARING_COSTS, SPLIT_SIZE, SharingCosts, folds_splits, tile_classes
from .work_buffers import CudaWork, Launch, WorkBuffers, send_work

IntArray = npt.NDArray[np.int32]

MAX_PARTIAL_BYTES = 2 << 30
PARTIAL_SHARE = 32  # and no more than this part of a device's memory
MAX_SHARING_ROWS = 64  # packed rows of one request; beyond, a tile reads its keys for many rows anyway

# columns of an item; `triton.attention.attend_items` reads them
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
    seen: bool = False,
    costs: SharingCosts = SHARING_COSTS,
    buffers: WorkBuffers | None = None,
    num_tokens: int = 0,
) -> CudaWork:
    """Lay out one step and upload it. num_processors: programs that run at once (two or three per SM).

    buffers: where to put the list; None: new memory. num_tokens: the least number of tokens to lay it out for.
    """
    classes = np.array(tile_classes(head_dim, deterministic, itemsize, quantised, seen), np.int32)
    items, rows, positions, slots, is_cut, num_slots = core.plan_cuda_work(
        query_starts,
        context_lens,
        block_tables,
        block_size,
        num_heads,
        num_kv_heads,
        classes,
        SPLIT_SIZE,
        num_processors,
        share,
        costs.partial,
        costs.launch_bytes / (4 * num_kv_heads * head_dim),
        most_partial_bytes(device) // (4 * (head_dim + 2)),
        MAX_SHARING_ROWS,
    )
    q_lens = query_starts[1:] - query_starts[:-1]
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
