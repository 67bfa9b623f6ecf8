"""Repeats: what the keys and items that were written forbid.

A row of the automaton does not know which keys an object has (`written`). Of its tokens these are left out:

    inside a key       tokens that end it as a key that the object has: those below a few nodes of the trie
    before a key,      tokens that write such a key as a whole: few in any vocabulary, known by the key (`key_tokens`)
    or anywhere else
    in all of these    tokens behind which no key is left: where a language of keys ends in few ways (`^[ab]$`), it is
                       not the quote alone that is forbidden, but every byte from which only such keys can be reached

The last one needs a look at the automaton only where some key of the language may be all that is left. It needs none if
whatever has begun can go on without end (`is_endless`), as in "any string", or "any string but these".

An item of a list whose items differ is in everything like a key of an object, but for one thing. A key that comes twice
is never right; an item is, if the text can be read so that the list is another one, under another alternative of the
schema. Then only the readings end in which it must differ (`Automaton.without_items`).

Invariant: a token is left out iff no text without a repeated key goes on from it. That an object always may end, or has
keys left, is seen to by the compiler: it never lets more keys be written than there are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..._core import fsm as core
from ..._core.fsm import KeyEvent, Mode
from ...errors import UnsupportedSchema
from .. import columns as k
from ..automaton.automaton import Automaton
from ..masks.liveness import Liveness
from ..masks.passages import Passages
from ..moves import TakeToken
from ..record import record
from ..text.alphabet import Ints
from ..text.text_table import TextTable
from ..text.text_view import TextView
from .written import OpenObject, Written, added
from .written_trie import Found, Ways

if TYPE_CHECKING:
    from ..vocabulary.key_tokens import KeyTokens

QUOTE = b'"'
BYTES = [bytes((byte,)) for byte in range(256)]
PUNCTUATION = sum(1 << byte for byte in b'{}[]",:')
FEW_KEYS = 64
MAX_KEPT = 1 << 13
STEP_BYTES = 400


@record
class Step:
    """What a token does from a state.

    Attributes:
        target: the state behind it; 0: it is refused.
        events, begin: as `follow_keys` has them.
        place: `Automaton.key_place` of the target.
    """

    target: int
    events: tuple[tuple[int, int, int], ...] = ()
    begin: int = -1
    place: int = k.NO_KEY


REFUSED = Step(0)


class Repeats:
    """What is forbidden under one automaton whose network has keys to be remembered."""

    def __init__(self, automaton: Automaton, liveness: Liveness) -> None:
        self._automaton = automaton
        self._liveness = liveness
        self._vocabulary = automaton.vocabulary
        self._steps: dict[int, Step] = {}
        self._places: dict[int, int] = {}
        self._alike: dict[int, int] = {}
        self._has_enough: dict[int, bool] = {}  # by a number of keys
        self._first_alike: dict[tuple[tuple[int, int, int], ...], int] = {}  # by what may be written of a key
        if liveness.completions is not None:
            _refuse_what_may_run_out(automaton, liveness.completions.passages)

    @property
    def num_bytes(self) -> int:
        """Memory of what is kept, roughly."""
        kept = len(self._places) + len(self._alike) + 2 * len(self._first_alike)
        return STEP_BYTES * len(self._steps) + 100 * kept

    @cached_property
    def tokens(self) -> KeyTokens:
        """The tokens that write keys."""
        return self._vocabulary.key_tokens

    @cached_property
    def is_endless(self) -> bool:
        """Whether every beginning of a key can become endlessly many keys."""
        network = self._automaton.network
        return all(_is_endless(network.texts[index]) for index in network.key_texts)

    def _has_more_keys(self, count: int) -> bool:
        """Whether every language of keys surely has more of them than so many."""
        enough = max(FEW_KEYS, 1 << count.bit_length())
        found = self._has_enough.get(enough)
        if found is None:
            network = self._automaton.network
            found = all(network.texts[index].surely_has(enough) for index in network.key_texts)
            self._has_enough[enough] = found
        return found

    @property
    def at_first(self) -> Written | None:
        """The memory at the beginning: none, unless single tokens can repeat a key, or several keys are owed."""
        may_repeat = self._automaton.network.owes_keys or self._vocabulary.key_tokens.twice
        return Written(0, None, None) if may_repeat else None

    @cached_property
    def beginners(self) -> Ints:
        """The row of tokens behind which a text may stand before a key, or in one that they have begun."""
        found = np.zeros(32 * self._vocabulary.num_words, np.bool_)
        found[[*self.tokens.before, *(token_id for ids in self.tokens.begun.values() for token_id in ids)]] = True
        return np.packbits(found, bitorder="little").view(np.int32)

    # ---------------------------------------------------------------- moving

    def follow(
        self, written: Written | None, state: int, token_id: int, num_tokens: int, typed: Callable[[], bytes]
    ) -> tuple[int, Written | None, bytes]:
        """The state and the memory after a token; state 0 if it is refused.

        The third is what is written of the key in which a text that is only tried stands then.

        Args:
            num_tokens: of the text with it; 0: it is only tried.
            typed: what has been written since the last quote that opened a string, the text being in that string.
        """
        has_keys = written is not None and written.objects is not None
        same = (state << 24 | token_id) << 1 | has_keys
        step = self._steps.get(same)
        if step is None:
            step = self._step(state, self._vocabulary.tokens[token_id], has_keys)
            if len(self._steps) >= MAX_KEPT:
                self._steps.clear()
            self._steps[same] = step
        if not step.target:
            return 0, written, b""
        return self._after(written, state, step, self._vocabulary.tokens[token_id], num_tokens, typed)

    def read(
        self, written: Written | None, state: int, text: bytes, typed: Callable[[], bytes]
    ) -> tuple[int, Written | None]:
        """As `follow`, for any bytes."""
        step = self._step(state, text, written is not None and written.objects is not None)
        return self._after(written, state, step, text, 0, typed)[:2] if step.target else (0, written)

    def allows(self, text: bytes) -> bool:
        """Whether a text that the automaton lets through repeats no key."""
        return not text or bool(self.read(None, self._automaton.start, text, bytes)[0])

    @property
    def first_step(self) -> TakeToken:
        """The step while no key is remembered, for `Moves`: below zero if a key ends in the token (ask `follow`)."""
        if self._liveness.is_by_bytes:
            bound = self._automaton.core
            return lambda state, token_id: core.advance_keys(bound, state, token_id, False)
        return lambda state, token_id: -1

    def quiet_step(self, state: int, token_id: int) -> int:
        """The step while keys are remembered, for `Moves`: below 0 if one ends or has to go on, or a brace counts."""
        if not self._liveness.is_by_bytes:
            return -1
        target = core.advance_keys(self._automaton.core, state, token_id, True)
        return target if target <= 0 or self.is_endless or self.place(target) == k.NO_KEY else -1

    def stays(self, state: int) -> bool:
        """Whether tokens of plain characters change nothing at all: braces in strings are but characters."""
        return self._automaton.stays_on_plain(state) and core.is_in_string(self._automaton.core, state)

    def advance(self, state: int, token_id: int) -> int:
        """The state after a token, whatever was written before; 0 if it is not allowed."""
        if self._liveness.is_by_bytes:
            return self._automaton.advance(state, token_id)
        return self._liveness.advance(state, token_id)

    def place(self, state: int) -> int:
        """`Automaton.key_place`, kept."""
        found = self._places.get(state)
        if found is None:
            if len(self._places) >= MAX_KEPT:
                self._places.clear()
            found = self._places[state] = self._automaton.key_place(state)
        return found

    def _step(self, state: int, text: bytes, has_keys: bool) -> Step:
        target, begin, events = core.follow_keys(self._automaton.core, state, text, has_keys)
        if not target or not self._liveness.is_possible(target):
            return REFUSED
        return Step(target, tuple(events), begin, self.place(target))

    def _after(
        self, written: Written | None, state: int, step: Step, token: bytes, num_tokens: int, typed: Callable[[], bytes]
    ) -> tuple[int, Written | None, bytes]:
        """See `follow`."""
        objects, depth = (None, 0) if written is None else (written.objects, written.depth)
        was_empty = objects is None
        for kind, first, last in step.events:
            if kind in (KeyEvent.KEY_ENDS, KeyEvent.ITEM_ENDS):
                text = token[first:last] if first >= 0 else typed() + token[:last]
                more = added(objects, depth, text, self.tokens.whole)
                if more is None:
                    others = self.others(state, token[:last]) if kind == KeyEvent.ITEM_ENDS else 0
                    here = Written(num_tokens, written, objects, depth)
                    after = self._after_repeated(here, others, token[last:], num_tokens)
                    return after if after[0] else (0, written, b"")
                objects, depth = more, 0
            elif objects is None:
                continue
            elif kind == KeyEvent.OPENS:
                depth += 1
            elif depth:
                depth -= 1
            else:
                depth = max(objects.gap - 1, 0)
                objects = objects.below
        begun = b""
        if step.place == k.IN_KEY and (num_tokens == 0 or not self.is_endless):
            begun = token[step.begin :] if step.begin >= 0 else typed() + token
        if objects is not None and not depth and step.place and not self.is_endless:
            is_alive = self._is_alive(objects, step.target, begun)
            if not is_alive:
                return 0, written, b""
        if objects is None and was_empty:
            return step.target, written, begun
        if step.events:
            written = Written(num_tokens, written, objects, depth)
        return step.target, written, begun

    def _after_repeated(
        self, written: Written, others: int, rest: bytes, num_tokens: int
    ) -> tuple[int, Written | None, bytes]:
        """As `_after`, from inside an item that comes twice, for the readings in which it need not differ."""
        step = self._step(others, rest, has_keys=True) if others else REFUSED
        return self._after(written, others, step, rest, num_tokens, bytes) if step.target else (0, None, b"")

    def others(self, state: int, text: bytes) -> int:
        """The state behind some bytes that end inside an item, as far as that need not differ; 0: none, or a key."""
        automaton = self._automaton
        if not automaton.network.item_texts:
            return 0
        here = automaton.advance_bytes(state, text)
        others = automaton.without_items(here)
        if others == here:
            return 0  # no item is written here, and a key never comes twice
        if others:
            core.note_mode(automaton.core, others, Mode.IN_STRING)
        return others

    # ---------------------------------------------------------------- what is left out

    def row(self, written: Written, state: int, bits: Ints, typed: Callable[[], bytes]) -> Ints:
        """The tokens of a row that repeat no key: the row itself, or an array of the caller's own."""
        left = bits
        objects = written.objects
        if objects is not None and not written.depth:
            place = self.place(state)
            if place == k.IN_KEY or (place and not self.is_endless):
                for path in self._cuts(objects, state, typed() if place == k.IN_KEY else b""):
                    left = bits.copy() if left is bits else left
                    core.clear_below(self._automaton.core, path, left)
                if left is not bits and self.others(state, b"" if place == k.IN_KEY else QUOTE):
                    self._put_back(written, state, bits, left, typed)
        if not self.tokens.twice and (objects is None or (self.is_endless and not objects.has_tokens)):
            return left  # nearly always
        for token_id in self._suspects(written):
            word, bit = token_id >> 5, token_id & 31
            if int(left[word]) >> bit & 1 and not self.follow(written, state, token_id, 0, typed)[0]:
                left = bits.copy() if left is bits else left
                left[word] &= ~np.int32(np.uint32(1 << bit).astype(np.int32))
        return left

    def _put_back(self, written: Written, state: int, bits: Ints, left: Ints, typed: Callable[[], bytes]) -> None:
        """Sets again the bits of tokens that repeat an item where it need not differ."""
        cleared = np.unpackbits((bits & ~left).view(np.uint8), bitorder="little")
        for token_id in np.flatnonzero(cleared).tolist():
            cleared[token_id] = self.follow(written, state, token_id, 0, typed)[0] != 0
        left |= np.packbits(cleared, bitorder="little").view(np.int32)

    def _suspects(self, written: Written) -> Iterator[int]:
        """Tokens that may be forbidden though they begin elsewhere than inside a key."""
        yield from self.tokens.twice
        objects, begun = written.objects, self.tokens.begun
        if objects is not None and not self.is_endless and not self._has_more_keys(objects.count):
            yield from self.tokens.before  # there may be no key left to write
        while objects is not None:
            yield from objects.tokens()
            if not self.is_endless:
                yield from objects.trie.tokens(objects.count, begun)
            objects = objects.below

    def _cuts(self, innermost: OpenObject, state: int, begun: bytes) -> list[bytes]:
        """The shortest bytes from a state before or inside a key that lead to keys of the object only."""
        trie, count = innermost.trie, innermost.count
        if self.place(state) != k.IN_KEY:
            inside = 0 if self.is_endless else self._automaton.advance_bytes(state, QUOTE)
            return [QUOTE + cut for cut in self._explored(innermost, inside, b"")[1]] if inside else []
        if self.is_endless:
            return [text[len(begun) :] for text in trie.beginning_with(begun, count)]
        is_alive, cuts = self._explored(innermost, state, begun)
        return [cut[len(begun) :] for cut in cuts] if is_alive else []

    def _is_alive(self, innermost: OpenObject, state: int, begun: bytes) -> bool:
        """Whether some key that the object does not have can be reached."""
        if self.place(state) != k.IN_KEY:
            state, begun = self._automaton.advance_bytes(state, QUOTE), b""
        return not state or self._explored(innermost, state, begun)[0]

    def _explored(self, innermost: OpenObject, state: int, begun: bytes) -> Found:
        """`WrittenTrie.explored`, asked in one state wherever the same may be written of a key, whatever follows it."""
        like = self._alike.get(state)
        if like is None:
            texts, is_elsewhere = self._automaton.texts(state)
            inside, like = tuple(sorted([text[1:] for text in texts])), state
            if not is_elsewhere and all([index in self._automaton.network.key_texts for index, _, _ in inside]):
                like = self._first_alike.setdefault(inside, state)
            if len(self._alike) >= MAX_KEPT:
                self._alike.clear()
            self._alike[state] = like
        return innermost.trie.explored(begun, like, innermost.count, self._ways)

    @cached_property
    def _ways(self) -> Ways:
        automaton = self._automaton
        live = automaton.live_bytes if self._liveness.is_by_bytes else self._live_in_tokens
        return Ways(live, lambda state, byte: automaton.advance_bytes(state, BYTES[byte]), self._goes_on)

    def _live_in_tokens(self, state: int) -> npt.NDArray[np.uint8]:
        """The bytes that may follow, are tokens, and behind which the text can be completed in tokens."""
        live, alone = self._automaton.live_bytes(state), self._vocabulary.atoms.alone
        for byte in np.flatnonzero(live).tolist():
            target = self._automaton.advance_bytes(state, BYTES[byte]) if alone >> byte & 1 else 0
            live[byte] = self._liveness.is_possible(target)
        return live

    def _goes_on(self, here: int, live: npt.NDArray[np.uint8], groups: Collection[int]) -> bool:
        """Whether some byte may follow that is none of these; or a quote that ends an item which need not differ."""
        if int(live.sum()) > sum([int(live[byte]) for byte in groups]):
            return True
        others = self.others(here, b"") if QUOTE[0] in groups else 0
        return others != 0 and self._automaton.advance_bytes(others, QUOTE) != 0


def _refuse_what_may_run_out(automaton: Automaton, passages: Passages) -> None:
    """Refuses keys and items of which a vocabulary that lacks bytes may have too few.

    An object whose keys run out must be able to end: its punctuation must not be a matter of what stands beside it.
    """
    network, atoms = automaton.network, automaton.vocabulary.atoms
    is_apart = atoms.apart & PUNCTUATION == PUNCTUATION
    for index in network.key_texts:
        if passages.never_runs_out(index):
            continue
        is_whole = not TextView(network.texts[index]).bytes_read & ~atoms.alone
        if not (is_apart and is_whole and (passages.goes_on_behind(index) or not network.owes_keys)):
            raise UnsupportedSchema(
                "keys or items must differ, and this vocabulary may not spell enough of them: it has no token for some "
                "bytes of the text; allow any string there, or use a vocabulary with byte fallback"
            )


def _is_endless(table: TextTable) -> bool:
    """Whether every text that has begun can go on without end."""
    if table.counted is not None:
        return False
    if not table.arrays:
        return True  # any string but some
    next_states, no_more = table.arrays[0], table.arrays[1].astype(np.bool_)
    no_more[0] = True
    return bool((no_more[next_states].all(axis=1) == no_more).all())
