"""Compiled: from which nodes of a network something else than plain bytes can be read (`passages`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import kernel
from ..memory import (
    A_MEMBERS,
    A_NUM_MEMBERS,
    A_NUM_OTHERS,
    A_OTHERS,
    A_SEPARATOR,
    K_BYTE,
    K_BYTES,
    K_CALL,
    K_KEY,
    K_LOOP,
    K_SET,
    K_SPLIT,
    K_TEXT,
    M_ENTRY,
    NEVER,
)


@kernel
def find_mixed(
    kinds: Any,
    args: Any,
    nexts: Any,
    costs: Any,
    options: Any,
    loops: Any,
    sets: Any,
    members: Any,
    is_plain: Any,
    mixed_byte_sets: Any,
    mixed_texts: Any,
    mixed_heads: Any,
) -> Any:
    """uint8[num_nodes]: whether, from a node to the end of its rule, a byte may be read that is not plain.

    Args:
        kinds to members: the arrays of the network, those of sets and members with their rows.
        is_plain: uint8[256], by byte.
        mixed_byte_sets, mixed_texts, mixed_heads: uint8 by byte set, by text and by set of members (what its trie
            reads), whether such bytes are in it.
    """
    found, mixed_sets = np.zeros(kinds.shape[0], np.uint8), mixed_heads.copy()
    is_growing = True
    while is_growing:
        is_growing = False
        for row in range(mixed_sets.shape[0]):
            if mixed_sets[row]:
                continue
            has = found[sets[row, A_SEPARATOR]]
            for member in range(sets[row, A_MEMBERS], sets[row, A_MEMBERS] + sets[row, A_NUM_MEMBERS]):
                has = has or found[members[member, M_ENTRY]]
            for other in range(sets[row, A_OTHERS], sets[row, A_OTHERS] + sets[row, A_NUM_OTHERS]):
                has = has or found[options[other]]
            if has:
                mixed_sets[row] = 1
                is_growing = True
        for node in range(kinds.shape[0]):
            if found[node] or costs[node] >= NEVER:
                continue
            kind, arg, has = kinds[node], args[node], False
            if kind == K_SPLIT:
                for index in range(arg, arg + nexts[node]):
                    has = has or found[options[index]]
            elif kind == K_BYTE:
                has = not is_plain[arg] or found[nexts[node]]
            elif kind == K_BYTES:
                has = mixed_byte_sets[arg] or found[nexts[node]]
            elif kind == K_TEXT:
                has = mixed_texts[arg] or found[nexts[node]]
            elif kind == K_CALL:
                has = found[arg] or found[nexts[node]]
            elif kind == K_LOOP:
                has = found[loops[arg, 0]] or found[nexts[node]]
            elif kind == K_SET:
                has = mixed_sets[arg] or found[nexts[node]]
            elif kind == K_KEY:
                has = mixed_sets[arg]
            if has:
                found[node] = 1
                is_growing = True
    return found
