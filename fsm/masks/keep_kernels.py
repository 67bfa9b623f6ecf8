"""Compiled: which of the tokens that may come next leave few enough to complete the text.

Few tokens are tried one by one, many by a walk through the trie, in which they share the bytes that they begin with.
Who asks for help goes on where that was: `walked` knows the node or the word that is next, and the states on the way.
How many more each of them needs is asked of `budget_kernels`, and only where bytes alone do not settle the matter.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..automaton.automaton_kernels import advance, step
from ..compiled import inner_kernel, kernel
from ..memory import (
    CAP_STATES,
    NEVER,
    NEXT_SAME,
    S_COST,
    STATE_WIDTH,
    STATES,
    TRIE_BYTES,
    TRIE_DEPTHS,
    TRIE_ENDS,
    TRIE_SIZE,
    TRIE_TOKENS,
    WHOLE,
    i32,
    u8,
)
from ..vocabulary.trie import MAX_TOKEN_LEN
from .budget_kernels import LOW_BITS, NEED_LEAST, find_least

MANY_TOKENS = 4096  # beyond that the trie is walked instead of each token
# of `walked`: the next node of the trie, the next word of the row, 1 + the greatest number met; then states by depth
NODE, WORD, WORST, STATES_BY_DEPTH = range(4)
WALKED_SIZE = STATES_BY_DEPTH + MAX_TOKEN_LEN + 1


@kernel
def keep_within(memory: Any, state: Any, bits: Any, limit: Any, most_bytes: Any, walked: Any, room: Any) -> Any:
    """Clears the bits of the tokens after which `limit` tokens do not suffice; all of them may follow the state.

    Those that leave more than `most_bytes` to the end are not searched from: of them only those stay for which each
    byte may be a token. With a limit below zero nothing is cleared. Returns 1 + the greatest `least_tokens` met, if the
    limit is below zero; else some number that is not negative. Or the negative code for help; it is then called again
    with the same `walked`, int32[WALKED_SIZE], zeros at first. `room`: see `least_tokens`.
    """
    if room[0].shape[0] < memory[CAP_STATES]:
        return np.int64(NEED_LEAST)
    num_tokens = np.int64(0)
    for index in range(bits.shape[0]):
        word = np.int64(bits[index]) & LOW_BITS
        while word:
            word &= word - 1
            num_tokens += 1
    if num_tokens > MANY_TOKENS:
        return _keep_by_walk(memory, state, bits, limit, most_bytes, walked, room)
    for index in range(walked[WORD], bits.shape[0]):
        walked[WORD] = index
        word = np.int64(bits[index]) & LOW_BITS
        for bit in range(32 if word else 0):
            if word >> bit & 1:
                target = np.int64(advance(memory, state, 32 * index + bit))
                if target < 0:
                    return target
                tokens = _least_beyond(memory, target, limit, most_bytes, room)
                if tokens < 0:
                    return tokens
                walked[WORST] = max(np.int64(walked[WORST]), tokens + 1)
                if 0 <= limit < tokens:
                    bits[index] &= ~(np.int32(1) << np.int32(bit))
    return np.int64(walked[WORST])


@inner_kernel
def _least_beyond(memory: Any, state: Any, limit: Any, most_bytes: Any, room: Any) -> Any:
    """`least_tokens`, or 0 if the bytes alone are within the limit; NEVER where they are beyond `most_bytes`."""
    cost = np.int64(i32(memory[STATES])[state * STATE_WIDTH + S_COST])
    if cost <= limit or cost > most_bytes:
        return np.int64(0 if cost <= limit else NEVER)
    return np.int64(find_least(memory, state, room))


@inner_kernel
def _keep_by_walk(memory: Any, state: Any, bits: Any, limit: Any, most_bytes: Any, walked: Any, room: Any) -> Any:
    """`keep_within` by a walk through the trie."""
    data, depths = u8(memory[WHOLE + TRIE_BYTES]), u8(memory[WHOLE + TRIE_DEPTHS])
    ends, tokens = i32(memory[WHOLE + TRIE_ENDS]), i32(memory[WHOLE + TRIE_TOKENS])
    same, states = i32(memory[NEXT_SAME]), walked[STATES_BY_DEPTH:]
    states[0] = state
    node = np.int64(walked[NODE])
    while node < memory[WHOLE + TRIE_SIZE]:
        walked[NODE] = node
        depth = np.int64(depths[node])
        target = np.int64(step(memory, np.int64(states[depth - 1]), np.int64(data[node])))
        if target < 0:
            return target
        if target == 0:
            node = np.int64(ends[node])
            continue
        states[depth] = target
        token = np.int64(tokens[node])
        node += 1
        if token < 0:
            continue
        needed = _least_beyond(memory, target, limit, most_bytes, room)
        if needed < 0:
            return needed
        while token >= 0:
            bit = np.int32(1) << np.int32(token & 31)
            if bits[token >> 5] & bit:
                walked[WORST] = max(np.int64(walked[WORST]), needed + 1)
                if 0 <= limit < needed:
                    bits[token >> 5] &= ~bit
            token = np.int64(same[token])
    walked[NODE] = node
    return np.int64(walked[WORST])
