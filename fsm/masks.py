"""Masks: which tokens may come next in a state, as a row of bits, and the store of known rows.

A token may follow a state if it may follow one of its configurations, so a row is an OR over configurations:

    inside a text automaton     tokens that stay inside: depends on (automaton, text state) alone, hence known once
                                for all constraints of the process; plus tokens that leave it: a walk below the
                                few trie nodes at which the text may end
    anywhere else               a walk through the trie, a few hundred nodes, since literals are narrow

So a wide row (inside a JSON string: 128,000 of 131,000 tokens) is one copy and a short walk, never a walk through
the vocabulary. Long bounded texts share rows as well: states that behave alike for as many characters as the
longest token has (`Dfa.horizon`) have the same tokens inside.

Invariant: a row from the store equals a fresh one, bit for bit. Rows are read-only arrays.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np

from .alphabet import Ints
from .automaton import NO_LIMIT, Automaton
from .dfa import Dfa
from .network import TEXT
from .text_table import TextTable
from .vocabulary import Vocabulary

SHARE_FROM = 3  # rows made for one automaton before it is asked which of its states are alike
SHARE_STATES = 16  # automata with fewer states are not worth asking


@dataclass(frozen=True, slots=True, eq=False)
class TextMask:
    """The tokens that stay inside a text, and the places where they could leave it.

    Attributes:
        row: int32[num_words].
        exits, starts: the trie nodes that may follow an end of the text, grouped by byte; see `walk_exits`.
        worst: greatest number of bytes to the end of the text after any token of the row.
    """

    row: Ints
    exits: Ints
    starts: Ints
    worst: int

    @property
    def num_bytes(self) -> int:
        return self.row.nbytes + self.exits.nbytes + self.starts.nbytes


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A finished row: the tokens that may follow, EOS included, and the greatest cost after one of them."""

    bits: Ints
    worst: int


@dataclass(slots=True)
class _Sharing:
    """What is known about the states of one text automaton that behave alike."""

    num_made: int = 0
    classes: Ints | None = None
    members: dict[int, int] = field(default_factory=dict)


class MaskStore:
    """Rows and text masks of one vocabulary, bounded in bytes; the oldest are dropped first.

    Shared by all constraints of a compiler; thread-safe. A dropped row is simply made again.
    """

    def __init__(self, vocabulary: Vocabulary, max_bytes: int) -> None:
        self.vocabulary = vocabulary
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self._lock = threading.Lock()
        self._owners: dict[Hashable, tuple[dict[int, Row], int]] = {}
        self._texts: dict[tuple[TextTable, int], TextMask] = {}
        self._sharing: dict[TextTable, _Sharing] = {}
        self._exits = np.empty(vocabulary.trie.num_nodes + 1, np.int32)

    # ---------------------------------------------------------------- text masks

    def text_mask(self, automaton: Automaton, table: TextTable, sub: int) -> TextMask:
        """The mask inside a text automaton in byte state `sub`."""
        found = self._texts.get((table, sub))
        if found is None:
            found = self._shared_text_mask(automaton, table, sub)
        return found

    def _shared_text_mask(self, automaton: Automaton, table: TextTable, sub: int) -> TextMask:
        with self._lock:
            sharing = self._sharing.setdefault(table, _Sharing())
            if sharing.classes is None and sharing.num_made >= SHARE_FROM:
                language = table.language
                if isinstance(language, Dfa) and language.num_states >= SHARE_STATES:
                    sharing.classes = language.horizon(self.vocabulary.max_token_len)
            if sharing.classes is None:
                mask = self._make_text_mask(automaton, table, sub)
            else:
                state, node = divmod(sub, table.num_nodes)
                alike = int(sharing.classes[state]) * table.num_nodes + node
                other = sharing.members.setdefault(alike, sub)
                known = self._texts.get((table, other))
                mask = known if known is not None else self._make_text_mask(automaton, table, sub)
            sharing.num_made += 1
            self._texts[table, sub] = mask
            return mask

    def _make_text_mask(self, automaton: Automaton, table: TextTable, sub: int) -> TextMask:
        row = np.zeros(self.vocabulary.num_words, np.int32)
        num_exits, worst = automaton.walk_text(table.fields, sub, NO_LIMIT, row, self._exits)
        found = self._exits[:num_exits]
        data = self.vocabulary.trie.data[found]
        order = np.argsort(data, kind="stable")
        starts = np.zeros(257, np.int32)
        np.cumsum(np.bincount(data, minlength=256), out=starts[1:])
        row.setflags(write=False)
        mask = TextMask(row, found[order], starts, worst)
        self._account(mask.num_bytes)
        return mask

    # ---------------------------------------------------------------- rows

    def _account(self, num_bytes: int) -> None:
        """Call with the lock held."""
        self.num_bytes += num_bytes
        if self.num_bytes > self.max_bytes:
            for rows, _ in self._owners.values():
                rows.clear()
            self._owners.clear()
            self._texts.clear()
            self._sharing.clear()
            self.num_bytes = num_bytes

    def keep(self, owner: Hashable, rows: dict[int, Row], state: int, row: Row) -> None:
        """Puts a row into the owner's table, and drops everything that is known when the bound is passed."""
        with self._lock:
            self._account(row.bits.nbytes)
            self._owners[owner] = (rows, 0)
            rows[state] = row


class Masks:
    """The rows of one automaton."""

    def __init__(self, automaton: Automaton, store: MaskStore) -> None:
        self.automaton = automaton
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
            self.store.keep(id(self), self.rows, state, found)
        return found

    def fresh_row(self, state: int) -> Row:
        """The row of a state, made anew."""
        automaton, store = self.automaton, self.store
        bits: Ints | None = None
        worst = 0
        rest = state
        for node, sub, stack in automaton.configurations(state):
            if self._kind[node] != TEXT:
                continue
            table = automaton.network.texts[self._arg[node]]
            mask = store.text_mask(automaton, table, sub)
            bits = mask.row.copy() if bits is None else np.bitwise_or(bits, mask.row, out=bits)
            after = automaton.enter(self._next_node[node], stack)
            worst = max(worst, mask.worst + automaton.min_bytes(after))
            if len(mask.exits):
                worst = max(worst, automaton.walk_exits(after, mask.exits, mask.starts, NO_LIMIT, bits))
            rest = -1
        if bits is None:
            bits = np.zeros(store.vocabulary.num_words, np.int32)
        elif rest < 0:
            rest = automaton.without_texts(state)
        if rest:
            worst = max(worst, automaton.walk(rest, NO_LIMIT, bits))
        if automaton.is_accepting(state):
            bits |= store.vocabulary.eos_words
        return Row(bits, worst)

    def row_within(self, state: int, limit: int) -> Ints:
        """The bits of the tokens after which at most `limit` bytes suffice to reach acceptance."""
        row = self.row(state)
        if row.worst <= limit:
            return row.bits
        automaton, store = self.automaton, self.store
        bits = np.zeros(store.vocabulary.num_words, np.int32)
        exits = np.empty(store.vocabulary.trie.num_nodes + 1, np.int32)
        rest = state
        for node, sub, stack in automaton.configurations(state):
            if self._kind[node] != TEXT:
                continue
            table = automaton.network.texts[self._arg[node]]
            after = automaton.enter(self._next_node[node], stack)
            if limit >= automaton.min_bytes(after):
                automaton.walk_text(table.fields, sub, limit - automaton.min_bytes(after), bits, exits)
            mask = store.text_mask(automaton, table, sub)
            if len(mask.exits):
                automaton.walk_exits(after, mask.exits, mask.starts, limit, bits)
            rest = -1
        rest = automaton.without_texts(state) if rest < 0 else state
        if rest:
            automaton.walk(rest, limit, bits)
        if automaton.is_accepting(state):
            bits |= store.vocabulary.eos_words
        return bits
