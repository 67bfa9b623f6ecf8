"""The first of two steps of sampling on a GPU: one pass over the logits, which leaves a maximum and a mass per group.

::

    logits [R, V] ──► tiles of 32 groups of 128 tokens, one program each ──► tops, masses [R, G] (1/64 of the bytes)

The score of a token is its edited logit / temperature, -inf where masked, out of range or NaN. Logits that the mask
forbids are not read; a tile that it forbids altogether costs its 128 mask words. A group's numbers do not depend
on anything but its own tokens: the vocabulary is always cut at the same places, so neither batch nor grid matter.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..logit_edits import LogitEdits
from ..plain import sample as reference_sample

GROUP = tl.constexpr(reference_sample.GROUP)
TILE_GROUPS = tl.constexpr(32)
MOST = tl.constexpr(reference_sample.LARGEST)
NUM_WARPS = 8
# sizes that change from step to step: no kernel is compiled for some values of them apart
STEP_SIZES = ("mask_stride", "num_masks", "num_counts", "num_biases", "num_drafted")


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def load_raw(logits: tl.tensor, n: tl.tensor, wanted: tl.tensor) -> tl.tensor:
    """Logits of tokens n as fp32; -inf where not wanted or NaN, +inf as the largest number."""
    x = tl.load(logits + n, mask=wanted, other=float("-inf")).to(tl.float32)
    return tl.where(x == x, tl.minimum(x, MOST), float("-inf"))


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def open_row(row: tl.tensor, logits: tl.tensor, masks: tl.tensor, penalties: tl.tensor, biases: tl.tensor) -> tl.tensor:
    """What `load_scores` needs to know of one row, as a tuple. The arguments are the kernels' own, in four tuples."""
    logits_ptr, logits_stride, vocab_size, temperature_ptr = logits
    mask_ptr, mask_rows_ptr, mask_stride, num_masks = masks
    counted, factors, drafted = penalties
    counts_ptr, count_rows_ptr, num_counts = counted
    drafted_ptr, num_drafted = drafted
    biases_ptr, bias_rows_ptr, num_biases = biases
    repetition_ptr, presence_ptr, frequency_ptr = factors
    temperature = tl.load(temperature_ptr + row)
    divisor = tl.where(temperature > 0, temperature, 1.0)
    mask_row = tl.load(mask_rows_ptr + row).to(tl.int64)
    mask = mask_ptr + tl.maximum(mask_row, 0) * mask_stride
    count_row = tl.load(count_rows_ptr + row).to(tl.int64)
    counts = counts_ptr + tl.maximum(count_row, 0) * vocab_size
    repetition = tl.load(repetition_ptr + row)
    presence = tl.load(presence_ptr + row)
    frequency = tl.load(frequency_ptr + row)
    bias_row = tl.load(bias_rows_ptr + row).to(tl.int64)
    bias = biases_ptr + tl.maximum(bias_row, 0) * vocab_size
    place = (logits_ptr + row * logits_stride, divisor, mask, (mask_row >= 0) & (num_masks > 0))
    is_penalised = (count_row >= 0) & (num_counts > 0)
    penalty = (is_penalised, counts, repetition, presence, frequency, drafted_ptr + row * num_drafted, num_drafted)
    return place, penalty, ((bias_row >= 0) & (num_biases > 0), bias), vocab_size


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def load_scores(opened: tl.tensor, n: tl.tensor, wanted: tl.tensor, EDITED: tl.constexpr) -> tl.tensor:
    """Scores of tokens n, as the module says; -inf where not wanted."""
    place, penalties, bias, vocab_size = opened
    logits, divisor, mask, is_masked = place
    wanted = wanted & (n < vocab_size)
    if is_masked:
        words = tl.load(mask + n // 32, mask=wanted, other=0)
        wanted = wanted & (((words >> (n % 32)) & 1) != 0)
    x = tl.load(logits + n, mask=wanted, other=float("-inf")).to(tl.float32)
    if EDITED:
        is_biased, biases = bias
        if is_biased:
            x = x + tl.load(biases + n, mask=wanted, other=0.0)
        is_penalised, counts, repetition, presence, frequency, drafted, num_drafted = penalties
        if is_penalised:
            stored = tl.load(counts + n, mask=wanted, other=0).to(tl.int32)
            count = stored & 0x7FFF
            for i in range(num_drafted):
                count += (tl.load(drafted + i) == n).to(tl.int32)
            count = tl.minimum(count, 0x7FFF)
            repeated = tl.where(x > 0, tl.div_rn(x, tl.zeros_like(x) + repetition), x * repetition)
            x = tl.where((stored < 0) | (count > 0), repeated, x)
            x = tl.where(count > 0, x - (presence + frequency * count.to(tl.float32)), x)
    x = tl.div_rn(x, tl.zeros_like(x) + divisor)
    return tl.where((x == x) & wanted, tl.minimum(x, MOST), float("-inf"))


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def store_summary(x: tl.tensor, at: tl.tensor, tops_ptr: tl.tensor, masses_ptr: tl.tensor) -> None:
    """Maximum and sum of exp(score - maximum) of each group (row of x); -inf and 0 for an empty one."""
    top = tl.max(x, 1)
    finite = tl.where(top > float("-inf"), top, 0.0)
    mass = tl.sum(tl.exp(x - finite[:, None]), 1)
    i = tl.arange(0, TILE_GROUPS)
    tl.store(tops_ptr + at + i, top)
    tl.store(masses_ptr + at + i, mass)


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def may_write(opened: tl.tensor, first_group: tl.tensor) -> tl.tensor:
    """Whether the mask allows any token of the tile."""
    place, _, _, vocab_size = opened
    _, _, mask, is_masked = place
    found = 1
    if is_masked:
        first = first_group * (GROUP // 32) + tl.arange(0, TILE_GROUPS * GROUP // 32)
        words = tl.load(mask + first, mask=first * 32 < vocab_size, other=0)
        found = tl.max((words != 0).to(tl.int32), 0)
    return found != 0


@triton.jit(do_not_specialize=STEP_SIZES)  # type: ignore[untyped-decorator]  # triton has no types
def summarise_groups(
    logits_ptr: tl.tensor,  # [R, V]
    mask_ptr: tl.tensor,  # [M, W] int32
    mask_rows_ptr: tl.tensor,  # [R] int32
    temperature_ptr: tl.tensor,  # [R] fp32
    counts_ptr: tl.tensor,  # [S, V] int16, and so on: `logit_edits`
    count_rows_ptr: tl.tensor,
    repetition_ptr: tl.tensor,
    presence_ptr: tl.tensor,
    frequency_ptr: tl.tensor,
    drafted_ptr: tl.tensor,
    biases_ptr: tl.tensor,
    bias_rows_ptr: tl.tensor,
    tops_ptr: tl.tensor,  # [R, G] fp32
    masses_ptr: tl.tensor,  # [R, G] fp32
    raw_tops_ptr: tl.tensor,  # [R, G] fp32, of the raw logits
    raw_masses_ptr: tl.tensor,  # [R, G] fp32
    logits_stride: tl.tensor,
    mask_stride: tl.tensor,
    vocab_size: tl.tensor,
    num_masks: tl.tensor,
    num_counts: tl.tensor,
    num_biases: tl.tensor,
    num_drafted: tl.tensor,
    HAS_SCORES: tl.constexpr,
    HAS_RAW: tl.constexpr,
    EDITED: tl.constexpr,
) -> None:
    """One tile of one row: the summaries of its scores (HAS_SCORES) and of its raw logits (HAS_RAW).

    EDITED: some row has penalties or biases; the code for them takes registers.
    """
    row = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    first_group = tile * TILE_GROUPS
    n = (first_group + tl.arange(0, TILE_GROUPS))[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    at = row * tl.num_programs(1) * TILE_GROUPS + first_group
    if HAS_RAW:
        raw = load_raw(logits_ptr + row * logits_stride, n, n < vocab_size)
        store_summary(raw, at, raw_tops_ptr, raw_masses_ptr)
    if HAS_SCORES:
        logits = (logits_ptr, logits_stride, vocab_size, temperature_ptr)
        masks = (mask_ptr, mask_rows_ptr, mask_stride, num_masks)
        factors = (repetition_ptr, presence_ptr, frequency_ptr)
        penalties = ((counts_ptr, count_rows_ptr, num_counts), factors, (drafted_ptr, num_drafted))
        opened = open_row(row, logits, masks, penalties, (biases_ptr, bias_rows_ptr, num_biases))
        if may_write(opened, first_group):
            x = load_scores(opened, n, n < vocab_size, EDITED)
            store_summary(x, at, tops_ptr, masses_ptr)
        else:
            i = tl.arange(0, TILE_GROUPS)
            tl.store(tops_ptr + at + i, tl.full([TILE_GROUPS], float("-inf"), tl.float32))
            tl.store(masses_ptr + at + i, tl.zeros([TILE_GROUPS], tl.float32))


class Summaries(NamedTuple):
    """Maximum and sum of exp(score - maximum) of each group of each row: `[R, G]` fp32, G a multiple of TILE_GROUPS."""

    tops: Tensor
    masses: Tensor


def row_arguments(
    logits: Tensor, mask_table: Tensor | None, mask_rows: Tensor, temperature: Tensor, edits: LogitEdits | None
) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    """What `open_row` takes: its tensors and its sizes. In place of a table that is missing, any tensor, of size 0."""
    edit_tensors: tuple[Tensor, ...] = (mask_rows, mask_rows, *(temperature,) * 3, mask_rows, temperature, mask_rows)
    num_counts = num_biases = num_drafted = 0
    if edits is not None:
        penalties = (edits.repetition, edits.presence, edits.frequency)
        edit_tensors = (edits.counts, edits.count_rows, *penalties, edits.drafted, edits.biases, edits.bias_rows)
        num_counts, num_biases, num_drafted = len(edits.counts), len(edits.biases), edits.drafted.shape[1]
    table = mask_rows[:, None] if mask_table is None else mask_table
    num_masks = 0 if mask_table is None else len(mask_table)
    tensors = (logits, table, mask_rows, temperature, *edit_tensors)
    sizes = (logits.stride(0), table.stride(0), logits.shape[1], num_masks, num_counts, num_biases, num_drafted)
    return tensors, sizes


def summarise(
    logits: Tensor, tensors: tuple[Tensor, ...], sizes: tuple[int, ...], *, has_raw: bool
) -> tuple[Summaries, Summaries | None]:
    """The summaries of all rows' scores, and of their raw logits if wanted; `row_arguments` are given."""
    scores, raw = _room(logits), _room(logits) if has_raw else None
    _launch(logits, tensors, scores, raw or scores, sizes, has_scores=True, has_raw=has_raw)
    return scores, raw


def summarise_raw(logits: Tensor) -> Summaries:
    """The summaries of all rows' raw logits."""
    raw = _room(logits)
    sizes = (logits.stride(0), 0, logits.shape[1], 0, 0, 0, 0)
    _launch(logits, (logits,) * 12, raw, raw, sizes, has_scores=False, has_raw=True)
    return raw


def _room(logits: Tensor) -> Summaries:
    num_rows, vocab_size = logits.shape
    num_groups = triton.cdiv(vocab_size, GROUP.value * TILE_GROUPS.value) * TILE_GROUPS.value
    room = torch.empty((2, num_rows, num_groups), dtype=torch.float32, device=logits.device)
    return Summaries(room[0], room[1])


def _launch(
    logits: Tensor,
    tensors: tuple[Tensor, ...],
    scores: Summaries,
    raw: Summaries,
    sizes: tuple[Any, ...],
    *,
    has_scores: bool,
    has_raw: bool,
) -> None:
    num_rows, num_groups = scores.tops.shape
    summarise_groups[(num_rows, num_groups // TILE_GROUPS.value)](
        *tensors,
        *scores,
        *raw,
        *sizes,
        HAS_SCORES=has_scores,
        HAS_RAW=has_raw,
        EDITED=sizes[4] + sizes[5] > 0,
        num_warps=NUM_WARPS,
        enable_fp_fusion=False,
    )
