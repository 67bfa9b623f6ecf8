"""Which experts every row goes to, and its (row, expert) pairs in the order of experts: two launches.

`choose_rows` has a program per row: scores, groups and the best experts are found in registers, best first, equal ones
by number. `sort_pairs` has a program per expert, each of which counts all pairs before it places its own, so that none
waits for another::

    chosen    3 0 │ 0 3 │ 1 0          pairs 0 … 5 of three rows
    program 0     starts[0] = 0, tiles[0] = 0, order[0 … 2] = 1 2 5
    program 1     starts[1] = 3, tiles[1] = 1, order[3] = 4
    program 3     starts[3] = 4, …

Rows that only fill a captured step up go nowhere: their pairs come after all others, and no weight is read for them.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..expert_choice import ExpertChoice

BLOCK_PAIRS = 1024


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def take_best(values: tl.tensor, n: tl.tensor, LAST: tl.constexpr) -> tl.tensor:
    """(the first place of the largest value, values without it); what is no number is never past the last place."""
    best = tl.min(tl.where(values == tl.max(values, 0), n, LAST), 0)
    return best, tl.where(n == best, float("-inf"), values)


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def choose_rows(
    logits_ptr: tl.tensor,  # [T, NUM_EXPERTS] fp32
    bias_ptr: tl.tensor,  # [NUM_EXPERTS] fp32, read if HAS_BIAS
    slots_ptr: tl.tensor,  # [T] int64, read if HAS_SLOTS
    chosen_ptr: tl.tensor,  # [T, NUM_CHOSEN] int32
    shares_ptr: tl.tensor,  # [T, NUM_CHOSEN] fp32
    logits_stride: tl.tensor,
    scale: tl.tensor,
    NUM_EXPERTS: tl.constexpr,
    NUM_CHOSEN: tl.constexpr,
    NUM_GROUPS: tl.constexpr,
    NUM_CHOSEN_GROUPS: tl.constexpr,
    COUNTS_TOP: tl.constexpr,
    IS_SOFTMAX: tl.constexpr,
    NORMALISES: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_SLOTS: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_GROUPS: tl.constexpr,
    BLOCK_CHOSEN: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    e = tl.arange(0, BLOCK)
    is_expert = e < NUM_EXPERTS
    logits = tl.load(logits_ptr + row * logits_stride + e, mask=is_expert, other=float("-inf"))
    if IS_SOFTMAX:
        weights = tl.exp(logits - tl.max(logits, 0))
        scores = weights / tl.sum(weights, 0)
    else:
        scores = 1.0 / (1.0 + tl.exp(-logits))
    wanted = scores
    if HAS_BIAS:
        wanted += tl.load(bias_ptr + e, mask=is_expert, other=0.0)
    wanted = tl.where(is_expert, wanted, float("-inf"))

    if NUM_CHOSEN_GROUPS < NUM_GROUPS:
        group = e // (NUM_EXPERTS // NUM_GROUPS)
        g = tl.arange(0, BLOCK_GROUPS)
        best = tl.full([BLOCK_GROUPS], float("-inf"), tl.float32)
        for index in tl.static_range(NUM_GROUPS):
            left = tl.where(group == index, wanted, float("-inf"))
            score = tl.max(left, 0)
            for _ in tl.static_range(COUNTS_TOP - 1):
                _, left = take_best(left, e, NUM_EXPERTS - 1)
                score += tl.max(left, 0)
            best = tl.where(g == index, score, best)
        is_in = e < 0
        for _ in tl.static_range(NUM_CHOSEN_GROUPS):
            index, best = take_best(best, g, NUM_GROUPS - 1)
            is_in = is_in | (group == index)
        wanted = tl.where(is_in, wanted, float("-inf"))

    c = tl.arange(0, BLOCK_CHOSEN)
    chosen = tl.zeros([BLOCK_CHOSEN], tl.int32)
    shares = tl.zeros([BLOCK_CHOSEN], tl.float32)
    total = 0.0
    for index in tl.static_range(NUM_CHOSEN):
        expert, wanted = take_best(wanted, e, NUM_EXPERTS - 1)
        share = tl.sum(tl.where(e == expert, scores, 0.0), 0)
        chosen = tl.where(c == index, expert, chosen)
        shares = tl.where(c == index, share, shares)
        total += share
    if NORMALISES:
        shares = shares / (total if IS_SOFTMAX else total + 1e-20)
    if HAS_SLOTS:
        chosen = tl.where(tl.load(slots_ptr + row) >= 0, chosen, NUM_EXPERTS)
    at = row * NUM_CHOSEN + c
    tl.store(chosen_ptr + at, chosen, mask=c < NUM_CHOSEN)
    tl.store(shares_ptr + at, shares * scale, mask=c < NUM_CHOSEN)


@triton.jit(do_not_specialize=("num_pairs",))  # type: ignore[untyped-decorator]  # triton has no types
def sort_pairs(
    chosen_ptr: tl.tensor,  # [num_pairs] integers; NUM_EXPERTS: none
    order_ptr: tl.tensor,  # [num_pairs] int32: pair of a sorted place
    starts_ptr: tl.tensor,  # [NUM_EXPERTS + 1] int32
    tiles_ptr: tl.tensor,  # [NUM_EXPERTS + 1] int32
    num_pairs: tl.tensor,
    NUM_EXPERTS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,  # of a tile
    BLOCK_EXPERTS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """See `triton.tiles` for what it makes; every program reads all pairs twice."""
    expert = tl.program_id(0)
    e = tl.arange(0, BLOCK_EXPERTS)
    p = tl.arange(0, BLOCK)
    counts = tl.zeros([BLOCK_EXPERTS], tl.int32)
    for begin in range(0, num_pairs, BLOCK):
        chosen = tl.load(chosen_ptr + begin + p, mask=begin + p < num_pairs, other=NUM_EXPERTS).to(tl.int32)
        counts += tl.histogram(chosen, BLOCK_EXPERTS, mask=chosen < NUM_EXPERTS)
    counts = tl.where(e < expert, counts, 0)
    place = tl.sum(counts, 0)
    tl.store(starts_ptr + expert, place)
    tl.store(tiles_ptr + expert, tl.sum((counts + BLOCK_ROWS - 1) // BLOCK_ROWS, 0))
    for begin in range(0, num_pairs, BLOCK):
        pair = begin + p
        is_its = tl.load(chosen_ptr + pair, mask=pair < num_pairs, other=-1) == expert
        rank = tl.cumsum(is_its.to(tl.int32), 0)
        tl.store(order_ptr + place + rank - 1, pair, mask=is_its)
        place += tl.sum(is_its.to(tl.int32), 0)


def choose_experts(
    logits: Tensor, bias: Tensor | None, choice: ExpertChoice, slots: Tensor | None
) -> tuple[Tensor, Tensor]:
    """`reference.choose_experts` on the device, in int32."""
    num_rows, num_experts = logits.shape
    chosen = torch.empty(num_rows, choice.num_chosen, dtype=torch.int32, device=logits.device)
    shares = torch.empty(num_rows, choice.num_chosen, dtype=torch.float32, device=logits.device)
    if not num_rows:
        return chosen, shares
    block = triton.next_power_of_2(num_experts)
    choose_rows[(num_rows,)](
        logits,
        bias if bias is not None else logits,
        slots if slots is not None else logits,
        chosen,
        shares,
        logits.stride(0),
        choice.scale,
        NUM_EXPERTS=num_experts,
        NUM_CHOSEN=choice.num_chosen,
        NUM_GROUPS=choice.num_groups,
        NUM_CHOSEN_GROUPS=choice.num_chosen_groups,
        COUNTS_TOP=min(choice.counts_top, num_experts // choice.num_groups),
        IS_SOFTMAX=choice.scoring == "softmax",
        NORMALISES=choice.normalises,
        HAS_BIAS=bias is not None,
        HAS_SLOTS=slots is not None,
        BLOCK=block,
        BLOCK_GROUPS=triton.next_power_of_2(choice.num_groups),
        BLOCK_CHOSEN=triton.next_power_of_2(choice.num_chosen),
        num_warps=choosing_warps(block),
        enable_fp_fusion=False,
    )
    return chosen, shares


def choosing_warps(block: int) -> int:
    """Warps for a row of `num_experts`: one while its registers hold them, for several wait for each other in each
    reduction, 143 times where 8 of 256 experts are chosen from 4 of 8 groups."""
    return max(1, min(4, block // 512))


def sorted_pairs(chosen: Tensor, num_experts: int, block_rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """(order, starts, tiles) of the pairs of chosen `[T, k]`, int32; tiles of block_rows rows."""
    order = torch.empty(chosen.numel(), dtype=torch.int32, device=chosen.device)
    starts, tiles = torch.empty(2, num_experts + 1, dtype=torch.int32, device=chosen.device)
    sort_pairs[(num_experts + 1,)](
        chosen,
        order,
        starts,
        tiles,
        chosen.numel(),
        NUM_EXPERTS=num_experts,
        BLOCK_ROWS=block_rows,
        BLOCK_EXPERTS=triton.next_power_of_2(num_experts),
        BLOCK=BLOCK_PAIRS,
        num_warps=4,
    )
    return order, starts, tiles
