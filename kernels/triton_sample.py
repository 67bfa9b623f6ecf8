"""Masked sampling on the device: threshold (if a row filters), one pass over the vocabulary, a small argmax.

The vocabulary is split over programs when rows are few. A program takes 4096 tokens at a time, 1024 per word
of a Philox evaluation; logits that the mask forbids are not even read, and noise is drawn only for a chunk
whose best token could still win. What a row gets does not depend on the split or the batch: the argmax of
fixed numbers, ties to the lowest id.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .reference import PHILOX_ROUNDS

WORD = 1024  # tokens per Philox word; the noise is defined in these chunks (`reference.random_bits`)
CHUNK = 4 * WORD
MAX_NOISE = 22.9


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def load_scores(
    logits_ptr: tl.tensor,
    mask_ptr: tl.tensor,
    n: tl.tensor,
    vocab_size: tl.tensor,
    temperature: tl.tensor,
    is_masked: tl.tensor,
) -> tl.tensor:
    """Tempered logits of tokens n; -inf where masked, out of range or NaN."""
    allowed = n < vocab_size
    if is_masked:
        words = tl.load(mask_ptr + n // 32, mask=allowed, other=0)
        allowed = allowed & (((words >> (n % 32)) & 1) != 0)
    x = tl.load(logits_ptr + n, mask=allowed, other=float("-inf")).to(tl.float32)
    x = tl.where(x == x, x, float("-inf"))
    return tl.div_rn(x, tl.zeros_like(x) + temperature)


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def ordered(x: tl.tensor) -> tl.tensor:
    """fp32 as int64 keys of the same order."""
    bits = x.to(tl.int32, bitcast=True)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.int64)


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def unordered(key: tl.tensor) -> tl.tensor:
    """The inverse of `ordered`."""
    bits = key.to(tl.int32)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def gumbel(word: tl.tensor) -> tl.tensor:
    """Standard Gumbel noise from 32 random bits, as `reference.gumbel_noise`."""
    u = (word.to(tl.float32) + 0.5) * 2.3283064365386963e-10
    series = u * (1.0 + u * (0.5 + u * 0.3333333432674408))
    exact = -tl.log(tl.maximum(1.0 - u, 2.9802322387695312e-08))
    return -tl.log(tl.where(u < 0.0078125, series, exact))


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def mass_above(
    logits: tl.tensor,
    mask: tl.tensor,
    vocab_size: tl.tensor,
    temperature: tl.tensor,
    is_masked: tl.tensor,
    key: tl.tensor,
    floor: tl.tensor,
    top: tl.tensor,
    COUNT: tl.constexpr,
    BLOCK: tl.constexpr,
) -> tl.tensor:
    """How many tokens (COUNT), or how much of exp(score - top), have a key >= `key` and >= `floor`."""
    total = 0.0
    least = tl.maximum(key, floor)
    for start in range(0, vocab_size, BLOCK):
        n = start + tl.arange(0, BLOCK)
        x = load_scores(logits, mask, n, vocab_size, temperature, is_masked)
        weight = tl.where(n < vocab_size, 1.0, 0.0) if COUNT else tl.exp(x - top)
        total += tl.sum(tl.where(ordered(x) >= least, weight, 0.0), 0)
    return total


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def largest_key(
    logits: tl.tensor,
    mask: tl.tensor,
    vocab_size: tl.tensor,
    temperature: tl.tensor,
    is_masked: tl.tensor,
    low: tl.tensor,
    high: tl.tensor,
    top: tl.tensor,
    wanted: tl.tensor,
    COUNT: tl.constexpr,
    BLOCK: tl.constexpr,
) -> tl.tensor:
    """The largest key in [low, high] whose tokens at or above it amount to `wanted`; low surely does."""
    floor = low
    while low < high:
        middle = low + (high - low + 1) // 2
        amount = mass_above(
            logits, mask, vocab_size, temperature, is_masked, middle, floor, top, COUNT=COUNT, BLOCK=BLOCK
        )
        reached = amount >= wanted
        low = tl.where(reached, middle, low)
        high = tl.where(reached, high, middle - 1)
    return low


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def find_thresholds(
    logits_ptr: tl.tensor,  # [R, V]
    mask_ptr: tl.tensor,  # [M, W] int32
    mask_rows_ptr: tl.tensor,  # [R] int32
    temperature_ptr: tl.tensor,
    top_k_ptr: tl.tensor,
    top_p_ptr: tl.tensor,
    min_p_ptr: tl.tensor,
    thresholds_ptr: tl.tensor,  # [R] fp32
    logits_stride: tl.tensor,
    mask_stride: tl.tensor,
    vocab_size: tl.tensor,
    HAS_MASK: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """One program per row: the score below which tokens are dropped, as `reference.keep_threshold`."""
    row = tl.program_id(0).to(tl.int64)
    temperature = tl.load(temperature_ptr + row)
    top_k = tl.load(top_k_ptr + row).to(tl.int32)
    top_p = tl.load(top_p_ptr + row)
    min_p = tl.load(min_p_ptr + row)
    threshold = float("-inf")
    filters_k = (top_k > 0) & (top_k < vocab_size)
    filters_p = top_p < 1.0
    if (temperature > 0) & (filters_k | filters_p | (min_p > 0)):
        logits = logits_ptr + row * logits_stride
        mask_row = tl.load(mask_rows_ptr + row).to(tl.int64) if HAS_MASK else -1
        mask = mask_ptr + tl.maximum(mask_row, 0) * mask_stride
        is_masked = mask_row >= 0
        tops = tl.full([BLOCK], float("-inf"), tl.float32)
        for start in range(0, vocab_size, BLOCK):
            n = start + tl.arange(0, BLOCK)
            tops = tl.maximum(tops, load_scores(logits, mask, n, vocab_size, temperature, is_masked))
        top = tl.max(tops, 0)
        if top > float("-inf"):
            low = ordered(tl.full([1], float("-inf"), tl.float32))
            high = ordered(tl.zeros([1], tl.float32) + top)
            low = tl.sum(low, 0)
            high = tl.sum(high, 0)
            if filters_k:
                low = largest_key(
                    logits,
                    mask,
                    vocab_size,
                    temperature,
                    is_masked,
                    low,
                    high,
                    top,
                    top_k.to(tl.float32),
                    COUNT=True,
                    BLOCK=BLOCK,
                )
            if filters_p:
                mass = mass_above(
                    logits, mask, vocab_size, temperature, is_masked, low, low, top, COUNT=False, BLOCK=BLOCK
                )
                low = largest_key(
                    logits,
                    mask,
                    vocab_size,
                    temperature,
                    is_masked,
                    low,
                    high,
                    top,
                    top_p * mass,
                    COUNT=False,
                    BLOCK=BLOCK,
                )
            threshold = unordered(low)
            if min_p > 0:
                threshold = tl.maximum(threshold, top + tl.log(min_p))
    tl.store(thresholds_ptr + row, threshold)


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def choose_in_part(
    logits_ptr: tl.tensor,
    mask_ptr: tl.tensor,
    mask_rows_ptr: tl.tensor,
    temperature_ptr: tl.tensor,
    thresholds_ptr: tl.tensor,
    seeds_ptr: tl.tensor,
    positions_ptr: tl.tensor,
    values_ptr: tl.tensor,  # [R, P] fp32
    ids_ptr: tl.tensor,  # [R, P] int32
    logits_stride: tl.tensor,
    mask_stride: tl.tensor,
    vocab_size: tl.tensor,
    part_size: tl.tensor,  # a multiple of 4 * WORD_SIZE
    HAS_MASK: tl.constexpr,
    HAS_THRESHOLD: tl.constexpr,
    WORD_SIZE: tl.constexpr,
    ROUNDS: tl.constexpr,
    MOST_NOISE: tl.constexpr,
) -> None:
    """The best token of one part of the vocabulary for one row."""
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    temperature = tl.load(temperature_ptr + row)
    draws = temperature > 0
    divisor = tl.where(draws, temperature, 1.0)
    threshold = tl.load(thresholds_ptr + row) if HAS_THRESHOLD else float("-inf")
    seed = tl.load(seeds_ptr + row)
    position = tl.load(positions_ptr + row)
    logits = logits_ptr + row * logits_stride
    mask_row = tl.load(mask_rows_ptr + row).to(tl.int64) if HAS_MASK else -1
    mask = mask_ptr + tl.maximum(mask_row, 0) * mask_stride
    is_masked = mask_row >= 0

    i = tl.arange(0, WORD_SIZE)
    best = float("-inf")
    best_id = 2147483647
    begin = part * part_size
    for start in range(begin, tl.minimum(begin + part_size, vocab_size), 4 * WORD_SIZE):
        n = start + i
        x0 = load_scores(logits, mask, n, vocab_size, divisor, is_masked)
        x1 = load_scores(logits, mask, n + WORD_SIZE, vocab_size, divisor, is_masked)
        x2 = load_scores(logits, mask, n + 2 * WORD_SIZE, vocab_size, divisor, is_masked)
        x3 = load_scores(logits, mask, n + 3 * WORD_SIZE, vocab_size, divisor, is_masked)
        if draws:
            most = tl.max(tl.maximum(tl.maximum(x0, x1), tl.maximum(x2, x3)), 0)
            if (most >= threshold) & (most + MOST_NOISE >= best) & (most > float("-inf")):
                counter = (start // 4 + i).to(tl.uint32)
                low = (position & 0xFFFFFFFF).to(tl.uint32)
                high = ((position >> 32) & 0xFFFFFFFF).to(tl.uint32)
                zero = counter * 0
                w0, w1, w2, w3 = tl.philox(seed, counter, zero + low, zero + high, zero, ROUNDS)
                x0 = tl.where(x0 >= threshold, x0 + gumbel(w0), float("-inf"))
                x1 = tl.where(x1 >= threshold, x1 + gumbel(w1), float("-inf"))
                x2 = tl.where(x2 >= threshold, x2 + gumbel(w2), float("-inf"))
                x3 = tl.where(x3 >= threshold, x3 + gumbel(w3), float("-inf"))
            else:  # no token here can win
                x0 = tl.full([WORD_SIZE], float("-inf"), tl.float32)
                x1, x2, x3 = x0, x0, x0
        most = tl.max(tl.maximum(tl.maximum(x0, x1), tl.maximum(x2, x3)), 0)
        if most > best:
            near = tl.where(x3 == most, n + 3 * WORD_SIZE, 2147483647)
            near = tl.where(x2 == most, n + 2 * WORD_SIZE, near)
            near = tl.where(x1 == most, n + WORD_SIZE, near)
            near = tl.where(x0 == most, n, near)
            best = most
            best_id = tl.min(near, 0)
    at = row * tl.num_programs(1) + part
    tl.store(values_ptr + at, best)
    tl.store(ids_ptr + at, best_id)


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def choose_part(
    values_ptr: tl.tensor, ids_ptr: tl.tensor, out_ptr: tl.tensor, num_parts: tl.tensor, BLOCK: tl.constexpr
) -> None:
    """The best of a row's parts: the larger value, then the lower id; -1 if nothing was allowed."""
    row = tl.program_id(0).to(tl.int64)
    p = tl.arange(0, BLOCK)
    values = tl.load(values_ptr + row * num_parts + p, mask=p < num_parts, other=float("-inf"))
    ids = tl.load(ids_ptr + row * num_parts + p, mask=p < num_parts, other=2147483647)
    best = tl.max(values, 0)
    chosen = tl.min(tl.where(values == best, ids, 2147483647), 0)
    tl.store(out_ptr + row, tl.where(best > float("-inf"), chosen, -1).to(tl.int64))


def sample(
    logits: Tensor,
    mask_table: Tensor | None,
    mask_rows: Tensor,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    min_p: Tensor,
    seeds: Tensor,
    positions: Tensor,
    *,
    num_processors: int,
    has_filters: bool = True,
) -> Tensor:
    """`reference.sample` on the device. has_filters False: no row has top-k, top-p or min-p; a launch less."""
    num_rows, vocab_size = logits.shape
    device = logits.device
    token_ids = torch.empty(num_rows, dtype=torch.int64, device=device)
    if num_rows == 0:
        return token_ids
    has_mask = mask_table is not None
    table = mask_table if mask_table is not None else mask_rows
    mask_stride = table.stride(0)
    thresholds = torch.empty(num_rows, dtype=torch.float32, device=device)
    if has_filters:
        find_thresholds[(num_rows,)](
            logits,
            table,
            mask_rows,
            temperature,
            top_k,
            top_p,
            min_p,
            thresholds,
            logits.stride(0),
            mask_stride,
            vocab_size,
            HAS_MASK=has_mask,
            BLOCK=min(CHUNK, triton.next_power_of_2(vocab_size)),
            num_warps=8,
            enable_fp_fusion=False,
        )
    num_chunks = triton.cdiv(vocab_size, CHUNK)
    chunks_per_part = triton.cdiv(num_chunks, max(1, min(num_chunks, num_processors // num_rows)))
    num_parts = triton.cdiv(num_chunks, chunks_per_part)
    values = torch.empty((num_rows, num_parts), dtype=torch.float32, device=device)
    ids = torch.empty((num_rows, num_parts), dtype=torch.int32, device=device)
    choose_in_part[(num_rows, num_parts)](
        logits,
        table,
        mask_rows,
        temperature,
        thresholds,
        seeds,
        positions,
        values,
        ids,
        logits.stride(0),
        mask_stride,
        vocab_size,
        chunks_per_part * CHUNK,
        HAS_MASK=has_mask,
        HAS_THRESHOLD=has_filters,
        WORD_SIZE=WORD,
        ROUNDS=PHILOX_ROUNDS,
        MOST_NOISE=MAX_NOISE,
        num_warps=8,
        enable_fp_fusion=False,
    )
    choose_part[(num_rows,)](
        values,
        ids,
        token_ids,
        num_parts,
        BLOCK=triton.next_power_of_2(num_parts),
        num_warps=1,
        enable_fp_fusion=False,
    )
    return token_ids
