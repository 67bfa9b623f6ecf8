"""The work list of a mixture of experts, which the host never sees: a program finds its own tile in two short arrays.

::

    experts of pairs, sorted   0 0 0 0 0 1 3 3      starts   0 5 6 6 8     first pair of each expert, and their number
    tiles of 4 rows            0 0 0 0│0│1│3 3      tiles    0 2 3 3 4     first tile of each expert, and their number

    program 2: the largest expert whose first tile is at most 2, which has tiles: 1; pairs 5 … 5

There are never more than `num_pairs // BLOCK_ROWS + min(num_pairs, num_experts)` tiles; that many programs start, and
those beyond the last tile have nothing to do.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def take_tile(
    starts_ptr: tl.tensor,  # [num_experts + 1] int32
    tiles_ptr: tl.tensor,  # [num_experts + 1] int32
    num_experts: tl.tensor,
    BLOCK_EXPERTS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
) -> tl.tensor:
    """This program's expert, the sorted places of its rows, and which of them there are; num_experts, and
    places without meaning, beyond the last tile."""
    tile = tl.program_id(0)
    e = tl.arange(0, BLOCK_EXPERTS)
    ends = tl.load(tiles_ptr + 1 + e, mask=e < num_experts, other=2147483647)
    expert = tl.sum((ends <= tile).to(tl.int32), 0)
    known = tl.minimum(expert, num_experts - 1)
    place = tl.load(starts_ptr + known) + (tile - tl.load(tiles_ptr + known)) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    return expert, place, place < tl.load(starts_ptr + known + 1)
