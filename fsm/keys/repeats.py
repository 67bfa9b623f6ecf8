"""Repeats: what the keys and items that were written forbid.

A row of the automaton does not know which keys an object has (`written`). Of its tokens these are left out:

    inside a key       tokens that end it as a key that the object has: those below a few nodes of the trie
    before a key,      tokens that write such a key as a whole: few in any vocabulary, known by the key (`key_tokens`)
    or anywhere else
    in all of these    tokens after which no key is left: where a language of keys ends in few ways (`^[ab]$`), it is
                       not the quote alone that is forbidden, but every byte from which only such keys can be reached

The last case needs the automaton (`keys_left`), which goes through the keys of the object; not where any text that has
begun can go on without end (`is_endless`), as in "any string", or "any string but these".

An item of a list whose items must differ is like a key of an object, with one difference. A key that occurs twice is
never valid; an item is, if the text can also be read under an alternative of the schema that lets items repeat. Then
only the readings end in which it must differ (`Automaton.without_items`).

Invariant: a token is left out iff no text without a repeated key goes on from it. The compiler ensures that an object
may always end or has keys left: it never lets more keys be written than there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ..._core import fsm as core
from ..._core.fsm import KeyEvent, Mode
from .. import columns as k
from ..automaton.automaton import Automaton
from ..bounded_map import BoundedMap
from ..moves import TakeToken
from ..record import record
from ..text.alphabet import Ints
from ..text.text_table import TextTable
from ..vocabulary.trie import MAX_TOKEN_LEN
from .dead_ends import DeadEnds
from .open_lists import MAX_DEPTH, after_bracket, depth_of, may_repeat, read
from .written import QUOTE, KeyPlace, OpenObject, Written, added

if TYPE_CHECKING:
    from ..vocabulary.key_tokens import KeyTokens

MAX_KEPT = 1 << 13
MAX_LEFT = 64
FEW_KEYS = 64
STEP_BYTES = 400
HAS_QUOTE = 2  # `KeyTokens.structure`

Left = tuple[bool, list[bytes]]


@record
class Step:
    """What a token does from a state.

    Attributes:
        target: the state after it; 0: it is refused.
        events, begin: as `follow_keys` has them.
        place: `Automaton.key_place` of the target.
    """

    target: int
    events: tuple[tuple[int, int, int], ...] = ()
    begin: int = -1
    place: int = k.NO_KEY


REFUSED = Step(0)


class Repeats:
    """What is forbidden under one automaton whose network has keys to be remembered.

    Attributes:
        has_lists: whether items of any kind are.
    """

    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton
        self._vocabulary = automaton.vocabulary
        self._steps: BoundedMap[int, Step] = BoundedMap(MAX_KEPT)
        self._places: BoundedMap[int, int] = BoundedMap(MAX_KEPT)
        self._loops: BoundedMap[tuple[int, bytes], bool] = BoundedMap(MAX_KEPT)
        self._has_enough: dict[int, bool] = {}  # by a number of keys
        self._left: dict[tuple[OpenObject, int, bytes, bool], Left] = {}  # mostly of one row
        self.has_lists = bool(automaton.network.edge_texts)

    @property
    def dead_ends(self) -> DeadEnds:
        """Places from which items can only be written again; made anew, since a cycle would wait for the collector."""
        return DeadEnds(self._automaton, self.read_on, self._loops)

    @property
    def num_bytes(self) -> int:
        """Memory of what is kept, roughly."""
        return STEP_BYTES * len(self._steps) + 100 * len(self._places)

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
        """Whether every language of keys surely has more than `count` of them."""
        enough = max(FEW_KEYS, 1 << count.bit_length())
        if enough not in self._has_enough:
            network = self._automaton.network
            self._has_enough[enough] = all(network.texts[index].surely_has(enough) for index in network.key_texts)
        return self._has_enough[enough]

    @property
    def at_first(self) -> Written | None:
        """The memory at the beginning: none, unless single tokens can repeat a key, or several keys are owed."""
        may_repeat = self._automaton.network.owes_keys or self.has_lists or self.tokens.twice
        return Written(0, None, None) if may_repeat else None

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
        has_keys = written is not None and not written.is_empty
        same = (state << 24 | token_id) << 1 | has_keys
        step = self._steps.get(same)
        if step is None:
            step = self._steps.keep(same, self._step(state, self._vocabulary.tokens[token_id], has_keys))
        if not step.target:
            return 0, written, b""
        return self._after(written, state, step, self._vocabulary.tokens[token_id], num_tokens, typed)

    def read(
        self, written: Written | None, state: int, text: bytes, typed: Callable[[], bytes]
    ) -> tuple[int, Written | None]:
        """As `follow`, for any bytes."""
        step = self._step(state, text, written is not None and not written.is_empty)
        return self._after(written, state, step, text, 0, typed)[:2] if step.target else (0, written)

    def read_on(self, place: KeyPlace, text: bytes) -> KeyPlace:
        """The place after some bytes, its state 0 if they are refused; dead ends of items are not."""
        written, state, begun = place
        step = self._step(state, text, written is not None and not written.is_empty)
        if not step.target:
            return written, 0, b""
        after, memory, begun = self._after(written, state, step, text, 0, lambda: begun, sees_dead_ends=False)
        return memory, after, begun

    def allows(self, text: bytes) -> bool:
        """Whether a text that the automaton lets through repeats no key."""
        return not text or bool(self.read(None, self._automaton.start, text, bytes)[0])

    @property
    def first_step(self) -> TakeToken:
        """The step while no key is remembered, for `Moves`: below zero if a key ends in the token (ask `follow`)."""
        bound = self._automaton
        return lambda state, token_id: core.advance_keys(bound, state, token_id, False)

    def quiet_step(self, state: int, token_id: int) -> int:
        """The step while keys are remembered, for `Moves`: below 0 if one ends or has to go on, or a brace counts."""
        target = core.advance_keys(self._automaton, state, token_id, True)
        if self.has_lists:
            return min(target, -1)
        return target if target <= 0 or self.is_endless or self.place(target) == k.NO_KEY else -1

    def stays(self, state: int) -> bool:
        """Whether tokens of plain characters change nothing at all: braces in strings are but characters."""
        return (
            not self.has_lists and self._automaton.stays_on_plain(state) and core.is_in_string(self._automaton, state)
        )

    def place(self, state: int) -> int:
        """`Automaton.key_place`, kept."""
        found = self._places.get(state)
        if found is None:
            found = self._places.keep(state, self._automaton.key_place(state))
        return found

    def _step(self, state: int, text: bytes, has_keys: bool) -> Step:
        target, begin, events = core.follow_keys(self._automaton, state, text, has_keys)
        return Step(target, tuple(events), begin, self.place(target)) if target else REFUSED

    def _after(
        self,
        written: Written | None,
        state: int,
        step: Step,
        token: bytes,
        num_tokens: int,
        typed: Callable[[], bytes],
        *,
        sees_dead_ends: bool = True,
    ) -> tuple[int, Written | None, bytes]:
        """See `follow`."""
        objects, depth, lists = (None, 0, None) if written is None else (written.objects, written.depth, written.lists)
        was_empty, at = objects is None and lists is None, 0
        for kind, first, last in step.events:
            if kind in (KeyEvent.KEY_ENDS, KeyEvent.ITEM_ENDS):
                text = token[first:last] if first >= 0 else typed() + token[:last]
                more = added(objects, depth, text, self._tokens_of)
                if more is None:
                    others = self.others(state, token[:last]) if kind == KeyEvent.ITEM_ENDS else 0
                    here = Written(num_tokens, written, objects, depth, read(lists, token[at:last]))
                    after = self._after_repeated(here, others, token[last:], num_tokens, sees_dead_ends)
                    return after if after[0] else (0, written, b"")
                objects, depth = more, 0
                continue
            if lists is not None or kind == KeyEvent.LIST_OPENS:
                if kind in (KeyEvent.OPENS, KeyEvent.LIST_OPENS) and depth_of(lists) >= MAX_DEPTH:
                    return 0, written, b""
                lists = read(lists, token[at:last])
                here = Written(num_tokens, written, objects, depth, lists)
                is_new, lists = after_bracket(lists, kind, token[max(at, last) : last + 1])
                at = last + 1
                if not is_new:
                    after = self._after_repeated(
                        here, self._off_edges(state, token[:last]), token[last:], num_tokens, sees_dead_ends
                    )
                    return after if after[0] else (0, written, b"")
            if objects is None or kind == KeyEvent.VALUE_ENDS:
                continue
            if kind in (KeyEvent.OPENS, KeyEvent.LIST_OPENS):
                depth += 1
            elif depth:
                depth -= 1
            else:
                depth = max(objects.gap - 1, 0)
                objects = objects.below
        begun = b""
        if step.place == k.IN_KEY and (num_tokens == 0 or self.has_lists or not self.is_endless):
            begun = token[step.begin :] if step.begin >= 0 else typed() + token
        if objects is not None and not depth and step.place and not self.is_endless:
            inside = step.target if step.place == k.IN_KEY else self._automaton.advance_bytes(step.target, QUOTE)
            if inside and not self._keys_left(objects, inside, begun, with_cuts=False)[0]:
                return 0, written, b""
        if objects is None and lists is None and was_empty:
            return step.target, written, begun
        memory = written
        if step.events or lists is not None:
            memory = Written(num_tokens, written, objects, depth, read(lists, token[at:]))
        if sees_dead_ends and lists is not None and self.dead_ends.is_dead((memory, step.target, begun)):
            return 0, written, b""
        return step.target, memory, begun

    def _after_repeated(
        self, written: Written, others: int, rest: bytes, num_tokens: int, sees_dead_ends: bool
    ) -> tuple[int, Written | None, bytes]:
        """As `_after`, from inside an item that comes twice, for the readings in which it need not differ."""
        step = self._step(others, rest, has_keys=True) if others else REFUSED
        if not step.target:
            return 0, None, b""
        return self._after(written, others, step, rest, num_tokens, bytes, sees_dead_ends=sees_dead_ends)

    def _off_edges(self, state: int, text: bytes) -> int:
        """The state after some bytes that end with an item, as far as that need not differ; 0: none."""
        others = self._automaton.without_edges(self._automaton.advance_bytes(state, text))
        if others:
            core.note_mode(self._automaton, others, Mode.OUTSIDE)
        return others

    def others(self, state: int, text: bytes) -> int:
        """The state after some bytes that end inside an item, as far as that need not differ; 0: none, or a key."""
        automaton = self._automaton
        if not automaton.network.item_texts:
            return 0
        here = automaton.advance_bytes(state, text)
        others = automaton.without_items(here)
        if others == here:
            return 0  # no item is written here, and a key never comes twice
        if others:
            core.note_mode(automaton, others, Mode.IN_STRING)
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
                    core.clear_below(self._automaton, path, left)
                if left is not bits and self.others(state, b"" if place == k.IN_KEY else QUOTE):
                    self._put_back(written, state, bits, left, typed)
        if may_repeat(written.lists):
            begun = typed() if self.place(state) == k.IN_KEY else b""
            for path, _, is_dead in self.dead_ends.walk((written, state, begun), skips_digits=True):
                if is_dead:
                    left = bits.copy() if left is bits else left
                    core.clear_below(self._automaton, path, left)
        for token_id in self._suspects(written, state):
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

    def _suspects(self, written: Written, state: int) -> Iterator[int]:
        """Tokens that may be forbidden though they begin elsewhere than inside a key, or an item."""
        yield from self.tokens.twice
        if self.has_lists:
            in_string = written.lists is not None and core.is_in_string(self._automaton, state)
            if depth_of(written.lists) + self._vocabulary.max_token_len >= MAX_DEPTH:
                yield from np.flatnonzero(self.tokens.structure).tolist()
            yield from (i for i in self.tokens.items if not in_string or self.tokens.structure[i] == HAS_QUOTE)
        objects = written.objects
        if objects is not None and not self.is_endless and not self._has_more_keys(objects.count):
            yield from self.tokens.before  # there may be no key left to write
        while objects is not None:
            if objects.keys.tokens:
                yield from objects.tokens()
            objects = objects.below

    def _tokens_of(self, text: bytes) -> list[int]:
        """Tokens that may write all of a key, or where keys can run out end in it."""
        found = list(self.tokens.whole.get(text, ()))
        if not self.is_endless:
            for end in range(min(len(text), MAX_TOKEN_LEN) + 1):
                found += self.tokens.begun.get(text[:end], ())
        return found

    def _cuts(self, innermost: OpenObject, state: int, begun: bytes) -> list[bytes]:
        """The shortest bytes from a state before or inside a key that lead to keys of the object only."""
        if self.is_endless:
            return [text[len(begun) :] for text in innermost.beginning_with(begun)]
        if self.place(state) == k.IN_KEY:
            return self._keys_left(innermost, state, begun, with_cuts=True)[1]
        inside = self._automaton.advance_bytes(state, QUOTE)
        is_alive, cuts = self._keys_left(innermost, inside, b"", with_cuts=True) if inside else (True, [])
        return [QUOTE + cut for cut in cuts] if is_alive else [QUOTE]

    def _keys_left(self, innermost: OpenObject, state: int, begun: bytes, *, with_cuts: bool) -> Left:
        """Whether a key that has begun can become one that the object does not have; the bytes after which it cannot.

        Args:
            with_cuts: the latter are asked for.
        """
        same = (innermost, state, begun, with_cuts)
        found = self._left.get(same)
        if found is None:
            texts = [text[len(begun) :] for text in innermost.beginning_with(begun)]
            found = core.keys_left(self._automaton, state, texts, with_cuts) if texts else (True, [])
            if len(self._left) >= MAX_LEFT:
                self._left.clear()
            self._left[same] = found
        return found


def _is_endless(table: TextTable) -> bool:
    """Whether every text that has begun can go on without end."""
    if table.counted is not None:
        return False
    if not table.arrays:
        return True  # any string but some
    next_states, no_more = table.arrays[0], table.arrays[1].astype(np.bool_)
    no_more[0] = True
    return bool((no_more[next_states].all(axis=1) == no_more).all())
