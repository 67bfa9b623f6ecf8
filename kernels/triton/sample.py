"""Masked sampling on a GPU: one pass over the logits, then one small program per row.

::

    logits ──► summarise_groups ──► maximum and mass of every 128 tokens ──► choose_tokens ──► token ids
               (`scores.py`)                                                 one program a row

Bytes read per row, V tokens of b bytes: V b in the first step (what the mask allows of it, and V / 8 of mask), V / 16
of summaries in the second. Without filters that is all but one group of 128 tokens, from which the token is drawn.
With filters the program looks again at groups whose maximum says that they matter, and at nothing else:

    top-k    the k-th largest group maximum is a lower bound of the k-th largest score; among the groups above
             it, k at most if the maxima differ, a radix select of 4 x 8 bits finds it exactly: 2 to 4 looks
    top-p    a draw is kept if what is larger weighs little enough: a look at the groups with something larger;
             else the draw is repeated among these (1 + about log2(1 / p) looks, mostly 1)
    min-p    a look at the groups above the threshold

The result of a row does not depend on the batch: groups lie at absolute places and are added up in their order.
Distribution, ties and noise are defined in `plain.sample`. Nothing here waits for the host; a CUDA graph can hold it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..launch import most_registers
from ..logit_edits import LogitEdits
from ..plain import sample as reference_sample
from ..plain.sample import Logprobs, SamplingRows
from .logprobs import report
from .scores import GROUP, NUM_WARPS, STEP_SIZES, TILE_GROUPS, load_scores, open_row, row_arguments, summarise

ROUNDS = tl.constexpr(reference_sample.PHILOX_ROUNDS)


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def key_of(x: tl.tensor) -> tl.tensor:
    """fp32 as uint32 of the same order."""
    bits = x.to(tl.int32, bitcast=True)
    return tl.where(bits < 0, ~bits, bits ^ -2147483648).to(tl.uint32, bitcast=True)


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def number_of(key: tl.tensor) -> tl.tensor:
    """The inverse of `key_of`."""
    bits = key.to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ -2147483648, ~bits).to(tl.float32, bitcast=True)


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def gumbel(noise: tl.tensor, index: tl.tensor, stream: tl.tensor) -> tl.tensor:
    """`plain.sample.gumbel_noise` of a row, whose (seed, position) is `noise`."""
    seed, position = noise
    counter = index.to(tl.uint32)
    zero = counter * 0
    low = zero + (position & 0xFFFFFFFF).to(tl.uint32)
    high = zero + ((position >> 32) & 0xFFFFFFFF).to(tl.uint32)
    word, _, _, _ = tl.philox(seed, counter, low, high, zero + stream.to(tl.uint32), ROUNDS)
    u = (word.to(tl.float32) + 0.5) * 2.3283064365386963e-10
    series = u * (1.0 + u * (0.5 + u * 0.3333333432674408))
    exact = -tl.log(tl.maximum(1.0 - u, 2.9802322387695312e-08))
    return -tl.log(tl.where(u < 0.0078125, series, exact))


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def first_of(values: tl.tensor, most: tl.tensor, index: tl.tensor) -> tl.tensor:
    """The lowest index where values == most."""
    return tl.min(tl.where(values == most, index, 2147483647), 0)


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def list_groups(tops: tl.tensor, is_wanted: tl.tensor, list_ptr: tl.tensor, BLOCK: tl.constexpr) -> tl.tensor:
    """Writes the groups wanted to the row's list, in order; returns how many."""
    chosen = is_wanted.to(tl.int32)
    tl.debug_barrier()  # others may still read the list before
    tl.store(list_ptr + tl.cumsum(chosen, 0) - 1, tl.arange(0, BLOCK), mask=is_wanted)
    tl.debug_barrier()
    return tl.sum(chosen, 0)


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def load_listed(
    opened: tl.tensor,
    list_ptr: tl.tensor,
    start: tl.tensor,
    num: tl.tensor,
    EDITED: tl.constexpr,
) -> tl.tensor:
    """Groups [start, start + TILE_GROUPS) of the list and their scores; -inf beyond its end."""
    i = start + tl.arange(0, TILE_GROUPS)
    groups = tl.load(list_ptr + i, mask=i < num, other=0)
    n = groups[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    wanted = (i < num)[:, None] & (n >= 0)
    return groups, load_scores(opened, n, wanted, EDITED)


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def take_digit(counts: tl.tensor, wanted: tl.tensor) -> tl.tensor:
    """The digit at which the counts, added up, reach `wanted` (256: never), and how much is wanted within it."""
    reached = tl.cumsum(counts, 0)
    before = reached < wanted
    return tl.sum(before.to(tl.int32), 0), wanted - tl.max(tl.where(before, reached, 0), 0)


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def digits_at(x: tl.tensor, high: tl.tensor, prefix: tl.tensor, least: tl.tensor, SHIFT: tl.constexpr) -> tl.tensor:
    """Counts of the digit at SHIFT of the distances from x up to `high`, whose digits above are `prefix`."""
    distance = high - key_of(x)
    is_meant = (x >= least) & (x > float("-inf")) & (((distance >> SHIFT) >> 8) == prefix)
    return tl.histogram(((distance >> SHIFT) & 255).to(tl.int32), 256, mask=is_meant)


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def kth_top(tops: tl.tensor, top: tl.tensor, wanted: tl.tensor) -> tl.tensor:
    """The wanted-th largest of the tops; -inf if there are fewer."""
    high = key_of(top)
    prefix = high * 0
    is_short = False
    for i in tl.static_range(4):
        digit, wanted = take_digit(digits_at(tops, high, prefix, float("-inf"), 24 - 8 * i), wanted)
        is_short = is_short | (digit > 255)
        prefix = prefix * 256 + tl.minimum(digit, 255).to(tl.uint32)
    return tl.where(is_short, float("-inf"), number_of(high - prefix))


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def kth_score(
    opened: tl.tensor,
    tops: tl.tensor,
    top: tl.tensor,
    wanted: tl.tensor,
    list_ptr: tl.tensor,
    EDITED: tl.constexpr,
    BLOCK: tl.constexpr,
) -> tl.tensor:
    """The wanted-th largest score of the row; -inf if there are fewer."""
    least = kth_top(tops, top, wanted)
    num = list_groups(tops, (tops >= least) & (tops > float("-inf")), list_ptr, BLOCK)
    high = key_of(top)
    span = high - key_of(least)
    prefix = high * 0
    is_short = False
    for i in tl.static_range(4):
        digit = 0
        if (span >> (24 - 8 * i)) != 0:
            counts = tl.zeros([256], tl.int32)
            for start in range(0, num, TILE_GROUPS):
                _, x = load_listed(opened, list_ptr, start, num, EDITED)
                counts += digits_at(tl.reshape(x, [TILE_GROUPS * GROUP]), high, prefix, least, 24 - 8 * i)
            digit, wanted = take_digit(counts, wanted)
        is_short = is_short | (digit > 255)
        prefix = prefix * 256 + tl.minimum(digit, 255).to(tl.uint32)
    return tl.where(is_short, float("-inf"), number_of(high - prefix))


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def survey(
    opened: tl.tensor,
    noise: tl.tensor,
    tops: tl.tensor,
    top: tl.tensor,
    above: tl.tensor,
    stream: tl.tensor,
    list_ptr: tl.tensor,
    EDITED: tl.constexpr,
    BLOCK: tl.constexpr,
) -> tl.tensor:
    """Of the scores larger than `above`: their mass, as multiples of exp(top), and the group drawn by them."""
    num = list_groups(tops, tops > above, list_ptr, BLOCK)
    mass = 0.0
    best = float("-inf")
    chosen = 0
    for start in range(0, num, TILE_GROUPS):
        groups, x = load_listed(opened, list_ptr, start, num, EDITED)
        x = tl.where(x > above, x, float("-inf"))
        group_top = tl.max(x, 1)
        is_real = group_top > float("-inf")
        group_top = tl.where(is_real, group_top, 0.0)
        group_mass = tl.sum(tl.exp(x - group_top[:, None]), 1)
        mass += tl.sum(group_mass * tl.exp(tl.where(is_real, group_top - top, float("-inf"))), 0)
        noisy = group_top + tl.log(tl.maximum(group_mass, 1.0)) + gumbel(noise, groups, stream)
        noisy = tl.where(is_real, noisy, float("-inf"))
        most = tl.max(noisy, 0)
        chosen = tl.where(most > best, first_of(noisy, most, groups), chosen)
        best = tl.maximum(best, most)
    return mass, chosen


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def draw_token(
    opened: tl.tensor,
    noise: tl.tensor,
    group: tl.tensor,
    above: tl.tensor,
    stream: tl.tensor,
    EDITED: tl.constexpr,
) -> tl.tensor:
    """The token drawn within a group, among the scores larger than `above`, and its score."""
    n = group * GROUP + tl.arange(0, GROUP)
    x = load_scores(opened, n, n >= 0, EDITED)
    noisy = tl.where(x > above, x + gumbel(noise, n, stream + 1), float("-inf"))
    token = first_of(noisy, tl.max(noisy, 0), n)
    return token, tl.max(tl.where(n == token, x, float("-inf")), 0)


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def below(x: tl.tensor) -> tl.tensor:
    """The largest number less than x, so that `> below(x)` is `>= x`; -inf for -inf."""
    key = key_of(x)
    step = 1 + (key == 0x80000000).to(tl.uint32)  # from 0.0 past -0.0, which is no less
    return tl.where(x > float("-inf"), number_of(key - step), x)


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def draw(
    opened: tl.tensor,
    noise: tl.tensor,
    filters: tl.tensor,
    tops: tl.tensor,
    masses: tl.tensor,
    top: tl.tensor,
    list_ptr: tl.tensor,
    EDITED: tl.constexpr,
    BLOCK: tl.constexpr,
) -> tl.tensor:
    """A sample of one row's softmax over what its filters leave."""
    top_k, top_p, min_p = filters
    vocab_size = opened[3]
    g = tl.arange(0, BLOCK)
    stream = top_k * 0
    above = top * 0 + float("-inf")
    total = tl.sum(masses * tl.exp(tops - top), 0)
    noisy = tops + tl.log(tl.maximum(masses, 1.0)) + gumbel(noise, g, stream)  # the mass of a group is 1 or more, or 0
    group = first_of(noisy, tl.max(noisy, 0), g)
    if (top_k > 0) & (top_k < vocab_size):
        above = below(kth_score(opened, tops, top, top_k, list_ptr, EDITED, BLOCK))
    if min_p > 0:
        above = tl.maximum(above, below(top + tl.log(min_p)))
    if above > float("-inf"):
        total, group = survey(opened, noise, tops, top, above, stream, list_ptr, EDITED, BLOCK)
    token, score = draw_token(opened, noise, group, above, stream, EDITED)
    is_open = top_p < 1.0
    while is_open:
        stream += 2
        mass, group = survey(opened, noise, tops, top, score, stream, list_ptr, EDITED, BLOCK)
        is_open = (mass > 0) & (mass >= top_p * total)
        if is_open:
            token, score = draw_token(opened, noise, group, score, stream, EDITED)
    return token


@triton.jit(do_not_specialize=STEP_SIZES)  # type: ignore[untyped-decorator]  # triton has no types
def choose_tokens(
    logits_ptr: tl.tensor,  # as in `summarise_groups`
    mask_ptr: tl.tensor,
    mask_rows_ptr: tl.tensor,
    temperature_ptr: tl.tensor,
    counts_ptr: tl.tensor,
    count_rows_ptr: tl.tensor,
    repetition_ptr: tl.tensor,
    presence_ptr: tl.tensor,
    frequency_ptr: tl.tensor,
    drafted_ptr: tl.tensor,
    biases_ptr: tl.tensor,
    bias_rows_ptr: tl.tensor,
    tops_ptr: tl.tensor,  # [R, G] fp32
    masses_ptr: tl.tensor,  # [R, G] fp32
    top_k_ptr: tl.tensor,
    top_p_ptr: tl.tensor,
    min_p_ptr: tl.tensor,
    seeds_ptr: tl.tensor,
    positions_ptr: tl.tensor,
    lists_ptr: tl.tensor,  # [R, G] int32, room
    out_ptr: tl.tensor,  # [R] int64
    logits_stride: tl.tensor,
    mask_stride: tl.tensor,
    vocab_size: tl.tensor,
    num_masks: tl.tensor,
    num_counts: tl.tensor,
    num_biases: tl.tensor,
    num_drafted: tl.tensor,
    num_groups: tl.tensor,
    EDITED: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """The token of one row, from the summaries of its groups; -1 if nothing is allowed."""
    row = tl.program_id(0).to(tl.int64)
    g = tl.arange(0, BLOCK)
    tops = tl.load(tops_ptr + row * num_groups + g, mask=g < num_groups, other=float("-inf"))
    top = tl.max(tops, 0)
    token = -1
    if top > float("-inf"):
        logits = (logits_ptr, logits_stride, vocab_size, temperature_ptr)
        masks = (mask_ptr, mask_rows_ptr, mask_stride, num_masks)
        factors = (repetition_ptr, presence_ptr, frequency_ptr)
        penalties = ((counts_ptr, count_rows_ptr, num_counts), factors, (drafted_ptr, num_drafted))
        opened = open_row(row, logits, masks, penalties, (biases_ptr, bias_rows_ptr, num_biases))
        if tl.load(temperature_ptr + row) <= 0:
            n = first_of(tops, top, g) * GROUP + tl.arange(0, GROUP)
            token = first_of(load_scores(opened, n, n >= 0, EDITED), top, n)
        else:
            masses = tl.load(masses_ptr + row * num_groups + g, mask=g < num_groups, other=0.0)
            noise = (tl.load(seeds_ptr + row), tl.load(positions_ptr + row))
            filters = (tl.load(top_k_ptr + row).to(tl.int32), tl.load(top_p_ptr + row), tl.load(min_p_ptr + row))
            token = draw(opened, noise, filters, tops, masses, top, lists_ptr + row * num_groups, EDITED, BLOCK)
    tl.store(out_ptr + row, token)


def sample(
    logits: Tensor,
    mask_table: Tensor | None,
    rows: SamplingRows,
    edits: LogitEdits | None = None,
    num_top: int | None = None,
) -> tuple[Tensor, Logprobs | None]:
    """`reference.sample` on the device: two launches, three with log-probabilities."""
    token_ids = torch.empty(len(logits), dtype=torch.int64, device=logits.device)
    if len(logits) == 0:
        return token_ids, None if num_top is None else report(logits, None, token_ids, num_top)
    tensors, sizes = row_arguments(logits, mask_table, rows.mask_rows, rows.temperature, edits)
    scores, raw = summarise(logits, tensors, sizes, has_raw=num_top is not None)
    num_groups = scores.tops.shape[1]
    choose_tokens[(len(logits),)](
        *tensors,
        *scores,
        *rows[2:],
        torch.empty_like(scores.tops, dtype=torch.int32),
        token_ids,
        *sizes,
        num_groups,
        EDITED=edits is not None,
        BLOCK=triton.next_power_of_2(num_groups),
        num_warps=NUM_WARPS,
        maxnreg=most_registers(NUM_WARPS),  # or the compiler spills, to fit more programs than a step has
        enable_fp_fusion=False,
    )
    return token_ids, None if num_top is None else report(logits, raw, token_ids, num_top)
