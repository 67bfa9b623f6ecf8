"""Compiled walks through the vocabulary with the automaton: which tokens may follow a state.

A walk follows the trie in depth-first order and jumps over what is refused. It makes states as it goes; when there
is no room for one it returns a negative code, and is called again once there is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import call, inner_kernel, kernel
from ..memory import (
    AFTER_TEXT,
    NEXT_SAME,
    PATH,
    ROWS,
    S_ACCEPTS,
    S_BYTE,
    S_COST,
    S_ROW,
    STATE_WIDTH,
    STATES,
    THIS,
    TRANSITION,
    TRIE_BYTES,
    TRIE_DEPTHS,
    TRIE_ENDS,
    TRIE_ROOTS,
    TRIE_TOKENS,
    WHOLE,
    WITHOUT_TEXTS,
    i32,
    i64,
    row_at,
    u8,
)
from .automaton_kernels import PLACE_WIDTH, advance, live_bytes, step, text_groups

IN_TEXT = 1 << 40
PLACES_HEAD = 2  # numbers before the groups of `begin_row`


@kernel
def walk(memory: Any, state: Any, live: Any, bits: Any) -> Any:
    """Sets the bit of every token that may follow.

    `live` is scratch, uint8[256]. Returns 1 + the greatest cost after a token that may follow (0: there is none), or
    the negative code for help.
    """
    roots, ends = i32(memory[WHOLE + TRIE_ROOTS]), i32(memory[WHOLE + TRIE_ENDS])
    first = np.int64(i32(memory[STATES])[state * STATE_WIDTH + S_BYTE])
    end = first + 1
    if first < 0:
        live_bytes(memory, state, live)
        first, end = np.int64(0), np.int64(256)
    worst = np.int64(0)
    for byte in range(first, end):
        node = np.int64(roots[byte])
        if node >= 0 and (end == first + 1 or live[byte]):
            i32(memory[PATH])[0] = state
            cost = _walk_range(memory, np.int64(WHOLE), node, np.int64(ends[node]), bits)
            if cost < 0:
                return cost
            worst = max(worst, cost)
    return worst


@kernel
def begin_row(memory: Any, state: Any, live: Any, eos: Any, bits: Any, places: Any) -> Any:
    """The row of a state that stands in no text, in one call; else all that is to be known of its texts.

    Args:
        live: uint8[256], scratch; eos: int32[num_words], the tokens that may follow a state that accepts.
        bits: int32[num_words], is overwritten unless the state stands in a text.
        places: int64[PLACES_HEAD + n * PLACE_WIDTH], filled in if it does: how many groups of `text_groups` there are
            (beyond n there are more, and nothing else is filled in), and the state without texts (0: nothing is left);
            then the groups, and of each the state once its text has ended and the cost of that.

    Returns as `walk`, or IN_TEXT.
    """
    states = i32(memory[STATES])
    num_groups, num_others = text_groups(memory, state, places[PLACES_HEAD:])
    if num_groups:
        places[0], places[1] = num_groups, 0
        if PLACES_HEAD + num_groups * PLACE_WIDTH > places.shape[0]:
            return IN_TEXT
        for group in range(num_groups):
            at = PLACES_HEAD + group * PLACE_WIDTH
            after = call(memory[TRANSITION], memory[THIS], AFTER_TEXT, state, places[at])
            if after < 0:
                return after
            places[at + 4], places[at + 5] = after, states[after * STATE_WIDTH + S_COST]
        if num_others:
            rest = call(memory[TRANSITION], memory[THIS], WITHOUT_TEXTS, state, 0)
            if rest < 0:
                return rest
            places[1] = rest
        return IN_TEXT
    bits[:] = 0
    worst = walk(memory, state, live, bits)
    if worst >= 0 and states[state * STATE_WIDTH + S_ACCEPTS]:
        for word in range(bits.shape[0]):
            bits[word] |= eos[word]
    return worst


@kernel
def row_in_text(
    memory: Any,
    state: Any,
    after: Any,
    rest: Any,
    trie: Any,
    inside: Any,
    exits: Any,
    starts: Any,
    live: Any,
    eos: Any,
    bits: Any,
) -> Any:
    """The row of a state that stands in one text, in one call: nearly all that stand in texts do.

    Args:
        after, rest: the state once the text has ended, and without the text, of `begin_row`.
        trie, exits, starts: as `walk_exits` has them; exits and starts of length 0: nothing follows the text.
        inside: int32[num_words], the tokens that stay in the text.
        live, eos, bits: as in `begin_row`; bits is overwritten.

    Returns as `walk`, of the tokens that leave the text.
    """
    for word in range(bits.shape[0]):
        bits[word] = inside[word]
    worst = np.int64(0)
    if starts.shape[0]:
        worst = np.int64(walk_exits(memory, trie, after, live, exits, starts, bits))
        if worst < 0:
            return worst
    if rest:
        cost = np.int64(walk(memory, rest, live, bits))
        if cost < 0:
            return cost
        worst = max(worst, cost)
    if i32(memory[STATES])[state * STATE_WIDTH + S_ACCEPTS]:
        for word in range(bits.shape[0]):
            bits[word] |= eos[word]
    return worst


@inner_kernel
def _walk_range(memory: Any, trie: Any, node: Any, end: Any, bits: Any) -> Any:
    """The walk over trie nodes node .. end - 1, PATH[depth - 1] being the state before the first of them."""
    data, depths, ends = u8(memory[trie + TRIE_BYTES]), u8(memory[trie + TRIE_DEPTHS]), i32(memory[trie + TRIE_ENDS])
    tokens, same = i32(memory[trie + TRIE_TOKENS]), i32(memory[NEXT_SAME])
    path = i32(memory[PATH])
    states = i32(memory[STATES])
    segments = i64(memory[ROWS])
    worst = np.int64(0)
    while node < end:
        depth = np.int64(depths[node])
        before = np.int64(path[depth - 1])
        byte = np.int64(data[node])
        at = before * STATE_WIDTH
        only = states[at + S_BYTE]
        if only >= 0 and only != byte:
            node = ends[node]
            continue
        row = np.int64(states[at + S_ROW])
        target = np.int64(row_at(segments, row)[byte]) if row >= 0 else np.int64(-1)
        if target < 0:
            target = step(memory, before, byte)
            if target < 0:
                return target
        if target == 0:
            node = ends[node]
            continue
        path[depth] = target
        token = tokens[node]
        if token >= 0:
            cost = np.int64(states[target * STATE_WIDTH + S_COST])
            worst = max(worst, cost + 1)
            while token >= 0:
                bits[token >> 5] |= np.int32(1) << np.int32(token & 31)
                token = same[token]
        node += 1
    return worst


@kernel
def walk_exits(memory: Any, trie: Any, state: Any, live: Any, exits: Any, starts: Any, bits: Any) -> Any:
    """The walk below trie nodes at which a text ended.

    Args:
        trie: WHOLE or REST, the trie that the nodes belong to.
        state: the state once the text has ended.
        live: uint8[256], scratch.
        exits: int32, trie nodes that may come next, grouped by their byte.
        starts: int32[257], where the group of each byte begins.
    """
    if live_bytes(memory, state, live) == 0 or starts[256] == 0:
        return 0
    ends, depths = i32(memory[trie + TRIE_ENDS]), u8(memory[trie + TRIE_DEPTHS])
    path = i32(memory[PATH])
    worst = np.int64(0)
    for byte in range(256):
        if live[byte]:
            for index in range(starts[byte], starts[byte + 1]):
                node = exits[index]
                path[np.int64(depths[node]) - 1] = state
                cost = _walk_range(memory, trie, np.int64(node), np.int64(ends[node]), bits)
                if cost < 0:
                    return cost
                worst = max(worst, cost)
    return worst


@kernel
def token_targets(memory: Any, state: Any, bits: Any, targets: Any) -> Any:
    """Fills targets (int32[num_tokens]) with the state after each token whose bit is set, 0 for the others."""
    for token in range(targets.shape[0]):
        targets[token] = 0
        if bits[token >> 5] >> np.int32(token & 31) & np.int32(1):
            target = advance(memory, state, token)
            if target < 0:
                return target
            targets[token] = target
    return 0
