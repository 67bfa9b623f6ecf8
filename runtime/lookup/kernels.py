"""The compiled loop of look-ups (`lookup`): takes in tokens, scores what was expected of them, says what comes next.

All that belongs to a text lies behind one address (`layout`), so a call from Python hands over nothing but
numbers. Positions are kept as where a run *goes on*: `heads[hash of two tokens]` is the position behind their latest
occurrence, `links[that]` the position behind the one before (the hash chains of LZ77), 0 is none::

    text     …  a  b  c  …  a  b  x  …  a  b │           expected: x, of the later of the two runs that agree as far
                      ^           ^
             links ───┘<──────────┴── heads[a b]

Tokens are compared by what they fold to: a word is the same word behind a quote and behind a space. What is expected is
the token itself. Nothing here checks a bound: `FULL` is answered before anything is changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba as typed_numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]  # it has no stubs
from numba.core import types
from numba.extending import intrinsic

from .layout import (
    AT,
    CAPACITY,
    COMMON,
    DRAFT,
    FOLDS,
    HASH_MASK,
    HEAD_LEN,
    LENGTH,
    LUCK,
    NUM_GROUNDS,
    NUM_SEEN,
    NUM_TOKENS,
    SOURCE_END,
    TABLES,
)

numba: Any = typed_numba  # parts of it are without types
carray = numba.carray

FULL = -1

MAX_LENGTH = 32  # of an agreement, when it is looked for; it grows as it is confirmed
MAX_CANDIDATES = 16  # that are compared
LEAST_RESUMED = 4  # tokens of a run that is taken up again behind another token
FADE_OWN, FADE_COMMON, COMMON_WEIGHT = 0.95, 0.995, 4.0
# A text whose latest tokens came less often than their chances said is taken to go on like that, whatever the ground:
# it soon shows where it stops to copy, while grounds are learnt one by one.
FADE_LUCK, LUCK_WEIGHT = 0.8, 1.0


def _pointer(typing_context: Any, address: Any) -> Any:
    """An address as numba's carray takes it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), generate


pointer: Any = intrinsic(_pointer)


def inner(function: Callable[..., Any]) -> Any:
    """A function for kernels to call: there is no way in from Python."""
    return numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, error_model="numpy")(function)


@inner
def ground_of(length: Any) -> Any:
    """The ground of an agreement of so many tokens."""
    if length <= 4:
        return length
    if length <= 8:
        return 5 if length <= 6 else 6
    if length <= 16:
        return 7
    return 8 if length <= 32 else 9


@inner
def after(length: Any) -> Any:
    """The agreement once the token expected on it is right."""
    return length + 1 if length else LEAST_RESUMED


@inner
def chance_of(own: Any, common: Any, ground: Any) -> Any:
    """How likely a token of this ground is right; see `odds`."""
    rate = common[ground] / common[NUM_GROUNDS + ground]
    return (own[ground] + COMMON_WEIGHT * rate) / (own[NUM_GROUNDS + ground] + COMMON_WEIGHT)


@inner
def score(counts: Any, ground: Any, is_right: Any, fade: Any) -> None:
    """Takes note of a token."""
    counts[ground] = fade * counts[ground] + is_right
    counts[NUM_GROUNDS + ground] = fade * counts[NUM_GROUNDS + ground] + 1.0


@inner
def tables_of(head: Any) -> Any:
    """Text, links, heads, singles, and what tokens are compared as (whose length is not known here)."""
    capacity, size = head[CAPACITY], head[HASH_MASK] + 1
    text = head[TABLES]
    links = text + 4 * capacity
    heads = links + 4 * (capacity + 1)
    return (
        carray(pointer(text), (capacity,), np.int32),
        carray(pointer(links), (capacity + 1,), np.int32),
        carray(pointer(heads), (size,), np.int32),
        carray(pointer(heads + 4 * size), (size,), np.int32),
        carray(pointer(head[FOLDS]), (1,), np.int32),
    )


@inner
def hash_pair(first: Any, second: Any, mask: Any) -> Any:
    """Of two tokens."""
    mixed = (first + 1) * 0x2545F4914F6CDD1D + (second + 1) * 0x1B873593CC9E2D51
    return ((mixed >> 33) ^ (mixed >> 17)) & mask


@inner
def agreement(text: Any, folds: Any, place: Any, end: Any) -> Any:
    """How many tokens before `place` agree with those before `end`."""
    length = 0
    while length < min(MAX_LENGTH, place) and folds[text[place - 1 - length]] == folds[text[end - 1 - length]]:
        length += 1
    return length


@inner
def enter(text: Any, links: Any, heads: Any, singles: Any, folds: Any, end: Any, mask: Any) -> Any:
    """Takes note of the tokens before `end`; returns where the last two, and the last, went on before."""
    last = np.int64(folds[text[end - 1]])
    single = hash_pair(last, np.int64(-1), mask)
    latest_single = np.int64(singles[single])
    singles[single] = end
    latest = np.int64(0)
    if end >= 2:
        pair = hash_pair(np.int64(folds[text[end - 2]]), last, mask)
        latest = np.int64(heads[pair])
        heads[pair] = end
        links[end] = latest
    return latest, latest_single


@inner
def search(text: Any, links: Any, folds: Any, end: Any, latest: Any, latest_single: Any) -> Any:
    """Where the longest agreement goes on, of equals the latest; and its length. (-1, 0): nothing agrees."""
    at, best = np.int64(-1), np.int64(0)
    place = latest
    for _ in range(MAX_CANDIDATES):
        if place <= 0 or best >= MAX_LENGTH:
            break
        length = agreement(text, folds, place, end)
        if length > best:
            at, best = place, length
        place = np.int64(links[place])
    if best < 2 and latest_single > 0:
        length = agreement(text, folds, latest_single, end)
        if length > best:
            at, best = latest_single, length
    return at, best


def follow(address: Any, token_ids: Any, num_tokens: Any, num_silent: Any, floor: Any, limit: Any) -> Any:
    """Takes in the request's tokens up to `num_tokens`, int32 from the address `token_ids` on, and drafts what follows.

    The first `num_silent` of them are a prompt: nothing is expected of them. At most `limit` tokens are drafted, as
    long as all up to each are right with a chance of `floor` at least. Returns twice how many, and 1 more if a draft
    would have had a token right that is new; or `FULL`.
    """
    head = carray(pointer(address), (HEAD_LEN,), np.int64)
    end, seen, mask = head[NUM_TOKENS], head[NUM_SEEN], head[HASH_MASK]
    if end + num_tokens - seen > head[CAPACITY]:
        return np.int64(FULL)
    given = carray(pointer(token_ids), (num_tokens,), np.int32)
    text, links, heads, singles, folds = tables_of(head)
    own = carray(pointer(address + 8 * HEAD_LEN), (LUCK + 2,), np.float64)
    common = carray(pointer(head[COMMON]), (2 * NUM_GROUNDS,), np.float64)
    at, length, source_end = head[AT], head[LENGTH], head[SOURCE_END]
    num_right = np.int64(0)
    for index in range(seen, num_tokens):
        token = given[index]
        text[end] = token
        end += 1
        latest, latest_single = enter(text, links, heads, singles, folds, end, mask)
        if index < num_silent:
            continue
        lost = np.int64(0)
        if at >= 0:
            ground = ground_of(length)
            is_right = text[at] == token
            chance = chance_of(own, common, ground)
            num_right += is_right and chance >= floor
            own[LUCK] = FADE_LUCK * own[LUCK] + is_right
            own[LUCK + 1] = FADE_LUCK * own[LUCK + 1] + chance
            score(own, ground, is_right, FADE_OWN)
            score(common, ground, is_right, FADE_COMMON)
            if folds[text[at]] == folds[token]:
                at += 1
                length = after(length)
                if at != source_end:
                    continue
            else:
                lost = length
        resumed = at + 1
        at, length = search(text, links, folds, end, latest, latest_single)
        if length < 2 and lost >= LEAST_RESUMED:
            at, length = resumed, np.int64(0)
        if at == source_end:
            at, length = np.int64(-1), np.int64(0)
    head[NUM_TOKENS], head[NUM_SEEN] = end, num_tokens
    head[AT], head[LENGTH] = at, length
    if at < 0:
        return np.int64(num_right > 0)
    draft = carray(pointer(address + 8 * DRAFT), (limit,), np.int32)
    luck = min(1.0, (own[LUCK] + LUCK_WEIGHT) / (own[LUCK + 1] + LUCK_WEIGHT))
    chance, count = 1.0, np.int64(0)
    while count < limit:
        chance *= luck * chance_of(own, common, ground_of(length))
        place = at + count
        if chance < floor or place == source_end:
            break
        draft[count] = text[place] if place < end else draft[place - end]  # a run that reaches into itself
        length = after(length)
        count += 1
    return 2 * count + (num_right > 0)


def reenter(address: Any) -> None:
    """Takes note of all tokens of the text anew, in tables that hold none."""
    head = carray(pointer(address), (HEAD_LEN,), np.int64)
    text, links, heads, singles, folds = tables_of(head)
    for end in range(1, head[NUM_TOKENS] + 1):
        enter(text, links, heads, singles, folds, end, head[HASH_MASK])
