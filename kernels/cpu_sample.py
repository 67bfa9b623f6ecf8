"""Masked sampling on the CPU: one compiled call per step, each row on its own.

::

    logits ──► tempered scores, and the largest of every 128 ──► a group, then a token in it

One pass over what the mask allows; then exponentials only of groups that could still be drawn: a group is out if its
largest score, the logarithm of 128 and its noise do not reach the best so far. top-p needs all exponentials once, top-k
the scores that reach the k-th largest group maximum. Which token is chosen is what `reference.sample` says, up to the
last bit of a logarithm or of a sum at a threshold.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import njit
from torch import Tensor

from . import simd
from .compiled import compiled
from .logit_edits import MAX_COUNT, LogitEdits
from .reference_sample import GROUP, LARGEST, PHILOX_ROUNDS, Logprobs

BLOCK = 256  # tokens looked through at once for the largest; a multiple of 32
LOG_GROUP = np.float32(4.8520304)  # log(GROUP), rounded up
MAX_NOISE = np.float32(22.9)
NOTHING = np.float32(-np.inf)
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
    edits: LogitEdits | None = None,
    num_top: int | None = None,
) -> tuple[Tensor, Logprobs | None]:
    token_ids = torch.empty(len(logits), dtype=torch.int64)
    raw = logits.float().contiguous()
    # contiguous: numba would compile the whole of it once more for every other memory layout
    mask = _NO_MASK if mask_table is None else mask_table.contiguous().numpy()
    _sample_rows(
        (raw if edits is None else _edited(raw, edits)).numpy(),
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
    return token_ids, None if num_top is None else logprobs(raw, token_ids, num_top)


def logprobs(logits: Tensor, token_ids: Tensor, num_top: int) -> Logprobs:
    """See `reference.logprobs`."""
    num_rows, vocab_size = logits.shape
    num_top = min(num_top, vocab_size)
    chosen = torch.empty(num_rows)
    top_ids, top = torch.empty((num_rows, num_top), dtype=torch.int64), torch.empty((num_rows, num_top))
    raw = logits.float().contiguous().numpy()
    _report_rows(raw, token_ids.contiguous().numpy(), chosen.numpy(), top_ids.numpy(), top.numpy())
    return Logprobs(chosen, top_ids, top)


def _edited(logits: Tensor, edits: LogitEdits) -> Tensor:
    """`reference.edited`: a copy."""
    out = logits.clone()
    _edit_rows(
        out.numpy(),
        edits.counts.contiguous().numpy(),
        edits.biases.contiguous().numpy(),
        edits.count_rows.contiguous().numpy(),
        edits.repetition.contiguous().numpy(),
        edits.presence.contiguous().numpy(),
        edits.frequency.contiguous().numpy(),
        edits.drafted.contiguous().numpy(),
        edits.bias_rows.contiguous().numpy(),
    )
    return out


@compiled()
def _edit_rows(  # type: ignore[no-untyped-def]  # numba infers
    logits, counts, biases, count_rows, repetition, presence, frequency, drafted, bias_rows
):
    for row in range(len(logits)):
        x = logits[row]
        if len(biases) and bias_rows[row] >= 0:
            for t in range(len(x)):
                x[t] += biases[bias_rows[row], t]
        if len(counts) and count_rows[row] >= 0:
            stored = counts[count_rows[row]].astype(np.int32)
            for token_id in drafted[row]:
                if token_id >= 0 and (stored[token_id] & MAX_COUNT) < MAX_COUNT:
                    stored[token_id] += 1
            for t in range(len(x)):
                if stored[t] != 0:  # hardly ever
                    count = stored[t] & MAX_COUNT
                    x[t] = x[t] / repetition[row] if x[t] > 0 else x[t] * repetition[row]
                    if count > 0:
                        x[t] -= presence[row] + frequency[row] * np.float32(count)


@compiled()
def _sample_rows(  # type: ignore[no-untyped-def]  # numba infers
    logits, mask_table, has_mask, mask_rows, temperature, top_k, top_p, min_p, seeds, positions, token_ids
):
    num_rows, vocab_size = logits.shape
    num_groups = (vocab_size + GROUP - 1) // GROUP
    scores = np.empty((num_groups, GROUP), np.float32)
    tops = np.empty(num_groups, np.float32)
    for row in range(num_rows):
        masked = has_mask and mask_rows[row] >= 0
        words = mask_table[max(mask_rows[row], 0)]
        if temperature[row] <= 0:
            best = _first_allowed(logits[row], words) if masked else _first_largest(logits[row])
            token_ids[row] = best if best >= 0 and logits[row, best] > -np.inf else -1
            continue
        _temper(logits[row], words, masked, temperature[row], scores, tops)
        if tops.max() == NOTHING:
            token_ids[row] = -1
            continue
        if tops.max() > LARGEST:
            scores, tops = np.minimum(scores, np.float32(LARGEST)), np.minimum(tops, np.float32(LARGEST))
        filters = (top_k[row] if 0 < top_k[row] < vocab_size else 0, top_p[row], min_p[row])
        token_ids[row] = _draw(scores, tops, filters, seeds[row], positions[row])


@njit
def _temper(logits, words, masked, temperature, scores, tops):  # type: ignore[no-untyped-def]
    """The scores of one row and the largest of each group; scores of a group without allowed tokens are not written."""
    divisor, nothing = simd.splat(temperature), simd.splat(NOTHING)
    whole = len(logits) // GROUP * GROUP
    for begin in range(0, whole, GROUP):
        most = nothing
        for first in range(begin, begin + GROUP, 32):
            bits = np.int64(words[first >> 5]) if masked else np.int64(-1)
            for at in range(first, first + 32, simd.WIDTH):
                x = nothing
                if bits:
                    x = simd.larger(simd.div(simd.load(logits.ctypes.data + 4 * at), divisor), nothing)
                    if masked:
                        x = simd.keep_bits(x, bits >> (at - first))
                simd.store(scores.ctypes.data + 4 * at, x)
                most = simd.larger(x, most)
        tops[begin // GROUP] = simd.largest(most)
    if whole < len(logits):
        last = scores[whole // GROUP]
        last[:] = NOTHING
        for t in range(whole, len(logits)):
            if not masked or (words[t >> 5] >> (t & 31)) & 1:
                x = logits[t] / temperature
                last[t - whole] = x if x == x else NOTHING
        tops[whole // GROUP] = last.max()


@njit
def _draw(scores, tops, filters, seed, position):  # type: ignore[no-untyped-def]
    """A sample of the softmax of the scores that the filters leave; some score is finite."""
    top_k, top_p, min_p = filters
    top, stream, total = tops.max(), 0, 0.0
    above = _below(_kth_largest(scores, tops, top_k)) if top_k else NOTHING
    if min_p > 0:
        above = max(above, _below(top + np.log(min_p)))
    if top_p < 1.0:
        total, _ = _survey(scores, tops, top, above, seed, position, stream)
    group = _draw_group(scores, tops, above, seed, position, stream)
    token, score = _draw_token(scores, group, above, seed, position, stream)
    while top_p < 1.0:
        stream += 2
        mass, group = _survey(scores, tops, top, score, seed, position, stream)
        if mass == 0 or mass < top_p * total:
            break
        token, score = _draw_token(scores, group, score, seed, position, stream)
    return token


@njit
def _below(x):  # type: ignore[no-untyped-def]
    """The largest number less than x, so that `> _below(x)` is `>= x`."""
    return np.nextafter(x, NOTHING)


@njit
def _group_mass(scores, top, above):  # type: ignore[no-untyped-def]
    """The sum of exp(score - top) over the scores of a group that are larger than `above`."""
    mass = simd.splat(np.float32(0.0))
    left = scores if above == NOTHING else np.where(scores > above, scores, NOTHING)
    for i in range(0, GROUP, simd.WIDTH):
        x = simd.sub(simd.load(left.ctypes.data + 4 * i), simd.splat(top))
        mass = simd.add(mass, simd.exp2(simd.mul(x, simd.splat(simd.LOG2_E))))
    return simd.total(mass)


@njit
def _draw_group(scores, tops, above, seed, position, stream):  # type: ignore[no-untyped-def]
    """The group drawn by the mass of its scores larger than `above`. Few are looked at: most are out by their bound."""
    bounds, noise = np.full(len(tops), NOTHING), np.empty(len(tops), np.float32)
    for g in range(len(tops)):
        if tops[g] > above:
            noise[g] = _gumbel(seed, position, g, stream)
            bounds[g] = (tops[g] + LOG_GROUP) + noise[g]
    chosen, best = -1, NOTHING
    favourite = int(np.argmax(bounds))
    for turn in range(-1, len(tops)):
        g = favourite if turn < 0 else turn
        if bounds[g] < best or bounds[g] == NOTHING:
            continue
        value = (tops[g] + np.log(_group_mass(scores[g], tops[g], above))) + noise[g]
        if value > best or (value == best and g < chosen):
            chosen, best = g, value
    return chosen


@njit
def _survey(scores, tops, top, above, seed, position, stream):  # type: ignore[no-untyped-def]
    """Of the scores larger than `above`: their mass, as multiples of exp(top), and the group drawn by them (or -1)."""
    mass, chosen, best = 0.0, -1, NOTHING
    for g in range(len(tops)):
        if tops[g] > above:
            group_mass = _group_mass(scores[g], tops[g], above)
            mass += float(group_mass * np.exp(tops[g] - top))
            if (tops[g] + LOG_GROUP) + MAX_NOISE >= best:
                value = (tops[g] + np.log(group_mass)) + _gumbel(seed, position, g, stream)
                if value > best:
                    chosen, best = g, value
    return mass, chosen


@njit
def _draw_token(scores, group, above, seed, position, stream):  # type: ignore[no-untyped-def]
    """The token drawn within a group, among the scores larger than `above`, and its score."""
    chosen, best = -1, NOTHING
    for i in range(GROUP):
        if scores[group, i] > above:
            value = scores[group, i] + _gumbel(seed, position, group * GROUP + i, stream + 1)
            if value > best:
                chosen, best = i, value
    return group * GROUP + chosen, scores[group, chosen]


@njit
def _kth_largest(scores, tops, k):  # type: ignore[no-untyped-def]
    """The k-th largest score; -inf if there are fewer."""
    least = _select(tops.copy(), k)
    count = 0
    found = np.empty(scores.size, np.float32)
    for g in range(len(tops)):
        if tops[g] >= least and tops[g] > NOTHING:
            for x in scores[g]:
                found[count] = x
                count += 1 if x >= least else 0
    return _select(found[:count], k)


@njit
def _select(values, k):  # type: ignore[no-untyped-def]
    """The k-th largest value, -inf if there are fewer; reorders them. Quickselect, equals together."""
    count = len(values)
    while count >= k:
        low, middle, high = values[0], values[count // 2], values[count - 1]
        pivot = max(min(low, middle), min(max(low, middle), high))
        larger, equal = 0, 0
        for i in range(count):
            larger += 1 if values[i] > pivot else 0
            equal += 1 if values[i] == pivot else 0
        if larger < k <= larger + equal:
            return pivot
        keep_larger = k <= larger
        k -= 0 if keep_larger else larger + equal
        kept = 0
        for i in range(count):
            x = values[i]
            values[kept] = x
            kept += 1 if (x > pivot if keep_larger else x < pivot) else 0
        count = kept
    return NOTHING


@njit
def _first_largest(scores):  # type: ignore[no-untyped-def]
    """Index of the first of the largest scores; -1 if there are none, or all are -inf or NaN."""
    top, block = NOTHING, -1  # of the first block that has it
    whole = len(scores) // BLOCK * BLOCK
    for begin in range(0, whole, BLOCK):
        tops = simd.splat(NOTHING)
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
    top, block = NOTHING, -1
    whole = len(logits) // BLOCK * BLOCK
    for begin in range(0, whole, BLOCK):
        tops = simd.splat(NOTHING)
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


@njit(inline="always")
def _gumbel(seed, position, index, stream):  # type: ignore[no-untyped-def]
    """`reference_sample.gumbel_noise`."""
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    bits, place = np.uint64(seed), np.uint64(position)
    key0, key1 = bits & low, bits >> half
    c0, c1, c2, c3 = np.uint64(index), place & low, place >> half, np.uint64(stream)
    for _ in range(PHILOX_ROUNDS):
        a, b = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (b >> half) ^ c1 ^ key0, b & low, (a >> half) ^ c3 ^ key1, a & low
        key0, key1 = (key0 + np.uint64(0x9E3779B9)) & low, (key1 + np.uint64(0xBB67AE85)) & low
    u = (np.float32(c0) + np.float32(0.5)) * np.float32(2.0**-32)
    if u < np.float32(2.0**-7):
        e = u * (np.float32(1.0) + u * (np.float32(0.5) + u * np.float32(1.0 / 3.0)))
    else:
        e = -np.log(max(np.float32(1.0) - u, np.float32(2.0**-25)))
    return -np.log(e)


@compiled()
def _report_rows(logits, token_ids, chosen, top_ids, top_values):  # type: ignore[no-untyped-def]
    num_rows, vocab_size = logits.shape
    num_groups = (vocab_size + GROUP - 1) // GROUP
    values = np.empty((num_groups, GROUP), np.float32)
    tops = np.empty(num_groups, np.float32)
    for row in range(num_rows):
        _temper(logits[row], _NO_MASK[0], False, np.float32(1.0), values, tops)
        if tops.max() > LARGEST:
            values, tops = np.minimum(values, np.float32(LARGEST)), np.minimum(tops, np.float32(LARGEST))
        top, mass = tops.max(), 0.0
        for g in range(num_groups):
            if tops[g] > NOTHING:
                mass += float(_group_mass(values[g], tops[g], NOTHING) * np.exp(tops[g] - top))
        log_mass = np.float32(np.log(mass))
        token = token_ids[row]
        chosen[row] = values.ravel()[token] - top - log_mass if token >= 0 else np.float32(np.nan)
        for n in range(top_ids.shape[1]):  # the group that leads has the next one
            g = int(np.argmax(tops))
            i = int(np.argmax(values[g]))
            top_ids[row, n] = g * GROUP + i if tops[g] > NOTHING else -1
            top_values[row, n] = tops[g] - top - log_mass
            values[g, i] = NOTHING
            tops[g] = values[g].max()
