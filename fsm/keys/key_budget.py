"""KeyBudget: how many tokens complete a text in which some keys must not be written again.

`Completions` knows one shortest completion of each state, whatever was written before. It may end a key as one that its
object has already.

    the completion repeats no key        it stands: as many tokens as spell it
    else                                 as many bytes as this text has: it goes on as the shortest completion does, up
                                         to the next key; of the keys that the object does not have it takes the one
                                         from which the end is nearest (`nearest_keys`); and so on

What a key costs is not only its own bytes: where few keys are left, the next one may belong to another value, an object
that owes keys itself. So the text is followed to its end, with what it writes remembered (`ahead`).

Either way a number is a promise, as in `Completions`: from a place with the number n > 0 some token that repeats no key
leads to a place with a number below n. For what is left of either text after its first byte is the text of the place
there, or there is a shorter one: the completion of that place in bytes, which then repeats no key.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..._core import fsm as core
from ..._core.fsm import KeyEvent, Mode
from .. import columns as k
from ..automaton.automaton import Automaton
from ..bounded_map import BoundedMap
from ..masks.completions import Completions
from ..text.alphabet import Ints
from ..text.text_table import TextTable
from .ahead import Ahead, Event, Objects
from .nearest_keys import NearestKeys, NearKey
from .repeats import Repeats
from .written import QUOTE, KeyPlace, Written

PLAIN_CHARACTERS = 93  # printable ASCII characters without quote and backslash
KEY_BYTES, ITEM_BYTES = 5, 3  # of a member, at the least, `"":1,`, and of an item, `"",`
WIDEST = 6  # bytes of a character
MAX_EXTRA = 64
MAX_KEPT = 512  # completions


class _ToKey(NamedTuple):
    """A completion up to where a key begins, or to its end."""

    num_bytes: int
    state: int
    is_in_key: bool
    brackets: tuple[int, ...]


class KeyBudget:
    """The bounds of one automaton whose network has keys to be remembered; `owes`: several may have to be written."""

    def __init__(self, automaton: Automaton, completions: Completions, repeats: Repeats) -> None:
        self._automaton = automaton
        self._completions = completions
        self._repeats = repeats
        self.owes = automaton.network.owes_keys
        self._tables = [automaton.network.texts[index] for index in automaton.network.key_texts]
        self._extras: dict[int, int] = {}
        self._nearest = NearestKeys(automaton, repeats)
        self._to_key: BoundedMap[tuple[int, bool], _ToKey] = BoundedMap(MAX_KEPT)
        self._tails: BoundedMap[tuple[int, Objects], tuple[int, list[bytes]]] = BoundedMap(MAX_KEPT)
        self._kept: BoundedMap[tuple[int, bool], tuple[bytes, list[Event]]] = BoundedMap(MAX_KEPT)

    @property
    def num_bytes(self) -> int:
        """Memory of what is kept."""
        kept = sum(len(text) + 100 * len(events) for text, events in list(self._kept.values()))
        kept += sum(200 + 100 * len(keys) for _, keys in list(self._tails.values()))
        return kept + 200 * len(self._to_key) + self._nearest.num_bytes

    def slack(self, written: Written | None, num_bytes: int) -> int:
        """By how much a completion may be longer than the automaton knows, which knows of no more than `num_bytes`."""
        return self.key_slack(written, num_bytes)

    def key_slack(self, written: Written | None, num_bytes: int) -> int:
        """The same, as far as keys cost it."""
        objects, num_keys, longest = None if written is None else written.objects, _num_written(written), 0
        while objects is not None:
            longest = max(longest, objects.keys.longest)
            objects = objects.below
        most = self._automaton.vocabulary.max_token_len
        one = longest + self._most_bytes + 1
        if not self._repeats.is_endless:  # the next key may be of another kind, with another value
            key_bytes = ITEM_BYTES if self._automaton.network.item_texts else KEY_BYTES
            return most + (num_bytes // key_bytes + 1 if self.owes else 1) * (one + self._most_value)
        if self.owes:
            return one + most + num_bytes * self._extra(num_keys + most + num_bytes)
        if self._is_wide and num_keys + most < PLAIN_CHARACTERS:
            return self._most_bytes + 1
        return one + most

    def is_far(self, written: Written | None, state: int, limit: int) -> bool:
        """Whether `limit` tokens suffice for certain, whatever key the text is in; cheaper than `bound`."""
        min_bytes = self._automaton.min_bytes(state)
        return min_bytes + self.slack(written, min_bytes) <= limit

    def bound(self, place: KeyPlace) -> int:
        """A number of tokens that suffices to complete the text."""
        return self._bound(place, k.NEVER)[0]

    def _bound(self, place: KeyPlace, limit: int) -> tuple[int, Iterable[bytes]]:
        """`bound`, and the keys of the text that it counts, without the one in which the place is.

        Where none of them can be a key that comes twice, there are none. Beyond the limit, some number beyond it.
        """
        written, state, begun = place
        completions = self._completions
        num_keys = completions.num_keys(state)
        is_first = written is None or written.objects is None
        if not num_keys or (is_first and (num_keys == 1 or not self.owes)):
            return completions.bound(state), ()
        innermost = None if written is None else written.innermost
        if (innermost is None or not innermost.beginning_with(begun)) and not completions.later_keys(state):
            return completions.bound(state), ()
        keys = self._shortest(place)
        return self._nearest_text(place, limit) if keys is None else (completions.bound(state), keys)

    def row(self, place: KeyPlace, left: Ints, limit: int, *, is_near: bool = True) -> Ints:
        """The tokens after which `limit` further tokens suffice.

        Args:
            left: those after which they would, were no key forbidden, and which repeat no key.
            is_near: whether keys may cost more than is left; else only items may.
        """
        _, state, begun = place
        targets = self._automaton.targets(state, left)
        cleared = np.zeros(32 * len(left), np.bool_)
        alone = self._tells(place, is_near=is_near)[: len(targets)] & (targets != 0)
        by_state = targets.copy() if is_near else np.zeros_like(targets)
        by_state[alone] = 0
        to_differ: set[bytes] = set()  # keys further on
        for target, token_id in zip(*np.unique(by_state, return_index=True), strict=True):
            if target:
                after, _, _ = self._after(place, int(token_id))  # notes where a reader of JSON stands after it
                number, keys = self._bound((after, int(target), QUOTE), limit)  # a quote: as no key begins
                to_differ.update(keys)
                if number > limit:
                    cleared[: len(targets)] |= by_state == target
        if self._repeats.place(state) == k.IN_KEY and is_near:
            alone[list(self._going_along(to_differ, begun))] = True
        for token_id in np.flatnonzero(alone & (targets != 0)).tolist():
            cleared[token_id] = self._bound_after(place, token_id, limit) > limit
        return left & ~np.packbits(cleared, bitorder="little").view(np.int32) if cleared.any() else left

    def _tells(self, place: KeyPlace, *, is_near: bool) -> npt.NDArray[np.bool_]:
        """By token: whether there is more to know of the place after it than its state; see `row`."""
        written, state, begun = place
        if not is_near:
            return np.zeros(self._automaton.vocabulary.size, np.bool_)
        is_in_key = self._repeats.place(state) == k.IN_KEY
        is_in_string = is_in_key or core.is_in_string(self._automaton, state)
        found: npt.NDArray[np.bool_] = self._repeats.tokens.structure > is_in_string  # brackets are characters there
        innermost = None if written is None else written.innermost
        if is_in_key and innermost is not None:
            texts = [text[:-1] for text in innermost.beginning_with(begun)]
            found[list(self._going_along(texts, begun))] = True
        return found

    def _going_along(self, texts: Iterable[bytes], begun: bytes) -> Iterator[int]:
        """The tokens with which a key that has begun goes on as one of some keys."""
        vocabulary = self._automaton.vocabulary
        for text in texts:
            if not text.startswith(begun):
                continue
            for end in range(len(begun) + 1, min(len(text), len(begun) + vocabulary.max_token_len) + 1):
                token_id = vocabulary.ids.get(text[len(begun) : end], -1)
                while token_id >= 0:
                    yield token_id
                    token_id = int(vocabulary.trie.next_same[token_id])

    def _bound_after(self, place: KeyPlace, token_id: int, limit: int) -> int:
        """The bound after a token that repeats no key."""
        return self._bound(self._after(place, token_id), limit)[0]

    def _after(self, place: KeyPlace, token_id: int) -> KeyPlace:
        """The place after a token that repeats no key."""
        written, state, begun = place
        target, after, text = self._repeats.follow(written, state, token_id, 0, lambda: begun)
        return after, target, text

    # ---------------------------------------------------------------- texts followed to their ends

    def _shortest(self, place: KeyPlace) -> list[bytes] | None:
        """The keys of the completion of the state, without the one in which the place is; None if one comes twice."""
        written, state, begun = place
        ahead, keys = Ahead(written), list[bytes]()
        text, events = self._completion(state, ahead.has_keys)
        for kind, first, last in events:
            if kind in (KeyEvent.OPENS, KeyEvent.CLOSES):
                ahead.move(kind)
                continue
            key = text[first:last] if first >= 0 else begun + text[:last]
            if ahead.has(key):
                return None
            ahead.add(key)
            if first >= 0:
                keys.append(key)
        return keys

    def _completion(self, state: int, has_keys: bool) -> tuple[bytes, list[Event]]:
        """The completion of a state, and the keys and brackets in it."""
        found = self._kept.get((state, has_keys))
        if found is None:
            text = core.nearest_bytes(self._automaton, state, False)
            events = core.follow_keys(self._automaton, state, text, has_keys)[2]
            found = self._kept.keep((state, has_keys), (text, events))
        return found

    def _nearest_text(self, place: KeyPlace, limit: int) -> tuple[int, Iterable[bytes]]:
        """The number of bytes of the text that takes the nearest keys which do not come twice, and these keys.

        They are without the one in which the place is. Beyond the limit, some number beyond it, and some of the keys.
        NEVER if there are none.
        """
        written, state, begun = place
        ahead = Ahead(written)
        if self._repeats.place(state) == k.IN_KEY:
            num_bytes, keys = self._from_key(ahead, state, begun, limit)
            return num_bytes, keys[1:]
        after = self._up_to_key(state, ahead.has_keys)
        for kind in after.brackets:
            ahead.move(kind)
        if not after.is_in_key:
            return after.num_bytes + self._automaton.min_bytes(after.state), ()
        same = after.state, ahead.objects
        found = self._tails.get(same)  # values are long: the next key is the same after each of their tokens
        if found is None:
            found = self._tails.keep(same, self._from_key(ahead, after.state, b"", k.NEVER))
        return after.num_bytes + found[0], found[1]

    def _from_key(self, ahead: Ahead, state: int, begun: bytes, limit: int) -> tuple[int, list[bytes]]:
        """`_nearest_text` from inside a key, which is the first one."""
        keys, num_bytes = list[bytes](), 0
        while True:
            near = self._nearest_key(ahead, state, begun)
            if near is None:
                return k.NEVER, keys
            if num_bytes + near.num_bytes > limit:
                return num_bytes + near.num_bytes, keys
            num_bytes += len(near.rest) + 1
            keys.append(begun + near.rest)
            if near.is_remembered:
                ahead.add(keys[-1])
            after = self._up_to_key(near.state, ahead.has_keys)
            for kind in after.brackets:
                ahead.move(kind)
            num_bytes, state, begun = num_bytes + after.num_bytes, after.state, b""
            if not after.is_in_key:
                return num_bytes + self._automaton.min_bytes(state), keys

    def _up_to_key(self, state: int, has_keys: bool) -> _ToKey:
        """The completion of a state outside keys, up to the next one."""
        found = self._to_key.get((state, has_keys))
        if found is None:
            text = core.nearest_bytes(self._automaton, state, True)
            target, _, events = core.follow_keys(self._automaton, state, text, has_keys)
            is_in_key = self._repeats.place(target) == k.IN_KEY
            brackets = tuple(kind for kind, _, _ in events)
            found = self._to_key.keep((state, has_keys), _ToKey(len(text), target, is_in_key, brackets))
        return found

    def _nearest_key(self, ahead: Ahead, state: int, begun: bytes) -> NearKey | None:
        """Of the keys that the innermost object does not have, the one from which the end is nearest."""
        best: NearKey | None = None
        index = 0
        while (near := self._nearest.get(state, index)) is not None:
            if best is not None and best.num_bytes < near.num_bytes:
                return best
            if not ahead.has(begun + near.rest):
                return near
            again = self._again(state, near.rest)
            if again is not None and (best is None or again.num_bytes < best.num_bytes):
                best = again
            index += 1
        return best

    def _again(self, state: int, rest: bytes) -> NearKey | None:
        """An item that may come twice, since the text can be read in another way; None if it must not."""
        others = self._repeats.others(state, rest)
        after = self._automaton.advance_bytes(others, QUOTE) if others else 0
        if not after:
            return None
        core.note_mode(self._automaton, after, Mode.OUTSIDE)
        return NearKey(len(rest) + 1 + self._automaton.min_bytes(after), rest, after, is_remembered=True)

    def _extra(self, num_keys: int) -> int:
        """By how many bytes a key that is none of `num_keys` others may be longer than a shortest one."""
        num_bits = num_keys.bit_length()
        found = self._extras.get(num_bits)
        if found is None:
            found = self._extras[num_bits] = max(_extra_bytes(table, 1 << num_bits) for table in self._tables)
        return found

    @cached_property
    def _most_value(self) -> int:
        """No member of an object has more bytes after its key, of those that a shortest text has."""
        costs = self._automaton.network.cost
        return int(costs[costs < k.NEVER].max(initial=0))

    @cached_property
    def _is_wide(self) -> bool:
        """Whether a key may go on with any character, whatever it has begun with."""
        return all(map(_is_wide, self._tables))

    @cached_property
    def _most_bytes(self) -> int:
        """No beginning of a key is further away from an end."""
        return max(table.max_bytes for table in self._tables) + WIDEST


def _num_written(written: Written | None) -> int:
    """How many keys are remembered."""
    objects, count = None if written is None else written.objects, 0
    while objects is not None:
        count += objects.count
        objects = objects.below
    return count


def _text_states(table: TextTable) -> Ints:
    """The states inside the quotes."""
    start, is_text = table.core.start // table.num_nodes, table.arrays[1] == 0
    is_text[[0, start]] = False
    return np.flatnonzero(is_text).astype(np.int32)


def _is_wide(table: TextTable) -> bool:
    """Whether any character may follow anywhere inside the quotes; nothing else has no arrays: any string but some."""
    return not table.arrays or bool(table.arrays[0][_text_states(table), 1:-1].all())


def _extra_bytes(table: TextTable, num_keys: int) -> int:
    """By how many bytes a key that is none of `num_keys` others may be longer than a shortest one."""
    shortest, extra = table.min_bytes - 2, 0
    if not table.arrays:  # any string but some
        while PLAIN_CHARACTERS ** (shortest + extra) <= num_keys + table.num_states:
            extra += 1
        return extra
    states, following = _text_states(table), table.arrays[0]
    quote = following.shape[1] - 1
    start = int(following[table.core.start // table.num_nodes, quote])
    # by class, how many characters of so few bytes it has: one byte if any of them is ASCII
    num_ascii, byte_costs = table.arrays[8], table.arrays[6][0]
    steps = [(i, max(int(num_ascii[i]), 1), 1 if num_ascii[i] else int(byte_costs[i])) for i in range(1, quote)]
    ends, found = following[:, quote] != 0, 0
    # where characters are counted, this number of bytes is enough of them, and not too many
    least, most = (0, k.NEVER) if table.counted is None else (shortest, table.counted.maximum or k.NEVER)
    ways: defaultdict[int, Counter[int]] = defaultdict(Counter)  # by number of bytes: how many texts lead to a state
    ways[0][start], num_bytes = 1, 0
    while ways and num_bytes <= min(shortest + MAX_EXTRA * (num_keys + 1), most):
        here = ways.pop(num_bytes, Counter())
        if num_bytes >= least:
            found += sum(count for state, count in here.items() if ends[state])
        if found > num_keys:
            return max(num_bytes - shortest, 0)
        for state, count in here.items():
            for index, num_characters, width in steps:
                target = int(following[state, index])
                if target:
                    after = ways[num_bytes + width]
                    after[target] = min(after[target] + count * num_characters, num_keys + 1)
        num_bytes += 1
    return WIDEST * len(states) + table.max_bytes
