"""DeadEnds: places of a text from which the items that have begun can only become values that their lists have.

A place is a state of the automaton and what is remembered (`written`). As soon as no item can become a value that its
list has, some text goes on: so a search leaves the few texts that may, and is nearly always over after a byte or two.
Only where what is left is finite (`{"a":1,"b":` with a boolean to come) it looks at all of it.

Of the tokens only those are looked at that go on as such a value does: byte by byte along the trie, up to the first
byte after which there is a dead end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from ...errors import ConstraintTooLarge
from ..automaton.automaton import Automaton
from ..vocabulary.trie import Trie
from .open_lists import OpenList, may_repeat, next_bytes
from .values import GONE, Place, following, step
from .written import KeyPlace

MAX_PLACES = 2_000  # a second
NO_NODE = -1

Read = Callable[[KeyPlace, bytes], KeyPlace]
"""The place after some bytes, its state 0 if they are refused; dead ends are not."""


class DeadEnds:
    """The dead ends of one automaton."""

    def __init__(self, automaton: Automaton, read: Read) -> None:
        self._automaton = automaton
        self._read = read

    def is_dead(self, place: KeyPlace) -> bool:
        """Whether nothing but repetitions can be written from a place."""
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

    def walk(self, place: KeyPlace) -> Iterator[tuple[bytes, int, bool]]:
        """The beginnings of tokens that go on as a value that a list has: bytes, token (or -1), whether they are dead.

        None goes on from one that is dead. The place itself is not.
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
                if not is_dead and _may_repeat(after):
                    pending.append((path + bytes((byte,)), child, after))

    def along(self, state: int, places: Iterable[frozenset[Place]]) -> Iterator[int]:
        """The tokens within which a value goes on from one of some places in it; -1 for beginnings of tokens."""
        trie = self._automaton.vocabulary.trie
        pending = [(NO_NODE, state, frozenset(place for some in places for place in some))]
        while pending:
            node, state, here = pending.pop()
            live = self._automaton.live_bytes(state)
            for byte in {byte for place in here for byte in following(place)}:
                child = _child(trie, node, byte) if live[byte] else NO_NODE
                after = frozenset(moved for place in here if live[byte] and (moved := step(place, byte)) is not GONE)
                if child != NO_NODE and after:
                    yield int(trie.tokens[child])
                    pending.append((child, self._automaton.advance_bytes(state, bytes((byte,))), after))


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
