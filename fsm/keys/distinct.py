"""Distinct: what the items that were written forbid, in lists whose items must differ and may be anything.

A row of the automaton does not know which items a list has (`items`). Of its tokens these are left out:

    tokens that end an item as one that its list has
    tokens behind which an item can only become one that is there: the last quote or brace of a copy, or `,"b":` where
    nothing else can follow

Both can only be tokens near the end of an item, with which it goes on towards one of its rivals, or that go beyond its
end. These are few (`suspects`), and are tried one by one. Everything else is left alone. Whether something else can be
reached is plain where some text of the item can go on without end. Elsewhere a completion is searched for, byte by
byte, the nearest end first.

An item may come twice if the text can be read so that the list is another one. Then only the readings end in which it
must differ (`without_ends`).

Invariant: a token is left out iff no text without a repeated item (or key) goes on from it. That no list must have more
items than there are is seen to by the compiler.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..._core import fsm as core
from ..._core.fsm import ItemEvent, Mode
from ...errors import ConstraintTooLarge
from ..automaton.automaton import Automaton
from ..masks.masks import Masks
from ..record import record
from ..text.alphabet import Ints
from .item_values import rivals, value_of
from .items import NO_ITEMS, Address, Items, OpenList, Values
from .repeats import Repeats
from .suspects import STEP_BYTES, Suspects
from .written import Written, in_string

MAX_KEPT = 1 << 13
MAX_STEPS = 100_000  # of one search
MAX_NESTING = 256  # brackets that it opens, one within the other
BLANKS = b" \t\n\r"

Event = tuple[int, int, int]
"""What happens, at which byte, and the state before it."""


@record
class Place:
    """Where a text stands that goes on from a cursor's, and what is remembered of it.

    Attributes:
        tried: what is written behind the cursor's text.
        text: what was written before, from an address on.
        now: the address of what is tried.
    """

    state: int
    written: Written | None
    items: Items
    text: Callable[[Address], bytes]
    now: Address
    tried: bytes = b""

    def since(self, begin: Address) -> bytes:
        """What is written from an address on."""
        if begin[0] == self.now[0]:
            return self.tried[begin[1] :]
        return self.text(begin) + self.tried


def first_place(start: int) -> Place:
    """The place at the beginning of a text that is only tried; start: of the automaton."""
    return Place(start, None, NO_ITEMS, lambda begin: b"", (0, 0))


class Distinct:
    """What is forbidden under one automaton whose network has lists of items that must differ.

    Attributes:
        suspects: the tokens that are to be tried.
    """

    def __init__(self, automaton: Automaton, masks: Masks, repeats: Repeats | None) -> None:
        self._automaton = automaton
        self.suspects = Suspects(automaton, masks)
        self._repeats = repeats
        self._roles = automaton.network.roles
        self._vocabulary = automaton.vocabulary
        self._scans: dict[tuple[int, int, bytes], tuple[int, int, tuple[Event, ...]]] = {}
        self._ways: dict[int, list[int]] = {}
        self._to_go: dict[int, int] = {}

    @property
    def num_bytes(self) -> int:
        """Memory of what is kept, roughly."""
        return STEP_BYTES * (len(self._scans) + len(self._ways)) + self.suspects.num_bytes

    # ---------------------------------------------------------------- moving

    def follow(self, place: Place, data: bytes, num_tokens: int) -> tuple[int, Items]:
        """The state and the memory after some bytes; state 0 if they are refused, or repeat an item.

        Args:
            num_tokens: of the text with them; 0: they are only tried.
        """
        items, state, position = place.items, place.state, 0
        lists, depth, mode = items.lists, items.depth, items.mode
        first = place.now[1] + len(place.tried)
        while True:
            target, last_mode, events = self._scan(state, data[position:] if position else data, mode)
            if not target:
                return 0, items
            again = False
            for event, where, before in events:
                where += position
                here = (place.now[0], first + where + 1)
                if event == ItemEvent.LIST_OPENS:
                    depth = depth + 1 if lists is not None else 1
                    lists = OpenList(lists, depth, here, Values(()))
                elif event == ItemEvent.OPENS:
                    depth += 1
                elif event == ItemEvent.CLOSES:
                    depth -= 1
                else:
                    assert lists is not None and lists.depth == depth
                    value = value_of(_text(place, lists.begin, data, where))
                    if value is not None and lists.has(value):
                        lists, state, position, again = lists.below, self._without_ends(before), where, True
                        if not state:
                            return 0, items
                    elif event == ItemEvent.LIST_ENDS:
                        lists, depth = lists.below, depth - 1
                    else:
                        assert value is not None
                        lists = lists.with_item(value, here, is_tried=not num_tokens)
                while lists is not None and lists.depth > depth:
                    lists = lists.below
                if lists is None and not again:
                    state, position, again = (
                        self._automaton.advance_bytes(before, data[where : where + 1]),
                        where + 1,
                        True,
                    )
                if again:
                    mode = Mode.UNKNOWN if lists is None else Mode.OUTSIDE
                    break
            if not again:
                break
        if lists is None:
            depth, last_mode = 0, Mode.UNKNOWN
        lists = self._with_rivals(place, lists, data)
        if lists is items.lists and depth == items.depth and last_mode == items.mode:
            return target, items
        return target, Items(num_tokens, items, lists, depth, last_mode)

    def _with_rivals(self, place: Place, lists: OpenList | None, data: bytes) -> OpenList | None:
        """The lists, each with those of the rivals that its item may still become."""
        around: list[OpenList] = []
        while lists is not None:
            around.append(lists)
            lists = lists.below
        below: OpenList | None = None
        for one in reversed(around):
            left = rivals(_text(place, one.begin, data, len(data)), iter(one.rivals)) if one.rivals else ()
            is_same = below is one.below and len(left) == len(one.rivals)
            below = one if is_same else replace(one, below=below, rivals=left)
        return below

    def _scan(self, state: int, data: bytes, mode: int) -> tuple[int, int, tuple[Event, ...]]:
        """The state behind some bytes, the mode there, and what happens on the way (`scan_items`), kept."""
        same = (state, mode, data)
        found = self._scans.get(same)
        if found is None:
            target, last_mode, events = core.scan_items(self._automaton.core, self._roles, state, data, mode)
            found = target, last_mode, tuple(events)
            if len(self._scans) >= MAX_KEPT:
                self._scans.clear()
            self._scans[same] = found
        return found

    def _without_ends(self, state: int) -> int:
        return core.without_ends(self._automaton.core, self._roles, state)

    def after(self, place: Place, data: bytes) -> Place | None:
        """The place behind some bytes that are tried; None if they are refused, or repeat something."""
        written = place.written
        if self._repeats is not None:
            target, written = self._repeats.read(written, place.state, data, lambda: string_of(place))
            if not target:
                return None
        state, items = self.follow(place, data, 0)
        if not state:
            return None
        self.note(state, items)
        return Place(state, written, items, place.text, place.now, place.tried + data)

    def take(
        self, place: Place, token_id: int, num_tokens: int, typed: Callable[[], bytes]
    ) -> tuple[int, Written | None, Items]:
        """The state and the memories after a token; state 0 if no text without a repeated item, or key, goes on there.

        Args:
            num_tokens: of the text with it.
            typed: what has been written since the last quote that opened a string, the text being in that string.
        """
        data, written = self._vocabulary.tokens[token_id], place.written
        if not data:
            return 0, written, place.items
        if self._repeats is not None:
            target, written, _ = self._repeats.follow(written, place.state, token_id, num_tokens, typed)
            if not target:
                return 0, written, place.items
        target, items = self.follow(place, data, num_tokens)
        if target and items.has_rivals:
            after = Place(target, written, items, place.text, place.now, data)
            target = target if self.is_alive(after) else 0
        if target:
            self.note(target, items)
        return target, written, items

    def allows(self, text: bytes) -> bool:
        """Whether a text that the automaton lets through can be read so that no list has an item twice."""
        if not text:
            return True
        state, _ = self.follow(first_place(self._automaton.start), text, 0)
        return bool(state) and self._automaton.is_accepting(state)

    def quiet_step(self, state: int, token_id: int) -> int:
        """The state after a token that tells nothing of lists and strings; below zero if it may do so (`follow`)."""
        if self._repeats is not None or self._vocabulary.item_tokens.is_structural[token_id]:
            return -1
        return self._automaton.advance(state, token_id)

    def note(self, state: int, items: Items) -> None:
        """Notes for who remembers keys where a reader of JSON stands, since some readings may have ended."""
        if self._repeats is not None and items.mode != Mode.UNKNOWN:
            core.note_mode(self._automaton.core, state, items.mode)

    # ---------------------------------------------------------------- what is left out

    def row(self, place: Place, bits: Ints) -> Ints:
        """The tokens of a row that repeat no item: the row itself, or an array of the caller's own."""
        left = bits
        for token_id in self.suspects.of(place.state, place.items, place.since, bits):
            after = self.after(place, self._vocabulary.tokens[token_id])
            if after is None or not self.is_alive(after):
                left = bits.copy() if left is bits else left
                clear(left, token_id)
        return left

    def items_to_go(self, state: int) -> int:
        """How many further items a shortest completion writes in lists that must have several."""
        if not self._automaton.network.owes_items:
            return 0
        found = self._to_go.get(state)
        if found is None:
            found = core.items_to_go(self._automaton.core, self._roles, state)
            if len(self._to_go) >= MAX_KEPT:
                self._to_go.clear()
            self._to_go[state] = found
        return found

    def is_alive(self, place: Place) -> bool:
        """Whether some text without a repeated item goes on from a place."""
        return self._is_free(place) or self.way_out(place, self._is_free) is not None

    def _is_free(self, place: Place) -> bool:
        """Whether that is plain."""
        return not place.items.has_rivals or self.suspects.is_endless(place.state)

    def way_out(self, place: Place, is_enough: Callable[[Place], bool]) -> tuple[bytes, Place] | None:
        """The bytes to a place that is enough, which repeat nothing, and the place; None if there is none.

        From every place on the way the rest of the way is found.

        Raises:
            ConstraintTooLarge: too many texts come to nothing, or one is nested without end.
        """
        if is_enough(place):
            return b"", place
        path, num_steps = bytearray(), 0
        stack = [(place, iter(self._nearest(place)))]
        while stack:
            here, ways = stack[-1]
            for byte in ways:
                num_steps += 1
                if num_steps > MAX_STEPS:
                    raise ConstraintTooLarge("it takes too long to find an item that was not written before")
                after = self.after(here, bytes((byte,)))
                if after is None:
                    continue
                path.append(byte)
                if is_enough(after):
                    return bytes(path), after
                if after.items.depth > place.items.depth + MAX_NESTING:
                    raise ConstraintTooLarge("an item that was not written before would be nested too deeply")
                stack.append((after, iter(self._nearest(after))))
                break
            else:
                stack.pop()
                if path:
                    path.pop()
        return None

    def _nearest(self, place: Place) -> list[int]:
        """The bytes that may follow, those that are nearest to an end first; no white space where it is not needed."""
        found = self._ways.get(place.state)
        if found is None:
            automaton = self._automaton
            live = np.flatnonzero(automaton.live_bytes(place.state)).tolist()
            costs = {byte: automaton.min_bytes(automaton.advance_bytes(place.state, bytes((byte,)))) for byte in live}
            found = sorted(live, key=lambda byte: (costs[byte], byte >= 0x80 or not chr(byte).isalnum()))
            if len(self._ways) >= MAX_KEPT:
                self._ways.clear()
            self._ways[place.state] = found
        if place.items.mode == Mode.OUTSIDE:
            return [byte for byte in found if byte not in BLANKS] or found
        return found


def _text(place: Place, begin: Address, data: bytes, end: int) -> bytes:
    """What is written from an address on, up to a byte of the data behind a place."""
    inside = begin[1] - place.now[1] - len(place.tried)
    if begin[0] == place.now[0] and inside >= 0:
        return data[inside:end]
    return place.since(begin) + data[:end]


def string_of(place: Place) -> bytes:
    """What is written since the last quote that opened a string, the place being in that string."""
    begin, lists = (0, 0), place.items.lists
    while lists is not None:
        begin, lists = lists.begin, lists.below
    return in_string(place.since(begin), is_all=True) or b""


def clear(bits: Ints, token_id: int) -> None:
    """Takes a token out of a row."""
    bits[token_id >> 5] &= ~np.uint32(1 << (token_id & 31)).astype(np.int32)
