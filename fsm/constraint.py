"""Constraint: what a text must look like, compiled once and shared by any number of requests and threads.

What has been computed of its language is in its `LanguageCaches`; the place of one request in it is that request's
`Cursor`. The constraint itself knows its source, and which constraint replaces it.

States are never freed, so an automaton only grows. Before it passes its bound it is replaced by a new one of the same
network: new requests go there at once (`renewed`), running ones when little room is left (`automaton_handover`). So the
bound is on what one request needs at a time.

    first   second ·····> newest      each that was replaced refers to the newest one, and none to the one before it:
      └───────┴──> Line ────┘         one in between lives as long as some cursor is in it

A constraint that the compiler has dropped lives exactly as long as a cursor of it is in use: nothing else that is kept
(rows, drafts, text automata) refers to it. A request that has ended drops its cursor.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

from ..errors import ConstraintTooLarge
from .arguments import check_type, whole_number
from .automaton.automaton import Automaton
from .automaton.limits import UNUSED_AUTOMATON_BYTES
from .cursor import Cursor
from .language_caches import LanguageCaches
from .masks.mask_store import MaskStore
from .masks.missing_bytes import check_bytes
from .network.network import Network
from .placed_error import placed
from .source import Source, unpacked
from .text.text_table import TextTable

HALF = 0.5  # of an automaton's bound on memory; beyond that no text begins in it
OBJECT_BYTES = 24 << 10  # the Python objects of one constraint, measured


class Line:
    """Leads from constraints that were replaced to the newest one, which holds it by a weak reference only.

    Attributes:
        newest: where texts begin.
    """

    __slots__ = ("__weakref__", "newest")

    def __init__(self, newest: Constraint) -> None:
        self.newest = newest


class Constraint:
    """What a text must look like, over one vocabulary.

    Args:
        network: the compiled grammar.
        kind: "regex", "choice", "json_schema", "json_object", "json_value", "grammar" or "structural_tag".
        source: what it was compiled from.
        store: rows of the vocabulary, shared with other constraints.
        max_automaton_bytes: bound on the automaton's own memory.

    Attributes:
        caches: its own, however full; cursors know those of the constraint that has replaced it.

    Raises:
        ConstraintError: it needs bytes that the vocabulary has no token for.
    """

    def __init__(self, network: Network, kind: str, source: Source, store: MaskStore, max_automaton_bytes: int) -> None:
        self.kind = kind
        self._lock = threading.Lock()
        self._line: Line | None = None  # once it was replaced
        self._line_to_here: Callable[[], Line | None] = _no_line
        self._source = source
        self.vocabulary = store.vocabulary
        check_bytes(network, self.vocabulary, kind)
        self.caches = LanguageCaches(network, store, max_automaton_bytes)

    @property
    def automaton(self) -> Automaton:
        """States and steps, from its caches."""
        return self.caches.automaton

    # ---------------------------------------------------------------- cursors, and what they ask

    @property
    def source(self) -> str:
        """What it was compiled from, for people to read; empty if that is nested too deeply."""
        return unpacked(self._source)

    def cursor(self, cohort: str = "") -> Cursor:
        """A new cursor at the beginning of the text; `renewed` is its constraint.

        cohort: cursors of one cohort share habits, guesses at what comes next (`foresight.remember`).
        """
        return Cursor.first(self.renewed(), cohort)

    def renewed(self) -> Constraint:
        """This constraint, or the one that has replaced it since its automaton was half full."""
        newest = self if self._line is None else self._line.newest
        return newest if not newest.caches.automaton.is_filled(HALF) else newest._replaced()

    def _replaced(self) -> Constraint:
        """The constraint that has replaced this one, or a new one that does so now."""
        with self._lock:
            if self._line is None:
                newest, line = self.another(), self._line_to_here()
                if line is None:
                    line = Line(newest)
                line.newest = newest
                newest._line_to_here = weakref.ref(line)
                self._line = line
            return self._line.newest

    def another(self) -> Constraint:
        """A new one like this, which no request uses yet and which is not the newest one."""
        automaton, store = self.automaton, self.caches.masks.store
        other = Constraint(automaton.network, self.kind, self._source, store, automaton.max_bytes)
        other._line = self._line
        return other

    def min_tokens(self) -> int:
        """A number of tokens that suffices for a complete text (EOS not counted)."""
        return self.cursor().min_tokens_to_accept()

    def is_within(self, max_tokens: int) -> bool:
        """Whether `max_tokens >= min_tokens()`, which is cheaper if there are many."""
        return self.cursor().is_within(whole_number("max_tokens", max_tokens, "a number of tokens"))

    def accepts(self, text: bytes) -> bool:
        """Whether it is a whole text of the language."""
        check_type("text", text, bytes, "bytes; encode text first")
        return self.caches.accepts(text)

    def placed(self, error: ConstraintTooLarge, token_ids: list[int]) -> ConstraintTooLarge:
        """The error of a text that has no room, with the place of what applies after its tokens in the schema."""
        if self.kind != "json_schema":
            return error
        tokens = self.vocabulary.tokens
        return placed(error, self.source, b"".join([tokens[token_id] for token_id in token_ids]))

    @property
    def num_bytes(self) -> int:
        """Memory of its own so far, and of the one in which its texts begin now, if that is another one.

        Network, automaton, what was found out with it. Rows belong to the store, texts to all.
        """
        return self._num_own_bytes + (0 if self._line is None else self._line.newest._num_own_bytes)

    @property
    def _num_own_bytes(self) -> int:
        return OBJECT_BYTES + len(self._source) + self.automaton.network.num_bytes + self.caches.num_bytes

    @property
    def num_bytes_unused(self) -> int:
        """What `num_bytes` was before anything was asked of it."""
        network = self.automaton.network
        return OBJECT_BYTES + UNUSED_AUTOMATON_BYTES + len(self._source) + network.num_bytes

    @property
    def texts(self) -> tuple[TextTable, ...]:
        """The text automata that it goes through, which it may share with other constraints."""
        return self.automaton.network.texts

    def __repr__(self) -> str:
        source = self.source if len(self.source) <= 60 else self.source[:57] + "..."
        return f"Constraint({self.kind}: {source})"


def _no_line() -> None:
    return None
