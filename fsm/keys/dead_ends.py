"""DeadEnds: places of a text from which the items that have begun can only become values that their lists have.

A place is a state of the automaton and what is remembered (`written`). As soon as no item can become a value that its
list has, some text goes on: so a search leaves the few texts that may, and is nearly always over after a byte or two.
Only where what is left is finite (`{"a":1,"b":` with a boolean to come) it looks at all of it.

Of the tokens only those are looked at that go on as such a value does: byte by byte along the trie, up to the first
byte after which there is a dead end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ...errors import ConstraintTooLarge
from ..automaton.automaton import Automaton
from ..bounded_map import BoundedMap
from ..vocabulary.trie import Trie
from .open_lists import OpenList, may_repeat, next_bytes
from .values import DIGITS
from .written import KeyPlace

MAX_PLACES = 2_000  # a second
MAX_STEPS = 16  # digits after which numbers that have no end are all alike
NO_NODE = -1

Read = Callable[[KeyPlace, bytes], KeyPlace]
"""The place after some bytes, its state 0 if they are refused; dead ends are not."""


class DeadEnds:
    """The dead ends of one automaton.

    Args:
        read: of the automaton.
        known: which states lead to themselves again; receives more.
    """

    def __init__(self, automaton: Automaton, read: Read, known: BoundedMap[tuple[int, bytes], bool]) -> None:
        self._automaton = automaton
        self._read = read
        self._known = known

    def is_dead(self, place: KeyPlace) -> bool:
        """Whether nothing but repetitions can be written from a place."""
        if self._is_endless(place[1]):
            return False
        pending, seen = [place], set[object]()
        for here in pending:
            if not _may_repeat(here):
                return False
            if len(pending) > MAX_PLACES:
                raise ConstraintTooLarge("too many ways to write an item again; list the values")
            for byte in np.flatnonzero(self._automaton.live_bytes(here[1])).tolist():
                after = self._read(here, bytes((byte,)))
                if not after[1]:
                    continue
                if not _may_repeat(after):
                    return False
                same = signature(after)
                if same not in seen:
                    seen.add(same)
                    pending.append(after)
        return True

    def _is_endless(self, state: int) -> bool:
        """Whether a number or a string in which the state is can go on as endlessly many others, for certain."""
        return self._repeats_itself(state, b"1") or self._repeats_itself(state, b"a")

    def _has_digits_alone(self, state: int, node: int) -> bool:
        """Whether nothing below a node of the trie leads away from a state in a number that goes on endlessly."""
        trie = self._automaton.vocabulary.trie
        below = trie.data[node + 1 : int(trie.ends[node])]
        is_digit = (below >= DIGITS[0]) & (below <= DIGITS[-1])
        return bool(is_digit.all()) and self._repeats_itself(state, DIGITS)

    def _repeats_itself(self, state: int, some: bytes) -> bool:
        """Whether some bytes lead to one state, and they on, and in few steps to the same state again.

        So it is not in the power of a number, which has an end.
        """
        known = self._known.get((state, some))
        if known is not None:
            return known
        here, found = state, False
        for _ in range(MAX_STEPS):
            after = {self._automaton.advance_bytes(here, bytes((byte,))) for byte in some}
            if len(after) > 1 or 0 in after or (found := after == {here}):
                break
            here = after.pop()
        return self._known.keep((state, some), found)

    def walk(self, place: KeyPlace, *, skips_digits: bool = False) -> Iterator[tuple[bytes, int, bool]]:
        """The beginnings of tokens that go on as a value that a list has: bytes, token (or -1), whether they are dead.

        None goes on from one that is dead. The place itself is not.

        Args:
            skips_digits: without tokens that but add digits to a number that may have any; none of them is dead.
        """
        trie = self._automaton.vocabulary.trie
        pending = [(b"", NO_NODE, place)]
        while pending:
            path, node, here = pending.pop()
            live = self._automaton.live_bytes(here[1])
            is_forced = np.count_nonzero(live) == 1  # what must come leads on, since the place is not dead
            for byte in next_bytes(_lists(here)):
                child = _child(trie, node, byte) if live[byte] else NO_NODE
                if child == NO_NODE:
                    continue
                after = self._read(here, bytes((byte,)))
                is_dead = not is_forced and (not after[1] or self.is_dead(after))
                yield path + bytes((byte,)), int(trie.tokens[child]), is_dead
                if skips_digits and byte in DIGITS and self._has_digits_alone(after[1], child):
                    continue
                if not is_dead and _may_repeat(after):
                    pending.append((path + bytes((byte,)), child, after))


def _lists(place: KeyPlace) -> OpenList | None:
    return None if place[0] is None else place[0].lists


def _may_repeat(place: KeyPlace) -> bool:
    return may_repeat(_lists(place))


def signature(place: KeyPlace) -> object:
    """Equal for places with the same future, as far as it is about the items that have begun."""
    written, state, begun = place
    if written is None:
        return state, begun
    chain = [] if written.lists is None else written.lists.chain()
    return state, begun, written.objects, written.depth, *((one.values, one.places, one.depth) for one in chain)


def _child(trie: Trie, node: int, byte: int) -> int:
    """The node below one with a byte, NO_NODE if there is none; below NO_NODE: the roots."""
    if node == NO_NODE:
        return int(trie.roots[byte])
    child, end = node + 1, int(trie.ends[node])
    while child < end and trie.data[child] != byte:
        child = int(trie.ends[child])
    return child if child < end else NO_NODE
