"""Common steps of all attention kernels: take a share of the items, look up their rows and keys, store the results.

Items are `cuda_work`'s; a packed row is (token, head of the group), see `triton.attention`. It knows no keys.
"""

from __future__ import annotations

import triton
import triton.language as tl

ITEM_SIZE = tl.constexpr(8)  # numbers of an item


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def num_turns(launch_ptr: tl.tensor) -> tl.tensor:
    """How many items the busiest program of this launch has."""
    return tl.cdiv(tl.load(launch_ptr + 1), tl.num_programs(0))


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def take_item(turn: tl.tensor, items_ptr: tl.tensor, launch_ptr: tl.tensor) -> tl.tensor:
    """This program's item of a turn, and whether there is one.

    Boustrophedon: the program with the longest item of one round gets the shortest of the next.
    """
    program, num_programs = tl.program_id(0), tl.num_programs(0)
    index = turn * num_programs + tl.where(turn % 2 == 0, program, num_programs - 1 - program)
    return items_ptr + (tl.load(launch_ptr) + index) * ITEM_SIZE, index < tl.load(launch_ptr + 1)


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def look_up_rows(
    item: tl.tensor, rows_ptr: tl.tensor, group: tl.tensor, BLOCK_ROWS: tl.constexpr, CACHE: tl.constexpr
) -> tl.tensor:
    """Token, head and presence of each row of the item's tile."""
    m = tl.arange(0, BLOCK_ROWS)
    kv_head = tl.load(item + 1, cache_modifier=CACHE)
    packed = tl.load(item + 4, cache_modifier=CACHE) + m
    in_rows = m < tl.load(item + 5, cache_modifier=CACHE)
    token = tl.load(rows_ptr + packed // group, mask=in_rows, other=0, cache_modifier=CACHE)
    return token, kv_head * group + packed % group, in_rows


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def find_tile(
    table: tl.tensor, start: tl.tensor, key_end: tl.tensor, BLOCK_KEYS: tl.constexpr, BLOCK_SIZE: tl.constexpr
) -> tl.tensor:
    """(The keys from `start` on `[BLOCK_KEYS]`; the block of each, or of all; their places in it)."""
    n = start + tl.arange(0, BLOCK_KEYS)
    # past the end the last key is read again, to be hidden: a load without a mask is a plain copy
    held = tl.minimum(n, key_end - 1)
    if BLOCK_SIZE >= BLOCK_KEYS:  # all keys in one block: a scalar index, contiguous rows
        block = tl.load(table + start // BLOCK_SIZE).to(tl.int64)
    else:
        block = tl.load(table + held // BLOCK_SIZE).to(tl.int64)
    return n, block, held % BLOCK_SIZE


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def store_scores(
    item: tl.tensor,
    rows_ptr: tl.tensor,  # [T] int32: token of a row
    seen_ptr: tl.tensor,  # fp32, see `attention_mass.SeenScores`
    places_ptr: tl.tensor,  # [T, 2] int32
    n: tl.tensor,
    scores: tl.tensor,
    group: tl.tensor,
) -> None:
    """Keeps scores `[rows, keys]` of keys n where the rows are of a run and see the keys.

    The rows are looked up again, for the reason that `store_rows` has.
    """
    token, head, in_rows = look_up_rows(item, rows_ptr, group, scores.shape[0], ".ca")
    begin = tl.load(places_ptr + 2 * token, mask=in_rows, other=-1, cache_modifier=".ca")
    at = begin + head * tl.load(places_ptr + 2 * token + 1, mask=in_rows, other=0, cache_modifier=".ca")
    is_seen = (begin >= 0)[:, None] & (scores > float("-inf"))
    tl.store(seen_ptr + (at[:, None] + n[None, :]), scores, mask=is_seen)


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def store_rows(
    item: tl.tensor,
    rows_ptr: tl.tensor,  # [T] int32: token of a row
    slots_ptr: tl.tensor,  # [T, 2] int32: first slot of a token, slots from split to split
    places: tl.tensor,  # out [T, H, WIDTH]; of partials: sums [num_slots, WIDTH] fp32, tops [num_slots, 2] fp32
    result: tl.tensor,  # maximum and sum of each row, and its weighted values
    num_heads: tl.tensor,
    group: tl.tensor,
    WIDTH: tl.constexpr,
    SPLIT: tl.constexpr,
) -> None:
    """The item's result: what its rows get, if it saw all their keys, else their partials of its split.

    The rows are looked up again, in the cache of the processor: held throughout the keys, what is known of them would
    take the registers that the keys need. Another cache modifier keeps the compiler from joining the two look-ups.
    """
    out_ptr, sums_ptr, tops_ptr = places
    top, total, acc = result
    BLOCK_ROWS: tl.constexpr = acc.shape[0]
    BLOCK: tl.constexpr = acc.shape[1]
    token, head, in_rows = look_up_rows(item, rows_ptr, group, BLOCK_ROWS, ".ca")
    d = tl.arange(0, BLOCK)
    mask = in_rows[:, None] & (d < WIDTH)[None, :]
    if tl.load(item + 6) != 0:
        at = (token.to(tl.int64) * num_heads + head) * WIDTH
        out = acc / tl.where(total > 0, total, 1.0)[:, None]
        tl.store(out_ptr + at[:, None] + d[None, :], out.to(out_ptr.dtype.element_ty), mask=mask)
    else:
        first_slot = tl.load(slots_ptr + 2 * token, mask=in_rows, other=0)
        next_split = tl.load(slots_ptr + 2 * token + 1, mask=in_rows, other=0)
        slot = (first_slot + tl.load(item + 2) // SPLIT * next_split + head).to(tl.int64)
        tl.store(sums_ptr + slot[:, None] * WIDTH + d[None, :], acc, mask=mask)
        tl.store(tops_ptr + 2 * slot, top, mask=in_rows)
        tl.store(tops_ptr + 2 * slot + 1, total, mask=in_rows)
