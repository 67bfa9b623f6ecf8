"""Masked sampling on the CPU: one compiled call per step, each row on its own, few exponentials, little noise.

Per row: gather the allowed logits; find the largest; the threshold of top-k, top-p and min-p if one is on;
then random bits for all, and logarithms for the few tokens whose bits could make them win. Which token is
chosen is what `reference.sample` says, up to the last bit of a logarithm or of a sum at a threshold.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import njit
from torch import Tensor

from . import simd
from .reference import PHILOX_ROUNDS

BLOCK = 256  # tokens looked through at once for the largest; a multiple of 32
_NO_MASK = np.zeros((1, 1), np.int32)


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
) -> Tensor:
    token_ids = torch.empty(len(logits), dtype=torch.int64)
    # contiguous: numba would compile the whole of it once more for every other memory layout
    mask = _NO_MASK if mask_table is None else mask_table.contiguous().numpy()
    _sample_rows(
        logits.float().contiguous().numpy(),
        mask,
        mask_table is not None,
        mask_rows.contiguous().numpy(),
        temperature.contiguous().numpy(),
        top_k.contiguous().numpy(),
        top_p.contiguous().numpy(),
        min_p.contiguous().numpy(),
        seeds.contiguous().numpy(),
        positions.contiguous().numpy(),
        token_ids.numpy(),
    )
    return token_ids


@njit(cache=True, nogil=True)
def _sample_rows(  # type: ignore[no-untyped-def]  # numba infers
    logits, mask_table, has_mask, mask_rows, temperature, top_k, top_p, min_p, seeds, positions, token_ids
):
    num_rows, vocab_size = logits.shape
    scores = np.empty(vocab_size, np.float32)  # the allowed scores of one row, packed, with their ids
    ids = np.empty(vocab_size, np.int32)
    weights = np.empty(vocab_size + simd.WIDTH, np.float32)
    for row in range(num_rows):
        masked = has_mask and mask_rows[row] >= 0
        if temperature[row] <= 0:
            best = _first_allowed(logits[row], mask_table[mask_rows[row]]) if masked else _first_largest(logits[row])
            token_ids[row] = best if best >= 0 and logits[row, best] > -np.inf else -1
            continue
        count = _gather(logits[row], mask_table[max(mask_rows[row], 0)], masked, temperature[row], scores, ids)
        best = _first_largest(scores[:count])
        if best < 0 or scores[best] == -np.inf:
            token_ids[row] = -1
        else:
            kept = scores[:count]
            threshold = _threshold(kept, scores[best], top_k[row], top_p[row], min_p[row], weights)
            token_ids[row] = _draw(kept, ids, best, threshold, seeds[row], positions[row], weights)


@njit
def _gather(logits, words, masked, temperature, scores, ids):  # type: ignore[no-untyped-def]
    """Pack the tempered logits of the allowed tokens, NaN as -inf; returns how many."""
    count = 0
    for begin in range(0, len(logits), 32):
        end = min(begin + 32, len(logits))
        word = np.uint32(words[begin >> 5]) if masked else np.uint32(0xFFFFFFFF)
        if word == np.uint32(0xFFFFFFFF):
            for i in range(end - begin):
                x = logits[begin + i] / temperature
                scores[count + i] = x if x == x else np.float32(-np.inf)
                ids[count + i] = begin + i
            count += end - begin
        elif word != 0:
            for t in range(begin, end):
                if (word >> np.uint32(t & 31)) & np.uint32(1):
                    x = logits[t] / temperature
                    scores[count] = x if x == x else np.float32(-np.inf)
                    ids[count] = t
                    count += 1
    return count


@njit
def _first_largest(scores):  # type: ignore[no-untyped-def]
    """Index of the first of the largest scores; -1 if there are none, or all are -inf or NaN."""
    top, block = np.float32(-np.inf), -1  # of the first block that has it
    whole = len(scores) // BLOCK * BLOCK
    for begin in range(0, whole, BLOCK):
        tops = simd.splat(np.float32(-np.inf))
        for i in range(begin, begin + BLOCK, simd.WIDTH):
            tops = simd.larger(simd.load(scores.ctypes.data + 4 * i), tops)
        if simd.largest(tops) > top:
            top, block = simd.largest(tops), begin
    for i in range(whole, len(scores)):
        if scores[i] > top:
            top, block = scores[i], whole
    for i in range(block, len(scores) if block >= 0 else block):
        if scores[i] == top:
            return i
    return -1


@njit
def _first_allowed(logits, words):  # type: ignore[no-untyped-def]
    """`_first_largest` among the tokens whose bits are set."""
    top, block = np.float32(-np.inf), -1
    whole = len(logits) // BLOCK * BLOCK
    for begin in range(0, whole, BLOCK):
        tops = simd.splat(np.float32(-np.inf))
        for word in range(begin >> 5, (begin + BLOCK) >> 5):
            bits, at = np.int64(words[word]), logits.ctypes.data + 128 * word
            if bits:
                for part in range(0, 32, simd.WIDTH):
                    tops = simd.larger(simd.keep_bits(simd.load(at + 4 * part), bits >> part), tops)
        if simd.largest(tops) > top:
            top, block = simd.largest(tops), begin
    for t in range(whole, len(logits)):
        if (words[t >> 5] >> (t & 31)) & 1 and logits[t] > top:
            top, block = logits[t], whole
    for t in range(block, len(logits) if block >= 0 else block):
        if logits[t] == top and (words[t >> 5] >> (t & 31)) & 1:
            return t
    return -1


@njit
def _exponentials(scores, top, weights):  # type: ignore[no-untyped-def]
    """weights[i] = exp(scores[i] - top); top is finite."""
    for i in range(0, len(scores) // simd.WIDTH * simd.WIDTH, simd.WIDTH):
        x = simd.sub(simd.load(scores.ctypes.data + 4 * i), simd.splat(top))
        simd.store(weights.ctypes.data + 4 * i, simd.exp2(simd.mul(x, simd.splat(simd.LOG2_E))))
    for i in range(len(scores) // simd.WIDTH * simd.WIDTH, len(scores)):
        weights[i] = np.exp(scores[i] - top)


@njit
def _threshold(scores, top, top_k, top_p, min_p, weights):  # type: ignore[no-untyped-def]
    """The lowest score that stays; see `reference.keep_threshold`."""
    threshold = np.float32(-np.inf)
    if 0 < top_k < len(scores):
        weights[: len(scores)] = 1.0
        threshold = _select(scores, weights, threshold, float(top_k))
    if top_p < 1.0 and top < np.inf:
        _exponentials(scores, top, weights)
        mass = 0.0
        for i in range(len(scores)):
            mass += float(weights[i]) if scores[i] >= threshold else 0.0
        threshold = _select(scores, weights, threshold, top_p * mass)
    return max(threshold, top + np.log(min_p)) if min_p > 0 else threshold


@njit
def _select(scores, weights, floor, wanted):  # type: ignore[no-untyped-def]
    """The largest score whose scores at or above it weigh `wanted`, among those not below the floor.

    Quickselect by weight: each round halves, on average, the candidates between what surely stays and what
    surely goes.
    """
    score, weight = np.empty_like(scores), np.empty_like(scores)
    count = 0
    for i in range(len(scores)):
        score[count], weight[count] = scores[i], weights[i]
        count += 1 if scores[i] >= floor and weights[i] > 0 else 0
    above, last = 0.0, np.float32(np.inf)
    while count > 0:
        low, middle, high = score[0], score[count // 2], score[count - 1]
        pivot = max(min(low, middle), min(max(low, middle), high))
        larger, equal = 0.0, 0.0
        for i in range(count):
            larger += float(weight[i]) if score[i] > pivot else 0.0
            equal += float(weight[i]) if score[i] == pivot else 0.0
        keep_larger = above + larger >= wanted
        if keep_larger:
            last = pivot
        else:
            above += larger + equal
            if above >= wanted:
                return pivot
        kept = 0
        for i in range(count):
            x, w = score[i], weight[i]
            score[kept], weight[kept] = x, w
            kept += 1 if (x > pivot) == keep_larger and x != pivot else 0
        count = kept
    return last


@njit
def _draw(scores, ids, best, threshold, seed, position, weights):  # type: ignore[no-untyped-def]
    """argmax of score + noise. Noise above z has u < exp(-z), so most tokens are out by their bits alone."""
    chosen, chosen_value = ids[best], scores[best] + _gumbel(_random_bits(seed, position, ids[best]))
    if not scores[best] < np.inf:
        return chosen
    _exponentials(scores, chosen_value, weights)
    bits = np.empty(len(scores), np.uint32)
    for i in range(len(scores)):
        bits[i] = _random_bits(seed, position, ids[i])
    for i in range(len(scores)):
        if np.float32(bits[i]) > np.float32(1.001 * 2.0**32) * weights[i] + np.float32(1.0):
            continue
        value = scores[i] + _gumbel(bits[i])
        if scores[i] >= threshold and (value > chosen_value or (value == chosen_value and ids[i] < chosen)):
            chosen, chosen_value = ids[i], value
    return chosen


@njit(inline="always")
def _random_bits(seed, position, token_id):  # type: ignore[no-untyped-def]
    """`reference.random_bits` of one token; free of branches, so that a loop over tokens is vectorised."""
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    bits, place, token = np.uint64(seed), np.uint64(position), np.uint64(token_id)
    key0, key1 = bits & low, bits >> half
    c0 = (token >> np.uint64(12) << np.uint64(10)) | (token & np.uint64(1023))
    c1, c2, c3 = place & low, place >> half, np.uint64(0)
    for _ in range(PHILOX_ROUNDS):
        a, b = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (b >> half) ^ c1 ^ key0, b & low, (a >> half) ^ c3 ^ key1, a & low
        key0, key1 = (key0 + np.uint64(0x9E3779B9)) & low, (key1 + np.uint64(0xBB67AE85)) & low
    lane = (token >> np.uint64(10)) & np.uint64(3)
    word = c0 if lane == 0 else (c1 if lane == 1 else (c2 if lane == 2 else c3))
    return np.uint32(word)


@njit
def _gumbel(word):  # type: ignore[no-untyped-def]
    """`reference.gumbel_noise` from its 32 bits."""
    u = (np.float32(word) + np.float32(0.5)) * np.float32(2.0**-32)
    if u < np.float32(2.0**-7):
        e = u * (np.float32(1.0) + u * (np.float32(0.5) + u * np.float32(1.0 / 3.0)))
    else:
        e = -np.log(max(np.float32(1.0) - u, np.float32(2.0**-25)))
    return -np.log(e)
