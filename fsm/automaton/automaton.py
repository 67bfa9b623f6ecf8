"""Automaton: a network run as a byte automaton whose states and transitions are found when they are first needed.

A *state* is an integer: the interned set of all configurations (position, stack) that the bytes so far allow: a subset
construction on demand, with stacks that share their tails (a graph-structured stack, as Tomita's). 0 is dead; 1 (END)
is accepting and nothing may follow: there is one such state, since all are interned. Regular constraints have finitely
many states; of recursive ones those exist that were visited.
Every state can reach acceptance, so a byte that is not refused is never a dead end.

This is the class of the compiled core (`fsm/core/automaton.h`), made from a network: it owns states and stacks, rows
that cache steps, and the bound on their memory. It knows tokens as byte strings with ids alone (the trie).

Thread-safe: calls of one automaton are made one at a time, those of different ones may be made at once; a long call
does not keep the interpreter's lock (`fsm/core/bound.h`).
"""

from __future__ import annotations

import numpy as np

from ..._core import fsm as core
from .. import columns as k
from ..network.network import Network
from ..vocabulary.vocabulary import Vocabulary
from .limits import DEFAULT_MAX_BYTES

END = 1  # the state in which the text is complete and cannot go on
NO_LIMIT = 1 << 30  # bytes to acceptance: more than any state is away from it


class Automaton(core.Automaton):
    """The states of one network over one vocabulary.

    Args:
        network: what may be written.
        vocabulary: whose tokens the walks go through.
        max_bytes: bound on the memory of states and stacks; rows have what these leave of it, at least a sixteenth.

    Raises:
        ConstraintTooLarge: the bound is passed, by any method that may find new states.
        OutOfWork: this thread's allowance is used up. The call may be repeated: what was found is kept.
    """

    def __init__(self, network: Network, vocabulary: Vocabulary, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        texts, is_key = [text.core for text in network.texts], np.zeros(len(network.texts), np.uint8)
        for index in network.key_texts:
            is_key[index] = k.AN_ITEM if index in network.item_texts else k.A_REMEMBERED_KEY
        for index in network.edge_texts:
            is_key[index] = k.AN_EDGE
        super().__init__(vocabulary.core, network.laid, network.byte_sets, texts, is_key, max_bytes)
        self.network = network
        self.vocabulary = vocabulary

    def frames(self, stack: int) -> list[tuple[int, int]]:
        """(node to go on at, turns done) of every frame of a stack, the top first; of a joint, of its newest stack."""
        found = []
        while stack:
            node, count, _, parent, _ = self.frame(stack)
            if node == k.JOINT:
                stack = count
                continue
            found.append((node, count))
            stack = parent
        return found
