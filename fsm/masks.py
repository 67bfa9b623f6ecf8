"""Masks: which tokens may come next in a state, as a row of bits.

A token may follow a state if it may follow one of its configurations, so a row is an OR over configurations:

    inside a text automaton     tokens that stay inside: depends on (automaton, text state) alone, hence known once
                                for all constraints of the process; plus tokens that leave it: a walk below the
                                few trie nodes at which the text may end
    anywhere else               a walk through the trie, a few hundred nodes, since literals are narrow

So a wide row (inside a JSON string: 128,000 of 131,000 tokens) is one copy and a short walk, never a walk through
the vocabulary. Long bounded texts share rows as well: states that behave alike for as many characters as the
longest token has (`alike`) have the same tokens inside.

What was made is kept in a `MaskStore`, where equal rows are one array.

Invariant: a row from the store equals a fresh one, bit for bit. Rows are read-only arrays.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .alphabet import Ints
from .automaton import NO_LIMIT, Automaton
from .counted import Counted
from .liveness import Liveness
from .mask_store import MaskStore, Row, TextMask, TextShelf
from .memory import NEVER
from .network import TEXT
from .text_table import TextTable

NO_EXITS = np.empty(0, np.int32)
MAX_CHARACTER_LEN = 5  # bytes that may be missing of a character (or of an escape) that has begun


class Masks:
    """The rows of one automaton."""

    def __init__(self, automaton: Automaton, liveness: Liveness, store: MaskStore) -> None:
        self.automaton = automaton
        self.liveness = liveness
        self.store = store
        self.rows = store.shelf_of(self)
        self._next_node = automaton.network.next_node.tolist()
        self._kind = automaton.network.kind.tolist()
        self._arg = automaton.network.arg.tolist()

    def row(self, state: int) -> Row:
        """The row of a state, from the store if it is known."""
        found = self.rows.get(state)
        if found is None:
            found = self.fresh_row(state)
            self.store.keep(self.rows, state, found)
        found.is_recent = True
        return found

    def fresh_row(self, state: int) -> Row:
        """The row of a state, made anew."""
        automaton, store = self.automaton, self.store
        bits: Ints | None = None  # nothing yet
        is_mine = False  # whether bits may be written to, or belongs to a text mask
        worst = 0
        num_texts = 0
        configurations = automaton.configurations(state)
        for node, sub, stack in configurations:
            if self._kind[node] != TEXT:
                continue
            num_texts += 1
            table = automaton.network.texts[self._arg[node]]
            count = 0
            if table.counted is not None:
                count, stack = automaton.frame(stack)
            after = automaton.enter(self._next_node[node], stack)
            goes_on = automaton.has_bytes(after)
            mask = self.text_mask(table, sub, goes_on, count)
            worst = max(worst, mask.worst + automaton.min_bytes(after))
            bits, is_mine = (mask.bits, False) if bits is None else (bits | mask.bits, True)
            if goes_on and mask.exits is not None and mask.starts is not None:
                with store.scratch_lock:
                    scratch = store.scratch
                    cost = automaton.walk_exits(mask.trie, after, mask.exits, mask.starts, NO_LIMIT, scratch)
                    if cost:
                        bits, is_mine = bits | scratch, True
                        scratch[:] = 0
                worst = max(worst, cost - 1)
        if num_texts < len(configurations):
            rest = automaton.without_texts(state) if num_texts else state
            if bits is None or not is_mine:
                bits = np.zeros(store.vocabulary.num_words, np.int32) if bits is None else bits.copy()
                is_mine = True
            worst = max(worst, automaton.walk(rest, NO_LIMIT, bits) - 1)
        if bits is None:
            bits, is_mine = np.zeros(store.vocabulary.num_words, np.int32), True
        if not self.liveness.is_by_bytes:
            bits, worst = bits.copy(), NO_LIMIT
            self.liveness.keep_within(state, bits, NEVER - 1)
        if automaton.is_accepting(state):
            bits = bits | store.vocabulary.eos_words
        return Row(bits, worst)

    def text_mask(self, table: TextTable, sub: int, with_exits: bool, count: int = 0) -> TextMask:
        """The mask inside a text automaton in byte state `sub`, after `count` characters if they are counted."""
        if table.counted is not None:
            return self._counted_mask(table, table.counted, sub, with_exits, count)
        shelf = self.store.text_shelf(table)
        found = shelf.masks.get(sub)
        if found is None or (with_exits and found.exits is None):
            stand_in = self.store.stand_in(table, shelf, sub)
            found = self._make_text_mask(table, shelf, stand_in, with_exits)
            if stand_in != sub:  # which goes on alike for a while, but may be nearer to the end or further off
                found = replace(found, worst=table.max_bytes + MAX_CHARACTER_LEN)
                self.store.keep(shelf.masks, sub, found)
        found.is_recent = True
        return found

    def _counted_mask(self, table: TextTable, counted: Counted, sub: int, with_exits: bool, count: int) -> TextMask:
        """Far from the bounds that of the language itself; far below the least length the same for all counts."""
        vocabulary = self.store.vocabulary
        longest = vocabulary.max_token_len
        worst = counted.most_left(count) * table.widest + MAX_CHARACTER_LEN
        if table.uncounted is not None and counted.is_free(count, longest):
            return replace(self.text_mask(table.uncounted, sub, with_exits), worst=worst)
        if counted.is_far_below(count, longest) and counted.is_far_below(0, longest):
            count = 0
        shelf = self.store.text_shelf(table)
        found = shelf.counted.get((sub, count))
        if found is None or (with_exits and found.exits is None):
            bits = np.empty(vocabulary.num_words, np.int32)
            with self.store.scratch_lock:
                scratch = self.store.exits if with_exits else NO_EXITS
                num_exits, trie = self.automaton.walk_counted(table.fields, sub, count, NO_LIMIT, bits, scratch)
                exits, starts = self.automaton.group_exits(trie, scratch, num_exits) if with_exits else (None, None)
            found = TextMask(bits, worst, exits, starts, trie)
            self.store.keep(shelf.counted, (sub, count), found)
        found.is_recent = True
        return replace(found, worst=worst)

    def _make_text_mask(self, table: TextTable, shelf: TextShelf, sub: int, with_exits: bool) -> TextMask:
        known = shelf.masks.get(sub)
        if known is not None and (known.exits is not None or not with_exits):
            return known
        automaton, vocabulary = self.automaton, self.store.vocabulary
        bits = np.empty(vocabulary.num_words, np.int32)
        with self.store.scratch_lock:
            scratch = self.store.exits if with_exits else NO_EXITS
            num_exits, worst, trie = automaton.walk_text(table.fields, sub, NO_LIMIT, bits, scratch)
            exits, starts = automaton.group_exits(trie, scratch, num_exits) if with_exits else (None, None)
        mask = TextMask(bits, worst, exits, starts, trie)
        self.store.keep(shelf.masks, sub, mask)
        return mask
