"""The store of known mask rows: equal rows are one array, entries not used lately are evicted first, bytes are bounded.

Two kinds of entries, each in the dictionary ("shelf") of its owner, which looks it up without asking the store:

    owner       key              entry
    Masks       state            Row: a finished row of one constraint
    TextTable   text state       TextMask: the tokens inside a text, for all constraints that have the text

    entries ──► arrays of bits, one per distinct content

A shelf is freed with its owner: the store keeps no constraint and no text automaton alive. It knows no automata; it is
given the rows.

Eviction is by second chance (the clock algorithm), which approximates least recently used, so that a hit costs one
assignment: entries stand in a queue in the order they were made; a hit marks its entry; an entry that is marked when
its turn comes loses the mark and goes to the end.

Invariant: `num_bytes` is the sum over all entries and distinct arrays, at most `max_bytes` but for the newest entry.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Hashable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from ..._core import fsm as core
from ..text.alphabet import Ints
from ..text.text_table import TextTable
from ..vocabulary.vocabulary import Vocabulary

FEW_TEXTS = 12  # in which a state stands: more are looked at in parts
ENTRY_BYTES = 320  # an entry with its places in its shelf and in line
MAX_CHANCES = 64  # marks removed for one new entry: a long run of marked entries must not delay the one that needs room
MOST_CLEARED = 32  # entries without an owner that are dropped for one new entry: thousands would take milliseconds
MOST_LOOKED_AT = 4  # places in the line, for the same reason
SHARE_STATES = 16  # automata with fewer states are not searched for states that behave alike
NUM_RECENT = 4  # states of one automaton that a new one is compared with
MAX_PAIRS = 512  # pairs of states looked at in one comparison


@dataclass(slots=True, eq=False)
class Row:
    """A finished row.

    Attributes:
        bits: int32[num_words], the tokens that may follow, EOS included; shared by all rows of this content.
        worst: the greatest cost after one of them.
        hash: of the bits, as the store knows them; 0: not known yet.
        is_recent: looked up since the store last looked.
    """

    bits: Ints
    worst: int
    hash: int = 0
    is_recent: bool = False

    @property
    def num_bytes(self) -> int:
        """Without the bits."""
        return ENTRY_BYTES


@dataclass(slots=True, eq=False)
class TextMask:
    """The tokens that stay inside a text, and the places where they could leave it.

    Attributes:
        bits: int32[num_words]; shared as in `Row`.
        worst: no token of the row leaves more bytes than this to the end of the text.
        exits, starts: the trie nodes that may follow an end of the text, grouped by byte; see `walk_exits`.
            None: not asked for yet.
        in_rest: whether they are nodes of the trie of the rest (`Vocabulary.rest_trie`), else of that of all tokens.
        hash, is_recent: as in `Row`.
    """

    bits: Ints
    worst: int
    exits: Ints | None
    starts: Ints | None
    in_rest: bool
    hash: int = 0
    is_recent: bool = False

    @property
    def num_bytes(self) -> int:
        """Without the bits."""
        num_bytes = ENTRY_BYTES
        for array in (self.exits, self.starts):
            num_bytes += array.nbytes if array is not None else 0
        return num_bytes


Entry = Row | TextMask
Shelf = MutableMapping[Any, Any]


@dataclass(slots=True, eq=False)
class Bits:
    """One distinct array and the number of entries that share it."""

    array: Ints
    num_entries: int = 0


@dataclass(slots=True, eq=False)
class TextShelf:
    """What is known of one text automaton.

    Attributes:
        masks: by text state.
        counted: by (text state, number of characters), near the bounds of a counted text.
        recent: by template node, the last table states that were met.
    """

    masks: dict[int, TextMask] = field(default_factory=dict)
    counted: dict[tuple[int, int], TextMask] = field(default_factory=dict)
    recent: dict[int, list[int]] = field(default_factory=dict)


class MaskStore:
    """Rows and text masks of one vocabulary. Shared by all constraints of a compiler; thread-safe.

    A dropped entry is simply made again.
    """

    def __init__(self, vocabulary: Vocabulary, max_bytes: int) -> None:
        self.vocabulary = vocabulary
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._num_bytes = 0
        self._num_entries = 0
        self._line: deque[Any] = deque()  # shelf, key, shelf, key, ..: pairs would be as many objects to collect
        self._distinct: dict[int, Bits] = {}
        self._left: deque[Shelf] = deque()  # shelves whose owners are gone
        self._owners: set[weakref.ref[object]] = set()
        self._texts: weakref.WeakKeyDictionary[TextTable, TextShelf] = weakref.WeakKeyDictionary()

    @property
    def num_bytes(self) -> int:
        """Memory of all entries and arrays."""
        with self._lock:
            self._clear_left(self._num_entries)
            return self._num_bytes

    @property
    def num_entries(self) -> int:
        """Rows and text masks that are known."""
        with self._lock:
            self._clear_left(self._num_entries)
            return self._num_entries

    # ---------------------------------------------------------------- shelves and entries

    def shelf_of(self, owner: object) -> dict[int, Row]:
        """A new shelf for the rows of `owner`, which goes when the owner does."""
        shelf: dict[int, Row] = {}
        self._leave_with(owner, shelf)
        return shelf

    def _leave_with(self, owner: object, shelf: Shelf) -> None:
        # The owner may go at any moment, also while this thread holds the lock: the shelf is cleared later.
        left, owners = self._left, self._owners

        def leave(reference: weakref.ref[object]) -> None:
            left.append(shelf)
            owners.discard(reference)

        owners.add(weakref.ref(owner, leave))

    def keep(self, shelf: Shelf, key: Hashable, entry: Entry) -> None:
        """Puts an entry on a shelf; its bits become those of an equal entry if there is one."""
        entry.hash = entry.hash or core.hash_row(entry.bits)
        with self._lock:
            self._keep(shelf, key, entry)

    def kept(self, shelf: Shelf, key: Hashable, row: Row) -> Row:
        """A row, put on a shelf."""
        self.keep(shelf, key, row)
        return row

    def _keep(self, shelf: Shelf, key: Hashable, entry: Entry) -> None:
        if self._left:
            self._clear_left(MOST_CLEARED)
        bits = self._distinct.get(entry.hash)
        if bits is None:
            entry.bits.setflags(write=False)
            bits = self._distinct[entry.hash] = Bits(entry.bits)
            self._num_bytes += entry.bits.nbytes
        elif bits.array is not entry.bits and core.is_same_row(bits.array, entry.bits):
            entry.bits = bits.array
        if bits.array is entry.bits:
            bits.num_entries += 1
        else:  # another row with the same hash has come first
            entry.bits.setflags(write=False)
            self._num_bytes += entry.bits.nbytes
        before = shelf.get(key)
        if before is not None:
            self._forget(before)
        else:
            self._line += shelf, key
        shelf[key] = entry
        self._num_bytes += entry.num_bytes
        self._num_entries += 1
        if self._num_bytes > self.max_bytes:
            self._make_room(entry)
        self._close_ranks()

    def _forget(self, entry: Entry) -> None:
        """Takes an entry that has left its shelf out of the accounts."""
        self._num_entries -= 1
        self._num_bytes -= entry.num_bytes
        bits = self._distinct.get(entry.hash)
        if bits is None or bits.array is not entry.bits:
            self._num_bytes -= entry.bits.nbytes
            return
        bits.num_entries -= 1
        if not bits.num_entries:
            del self._distinct[entry.hash]
            self._num_bytes -= entry.bits.nbytes

    def _make_room(self, newest: Entry) -> None:
        """Drops entries until the rest fits, first those whose owners are gone, then from the front of the line."""
        while self._num_bytes > self.max_bytes and self._left:
            self._clear_left(1)
        line, chances = self._line, MAX_CHANCES
        while self._num_bytes > self.max_bytes and len(line) > 2:
            shelf, key = line.popleft(), line.popleft()
            entry = shelf.get(key)
            if entry is None:
                continue
            if entry is newest:
                line += shelf, key
                continue
            if entry.is_recent and chances:
                entry.is_recent = False
                chances -= 1
                line += shelf, key
                continue
            del shelf[key]
            self._forget(entry)
            chances = MAX_CHANCES

    def _clear_left(self, most: int) -> None:
        """Drops at most so many entries whose owners are gone."""
        while self._left and most:
            shelf = self._left[0]
            if not shelf:
                self._left.popleft()
                continue
            self._forget(shelf.popitem()[1])
            most -= 1

    def _close_ranks(self) -> None:
        """Looks at a few places of the line, if most are of entries that are gone, and takes these out."""
        line = self._line
        for _ in range(MOST_LOOKED_AT):
            if len(line) <= 4 * self._num_entries + 2048:
                break
            shelf, key = line.popleft(), line.popleft()
            if key in shelf:
                line += shelf, key

    # ---------------------------------------------------------------- text masks

    def text_shelf(self, table: TextTable) -> TextShelf:
        """The shelf of a text automaton."""
        with self._lock:
            shelf = self._texts.get(table)
            if shelf is None:
                shelf = self._texts[table] = TextShelf()
                self._leave_with(table, shelf.masks)
                self._leave_with(table, shelf.counted)
            return shelf

    def stand_in(self, table: TextTable, shelf: TextShelf, sub: int) -> int:
        """The text state whose mask stands for that of `sub`: the first one met that behaves alike."""
        if table.num_states < SHARE_STATES:
            return sub
        state, node = divmod(sub, table.num_nodes)
        with self._lock:
            recent = shelf.recent.setdefault(node, [])
            for other in recent:
                if core.are_alike(table.core, state, other, self.vocabulary.max_token_len, MAX_PAIRS):
                    return other * table.num_nodes + node
            recent.insert(0, state)
            del recent[NUM_RECENT:]
            return sub
