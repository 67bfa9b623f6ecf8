"""Masks: which tokens may come next in a state, as a row of bits, and the store of known rows.

A token may follow a state if it may follow one of its configurations, so a row is an OR over configurations:

    inside a text automaton     tokens that stay inside: depends on (automaton, text state) alone, hence known once
                                for all constraints of the process; plus tokens that leave it: a walk below the
                                few trie nodes at which the text may end
    anywhere else               a walk through the trie, a few hundred nodes, since literals are narrow

So a wide row (inside a JSON string: 128,000 of 131,000 tokens) is one copy and a short walk, never a walk through
the vocabulary. Long bounded texts share rows as well: states that behave alike for as many characters as the
longest token has (`alike`) have the same tokens inside.

Invariant: a row from the store equals a fresh one, bit for bit. Rows are read-only arrays.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .alphabet import Ints
from .automaton import NO_LIMIT, Automaton
from .liveness import Liveness
from .memory import NEVER
from .network import TEXT
from .text_kernels import alike
from .text_table import TextTable
from .vocabulary import Vocabulary

NO_EXITS = np.empty(0, np.int32)
SHARE_STATES = 16  # automata with fewer states are not searched for states that behave alike
NUM_RECENT = 4  # states of one automaton that a new one is compared with
MAX_PAIRS = 512  # pairs of states looked at in one comparison
MAX_COMPARED = 4096  # (automaton, template node) for which such states are remembered
MAX_CHARACTER_LEN = 3  # bytes that may be missing of a character that has begun
ALIAS_BYTES = 128


@dataclass(frozen=True, slots=True, eq=False)
class TextMask:
    """The tokens that stay inside a text, and the places where they could leave it.

    Attributes:
        row: int32[num_words].
        worst: no token of the row leaves more bytes than this to the end of the text.
        exits, starts: the trie nodes that may follow an end of the text, grouped by byte; see `walk_exits`.
            None: not asked for yet.
        trie: WHOLE or REST, the trie that they belong to.
    """

    row: Ints
    worst: int
    exits: Ints | None
    starts: Ints | None
    trie: int

    @property
    def num_bytes(self) -> int:
        return self.row.nbytes + 1028 + (self.exits.nbytes if self.exits is not None else 0)


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A finished row: the tokens that may follow, EOS included, and the greatest cost after one of them."""

    bits: Ints
    worst: int


class MaskStore:
    """Rows and text masks of one vocabulary, bounded in bytes; the oldest are dropped first.

    Shared by all constraints of a compiler; thread-safe. A dropped row is simply made again.
    """

    def __init__(self, vocabulary: Vocabulary, max_bytes: int) -> None:
        self.vocabulary = vocabulary
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self._lock = threading.Lock()
        self._order: deque[tuple[dict[Any, Any], Hashable, int]] = deque()
        self._texts: dict[tuple[TextTable, int], TextMask] = {}
        self._recent: dict[tuple[TextTable, int], list[int]] = {}
        self._pairs = np.empty((MAX_PAIRS, 2), np.int32)
        self._exits = np.empty(vocabulary.trie.num_nodes + 1, np.int32)
        self.scratch = np.zeros(vocabulary.num_words, np.int32)  # all zero whenever nobody holds its lock
        self.scratch_lock = threading.Lock()

    # ---------------------------------------------------------------- text masks

    def text_mask(self, automaton: Automaton, table: TextTable, sub: int, with_exits: bool) -> TextMask:
        """The mask inside a text automaton in byte state `sub`."""
        found = self._texts.get((table, sub))
        if found is None or (with_exits and found.exits is None):
            with self._lock:
                stand_in = self._alike(table, sub)
                found = self._make_text_mask(automaton, table, stand_in, with_exits)
                if stand_in != sub:  # which goes on alike for a while, but may be nearer to the end or further off
                    found = replace(found, worst=table.max_bytes + MAX_CHARACTER_LEN)
                    self._texts[table, sub] = found
                    self._account(self._texts, (table, sub), ALIAS_BYTES)
        return found

    def _alike(self, table: TextTable, sub: int) -> int:
        """The byte state whose mask stands for that of `sub`: the first one met that behaves alike."""
        if table.num_states < SHARE_STATES:
            return sub
        state, node = divmod(sub, table.num_nodes)
        if len(self._recent) > MAX_COMPARED:
            self._recent.clear()
        recent = self._recent.setdefault((table, node), [])
        for other in recent:
            if alike(table.table, table.accepts, state, other, self.vocabulary.max_token_len, self._pairs):
                return other * table.num_nodes + node
        recent.insert(0, state)
        del recent[NUM_RECENT:]
        return sub

    def _make_text_mask(self, automaton: Automaton, table: TextTable, sub: int, with_exits: bool) -> TextMask:
        known = self._texts.get((table, sub))
        if known is not None and (known.exits is not None or not with_exits):
            return known
        row = np.empty(self.vocabulary.num_words, np.int32)
        scratch = self._exits if with_exits else self._exits[:0]
        num_exits, worst, trie = automaton.walk_text(table.fields, sub, NO_LIMIT, row, scratch)
        row.setflags(write=False)
        exits, starts = automaton.group_exits(trie, scratch, num_exits) if with_exits else (None, None)
        mask = TextMask(row, worst, exits, starts, trie)
        self._texts[table, sub] = mask
        self._account(self._texts, (table, sub), mask.num_bytes)
        return mask

    # ---------------------------------------------------------------- rows

    def keep(self, rows: dict[int, Row], state: int, row: Row) -> None:
        """Puts a row into a constraint's table, to be dropped when it has become the oldest and room is needed."""
        with self._lock:
            rows[state] = row
            self._account(rows, state, row.bits.nbytes)

    def _account(self, table: dict[Any, Any], key: Hashable, num_bytes: int) -> None:
        """Notes an entry of a table and drops the oldest ones beyond the bound. Call with the lock held."""
        self._order.append((table, key, num_bytes))
        self.num_bytes += num_bytes
        while self.num_bytes > self.max_bytes and len(self._order) > 1:
            oldest, old_key, size = self._order.popleft()
            oldest.pop(old_key, None)
            self.num_bytes -= size


class Masks:
    """The rows of one automaton."""

    def __init__(self, automaton: Automaton, liveness: Liveness, store: MaskStore) -> None:
        self.automaton = automaton
        self.liveness = liveness
        self.store = store
        self.rows: dict[int, Row] = {}
        self._next_node = automaton.network.next_node.tolist()
        self._kind = automaton.network.kind.tolist()
        self._arg = automaton.network.arg.tolist()

    def row(self, state: int) -> Row:
        """The row of a state, from the store if it is known."""
        found = self.rows.get(state)
        if found is None:
            found = self.fresh_row(state)
            found.bits.setflags(write=False)
            self.store.keep(self.rows, state, found)
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
            after = automaton.enter(self._next_node[node], stack)
            goes_on = automaton.has_bytes(after)
            mask = store.text_mask(automaton, table, sub, goes_on)
            worst = max(worst, mask.worst + automaton.min_bytes(after))
            bits, is_mine = (mask.row, False) if bits is None else (bits | mask.row, True)
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

    def row_within(self, state: int, limit: int) -> Ints:
        """The bits of the tokens after which `limit` further tokens surely suffice to reach acceptance."""
        row = self.row(state)
        if row.worst <= limit:
            return row.bits
        automaton, store = self.automaton, self.store
        if not self.liveness.is_by_bytes:
            bits = row.bits & ~store.vocabulary.eos_words
            self.liveness.keep_within(state, bits, limit)
            return bits | store.vocabulary.eos_words if automaton.is_accepting(state) else bits
        bits = np.zeros(store.vocabulary.num_words, np.int32)
        inside = np.empty(store.vocabulary.num_words, np.int32)
        rest = state
        for node, sub, stack in automaton.configurations(state):
            if self._kind[node] != TEXT:
                continue
            table = automaton.network.texts[self._arg[node]]
            after = automaton.enter(self._next_node[node], stack)
            left = limit - automaton.min_bytes(after)
            if left >= 0:
                automaton.walk_text(table.fields, sub, left, inside, NO_EXITS)
                bits |= inside
            if automaton.has_bytes(after):
                mask = store.text_mask(automaton, table, sub, True)
                if mask.exits is not None and mask.starts is not None:
                    automaton.walk_exits(mask.trie, after, mask.exits, mask.starts, limit, bits)
            rest = -1
        rest = automaton.without_texts(state) if rest < 0 else state
        if rest:
            automaton.walk(rest, limit, bits)
        if automaton.is_accepting(state):
            bits |= store.vocabulary.eos_words
        return bits
