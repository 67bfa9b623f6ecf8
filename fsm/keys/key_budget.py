"""KeyBudget: how many tokens complete a text in which some keys must not be written again.

`Completions` knows one shortest completion of each state, whatever was written before. It may end a key as one that its
object has already; then the text needs a character more, or a few.

    far from the end of the budget       that makes no difference
    the completion writes no key that    it stands
    may be there already
    else                                 as many bytes as it has, and for each of its keys as many more as there have to
                                         be for a key that is not written yet; from inside a key that has begun like one
                                         of them, to the nearest byte at which it can be another one

Either way a number is a promise, as in `Completions`: from a place with the number n > 0 some token that repeats no key
leads to a place with a number below n.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..._core import fsm as core
from .. import columns as k
from ..automaton.automaton import Automaton
from ..masks.completions import Completions
from ..text.alphabet import Ints
from ..text.text_table import TextTable
from .repeats import Repeats
from .written import QUOTE, OpenObject, Written

PLAIN_CHARACTERS = 93  # printable ASCII characters without quote and backslash
WIDEST = 6  # bytes of a character
MAX_EXTRA = 64
MAX_WAYS = 4_096

KeyPlace = tuple[Written | None, int, bytes]
"""Memory, state, and what is written of the key that the state stands in."""


class KeyBudget:
    """The bounds of one automaton whose network has keys to be remembered; `owes`: several may have to be written."""

    def __init__(self, automaton: Automaton, completions: Completions, repeats: Repeats) -> None:
        self._automaton = automaton
        self._completions = completions
        self._repeats = repeats
        self.owes = automaton.network.owes_keys
        self._tables = [automaton.network.texts[index] for index in automaton.network.key_texts]
        self._extras: dict[int, int] = {}
        self._ways_on: dict[tuple[int, int], list[tuple[int, bytes]]] = {}

    @property
    def num_bytes(self) -> int:
        """Memory of what is kept."""
        return 500 * len(self._ways_on)

    def slack(self, written: Written | None, num_bytes: int) -> int:
        """By how much a completion may be longer than the automaton knows, which knows of no more than `num_bytes`."""
        objects, num_keys, longest = None if written is None else written.objects, _num_written(written), 0
        while objects is not None:
            longest = max(longest, objects.keys.longest)
            objects = objects.below
        most = self._automaton.vocabulary.max_token_len
        if self.owes:
            return self._most_bytes + longest + most + num_bytes * self._extra(num_keys + most + num_bytes)
        if self._is_wide and num_keys + most < PLAIN_CHARACTERS:
            return self._most_bytes + 1
        return longest + most + self._most_bytes + 1

    def is_far(self, written: Written | None, state: int, limit: int) -> bool:
        """Whether `limit` tokens suffice for certain, whatever key the text is in; cheaper than `bound`."""
        min_bytes = self._automaton.min_bytes(state)
        return min_bytes + self.slack(written, min_bytes) <= limit

    def bound(self, place: KeyPlace) -> int:
        """A number of tokens that suffices to complete the text."""
        written, state, begun = place
        num_keys, num_later = self._completions.num_keys(state), self._completions.later_keys(state)
        if not num_keys or (num_keys == 1 and (written is None or written.objects is None)):
            return self._completions.bound(state)
        innermost = None if written is None else written.innermost
        if not num_later and (innermost is None or not innermost.beginning_with(begun)):
            return self._completions.bound(state)
        return self._by_bytes(place, num_later)

    def row(self, place: KeyPlace, left: Ints, limit: int) -> Ints:
        """The tokens after which `limit` further tokens suffice.

        Args:
            left: those after which they would, were no key forbidden, and which repeat no key.
        """
        written, state, _ = place
        targets = self._automaton.targets(state, left)
        cleared = np.zeros(32 * len(left), np.bool_)
        alone = np.flatnonzero(self._tells(place)[: len(targets)] & (targets != 0))
        by_state = targets.copy()
        by_state[alone] = 0
        for target in np.unique(by_state[by_state != 0]).tolist():
            if self.bound((written, target, QUOTE)) > limit:  # a quote: as no key begins
                cleared[: len(targets)] |= by_state == target
        for token_id in alone.tolist():
            cleared[token_id] = self.bound(self._after(place, token_id)) > limit
        return left & ~np.packbits(cleared, bitorder="little").view(np.int32) if cleared.any() else left

    def _tells(self, place: KeyPlace) -> npt.NDArray[np.bool_]:
        """By token: whether there is more to know of the place after it than its state."""
        written, state, begun = place
        is_in_key = self._repeats.place(state) == k.IN_KEY
        is_in_string = is_in_key or core.is_in_string(self._automaton.core, state)
        found: npt.NDArray[np.bool_] = self._repeats.tokens.structure > is_in_string  # brackets are characters there
        innermost = None if written is None else written.innermost
        if is_in_key and innermost is not None:
            found[list(self._going_along(innermost, begun))] = True
        return found

    def _going_along(self, innermost: OpenObject, begun: bytes) -> Iterator[int]:
        """The tokens with which a key that has begun goes on as a key that the object has."""
        vocabulary = self._automaton.vocabulary
        for text in innermost.beginning_with(begun):
            for end in range(len(begun) + 1, len(text)):
                token_id = vocabulary.ids.get(text[len(begun) : end], -1)
                while token_id >= 0:
                    yield token_id
                    token_id = int(vocabulary.trie.next_same[token_id])

    def _after(self, place: KeyPlace, token_id: int) -> KeyPlace:
        """The place after a token that repeats no key."""
        written, state, begun = place
        target, after, text = self._repeats.follow(written, state, token_id, 0, lambda: begun)
        return after, target, text

    # ---------------------------------------------------------------- byte by byte

    def _by_bytes(self, place: KeyPlace, num_later: int) -> int:
        """A number of bytes that suffices."""
        written, state, begun = place
        innermost = None if written is None else written.innermost
        is_in_key = self._repeats.place(state) == k.IN_KEY
        extra = self._extra(num_later + is_in_key + _num_written(written))
        texts = innermost.beginning_with(begun) if is_in_key and innermost is not None else []
        if not texts:
            return self._automaton.min_bytes(state) + extra * num_later
        best, pending = k.NEVER, deque([(state, texts, 1)])  # the nearest first
        while pending and pending[0][2] < best:
            here, below, num_bytes = pending.popleft()
            groups: dict[int, list[bytes]] = {}
            for text in below:
                groups.setdefault(text[len(begun) + num_bytes - 1], []).append(text)
            best = min(best, num_bytes + self._least_except(here, groups, extra))
            for byte, group in groups.items():
                if any(len(text) == len(begun) + num_bytes for text in group):  # an item that need not differ?
                    after = self._automaton.advance_bytes(self._repeats.others(here, b""), QUOTE)
                    best = min(best, num_bytes + self._least_bytes(after, extra))
                elif after := self._automaton.advance_bytes(here, bytes([byte])):
                    pending.append((after, group, num_bytes + 1))
        return best

    def _least_except(self, state: int, groups: Collection[int], extra: int) -> int:
        """The least number of bytes that suffice after some byte that is none of these."""
        same = (state, extra)
        known = self._ways_on.get(same)
        if known is None:
            by_number: dict[int, list[int]] = {}
            for byte in np.flatnonzero(self._automaton.live_bytes(state)).tolist():
                after = self._automaton.advance_bytes(state, bytes([byte]))
                by_number.setdefault(self._least_bytes(after, extra), []).append(byte)
            if len(self._ways_on) >= MAX_WAYS:
                self._ways_on.clear()
            known = self._ways_on[same] = [(number, bytes(found)) for number, found in sorted(by_number.items())]
        return next((number for number, found in known if any(byte not in groups for byte in found)), k.NEVER)

    def _least_bytes(self, state: int, extra: int) -> int:
        """A number of bytes that suffices from a state, where no key has begun as another that is there."""
        if not state:
            return k.NEVER
        return self._automaton.min_bytes(state) + extra * self._completions.later_keys(state)

    def _extra(self, num_keys: int) -> int:
        """By how many bytes a key that is none of `num_keys` others may be longer than a shortest one."""
        num_bits = num_keys.bit_length()
        found = self._extras.get(num_bits)
        if found is None:
            found = self._extras[num_bits] = max(_extra_bytes(table, 1 << num_bits) for table in self._tables)
        return found

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
