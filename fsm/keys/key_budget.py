"""KeyBudget: how many tokens complete a text in which some keys or items must not be written again.

`Completions` knows one shortest completion of each state, whatever was written before. It may end a key as one that its
object has already, or an item as one that its list has.

    the completion repeats nothing       it stands: as many tokens as spell it
    else                                 as many bytes as this text has: it goes on to the nearest place at which a key
                                         or an item ends, or a list opens, that is no repetition and no dead end
                                         (`dead_ends`), and from there in the same way

What a key costs is not only its own bytes: where few keys are left, the next one may belong to another value, an object
that owes keys itself. So the text is followed to its end, with what it writes remembered. Lists that must have several
items of any kind are not compiled, so that a shortest completion ends each list after the item that has begun: what is
looked for is seldom further away than one more digit.

Places are looked for best-first over bytes, guided by the number of bytes that the automaton knows to be missing. That
number is exact while nothing is remembered, so nearly every step leads on. Of two places that are equally near the end
of the text the first by their bytes is taken; so it is taken again after each byte that leads there.

Either way a number is a promise, as in `Completions`: from a place with the number n > 0 some token that repeats
nothing leads to a place with a number below n. For what is left of either text after its first byte is the text of the
place there, or there is a shorter one: the completion of that place in bytes, which then repeats nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from functools import cached_property
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

from ..._core import fsm as core
from ..._core.fsm import KeyEvent
from .. import columns as k
from ..automaton.automaton import Automaton
from ..bounded_map import BoundedMap
from ..masks.completions import Completions
from ..text.alphabet import Ints
from .dead_ends import remembered, signature
from .open_lists import may_repeat
from .repeats import HAS_QUOTE, Repeats
from .written import QUOTE, KeyPlace, Written

PLAIN_CHARACTERS = 93  # printable ASCII characters without quote and backslash
KEY_BYTES, ITEM_BYTES = 5, 3  # of a member, at the least, `"":1,`, and of an item, `"",`
WIDEST = 6  # bytes of a character
FOLLOW_WORK = 5_000  # for a text that is followed to its end, as an allowance counts it (`Automaton.allow`)
MAX_TEXTS = 512  # completions of states, which may be long
MAX_KEPT = 1 << 14

Step = tuple[int, bytes, int, int]
"""Bytes of the whole text through it, the end of a key as far as it is found, the state before its last byte, and the
index of that byte."""


class KeyBudget:
    """The bounds of one automaton whose network has keys or items to be remembered.

    What was followed is kept, and each text takes from the allowance: so a row may be made in parts.
    `owes`: several keys may have to be written.
    """

    def __init__(self, automaton: Automaton, completions: Completions, repeats: Repeats) -> None:
        self._automaton = automaton
        self._completions = completions
        self._repeats = repeats
        self.owes = automaton.network.owes_keys
        self._tables = [automaton.network.texts[index] for index in automaton.network.key_texts]
        self._nearest: BoundedMap[int, bytes] = BoundedMap(MAX_TEXTS)  # the completions of states
        self._to_key: BoundedMap[int, bytes] = BoundedMap(MAX_TEXTS)  # up to the next key
        self._following: BoundedMap[int, list[tuple[int, int]]] = BoundedMap(MAX_TEXTS)
        self._ends: BoundedMap[int, tuple[list[bytes], list[Step]]] = BoundedMap(MAX_TEXTS)
        self._lock = threading.Lock()  # one search at a time
        # by the place of a row and a token: the limit up to which the text was followed, and what was found
        self._followed: BoundedMap[object, tuple[int, int]] = BoundedMap(MAX_KEPT)

    @property
    def num_bytes(self) -> int:
        """Memory of what is kept, roughly."""
        found = 150 * sum(map(len, list(self._following.values()))) + 200 * len(self._followed)
        found += 150 * sum(len(texts) + len(pending) for texts, pending in list(self._ends.values()))
        return found + sum(sum(map(len, list(texts.values()))) for texts in (self._nearest, self._to_key))

    # ---------------------------------------------------------------- bounds that take no search

    def slack(self, written: Written | None, num_bytes: int) -> int:
        """By how much a completion may be longer than the automaton knows, which knows of no more than `num_bytes`.

        To differ from n others an item goes on n times: by a member, an item, a part of a text.
        """
        if not self._repeats.has_lists:
            return self.key_slack(written, num_bytes)
        lists = [] if written is None or written.lists is None else written.lists.chain()
        count = self._most_commas + sum(len(one.values.by_text) for one in lists)
        most = self._automaton.vocabulary.max_token_len
        return self.key_slack(written, num_bytes) + most + (len(lists) + 1) * (count + 2) * self._most_further

    def key_slack(self, written: Written | None, num_bytes: int) -> int:
        """The same, as far as keys cost it.

        Each goes along the longest that is there, or that comes before it, to another end; where any character may
        follow, a few of them distinguish it from all others.
        """
        if not self._tables:
            return 0
        objects, num_keys, longest = None if written is None else written.objects, 0, 0
        while objects is not None:
            num_keys += objects.count
            longest = max(longest, objects.keys.longest)
            objects = objects.below
        most, count = self._automaton.vocabulary.max_token_len, 1
        if self.owes:
            count += num_bytes // (ITEM_BYTES if self._automaton.network.item_texts else KEY_BYTES)
        if self._repeats.is_endless and self._is_wide:
            num_others, num_more = num_keys + most + (num_bytes if self.owes else 0), 1
            while PLAIN_CHARACTERS**num_more <= num_others:  # so many texts there are of so many characters
                num_more += 1
            return count * (self._most_bytes + num_more) + (most if self.owes else 0)
        one = longest + self._most_bytes + 1
        if not self._repeats.is_endless:  # the next key may be of another kind, with another value
            one += self._most_value
        return most + one if count == 1 else most + count * (one + most + count * (self._most_bytes + 1))

    @cached_property
    def _most_value(self) -> int:
        """No member of an object has more bytes after its key, of those that a shortest text has."""
        costs = self._automaton.network.cost
        return int(costs[costs < k.NEVER].max(initial=0))

    @cached_property
    def _is_wide(self) -> bool:
        """Whether a key may go on with any character, whatever it has begun with."""
        return all(table.is_wide for table in self._tables)

    @cached_property
    def _most_bytes(self) -> int:
        """No beginning of a key is further away from an end."""
        return max(table.max_bytes for table in self._tables) + WIDEST

    @cached_property
    def _most_further(self) -> int:
        """No member, item, or way through a text to another end has more bytes, of those that a shortest text has."""
        texts = max((table.max_bytes for table in self._automaton.network.texts), default=0)
        return self._most_value + ITEM_BYTES + texts + WIDEST

    @cached_property
    def _most_commas(self) -> int:
        """No token ends more items."""
        tokens, found = self._automaton.vocabulary.tokens, self._repeats.tokens.items
        return max((tokens[token_id].count(b",") for token_id in found), default=0) + 1

    def is_far(self, written: Written | None, state: int, limit: int) -> bool:
        """Whether `limit` tokens suffice for certain, whatever key the text is in; cheaper than `bound`."""
        min_bytes = self._automaton.min_bytes(state)
        return min_bytes + self.slack(written, min_bytes) <= limit

    # ---------------------------------------------------------------- texts followed to their ends

    def bound(self, place: KeyPlace) -> int:
        """A number of tokens that suffices to complete the text."""
        return self._bound(place, k.NEVER)[0]

    def _bound(self, place: KeyPlace, limit: int) -> tuple[int, list[bytes]]:
        """`bound`, and the keys of the text that it counts, without the one in which the place is.

        Where none of them can be a key that comes twice, there are none. Beyond the limit, some number beyond it.
        NEVER if there is no such text.
        """
        completions = self._completions
        if self._repeats_nothing(place):
            return completions.bound(place[1]), []
        num_bytes, keys = 0, list[bytes]()
        while True:
            text = self._completion(place[1])
            _, end, _ = self._repeats.read_on(place, text)
            if end and self._automaton.is_accepting(end):
                keys += self._keys_in(place[1], text)
                return num_bytes + len(text) if num_bytes else completions.bound(place[1]), keys
            more, after = self._nearest_end(place)
            if after is None:
                return k.NEVER, keys
            keys += self._keys_in(place[1], more)
            num_bytes, place = num_bytes + len(more), after
            least = num_bytes + self._automaton.min_bytes(place[1])
            if least > limit:
                return least, keys

    def _repeats_nothing(self, place: KeyPlace) -> bool:
        """Whether it is known at once that the shortest completion repeats nothing."""
        if self._repeats.has_lists:
            return False
        written, state, begun = place
        num_keys = self._completions.num_keys(state)
        is_first = written is None or written.objects is None
        if not num_keys or (is_first and (num_keys == 1 or not self.owes)):
            return True
        innermost = None if written is None else written.innermost
        return (innermost is None or not innermost.beginning_with(begun)) and not self._completions.later_keys(state)

    def _completion(self, state: int) -> bytes:
        """The shortest completion of a state."""
        found = self._nearest.get(state)
        return self._nearest.keep(state, core.nearest_bytes(self._automaton, state, False)) if found is None else found

    def _keys_in(self, state: int, text: bytes) -> list[bytes]:
        """The keys in a text that goes on from a state, and the strings that must differ; none that has begun."""
        events = core.follow_keys(self._automaton, state, text, True)[2]
        ends = (KeyEvent.KEY_ENDS, KeyEvent.ITEM_ENDS)
        return [text[first:last] for kind, first, last in events if kind in ends and first >= 0]

    def _nearest_end(self, place: KeyPlace) -> tuple[bytes, KeyPlace | None]:
        """The nearest place at which something ends, and the bytes up to there; None: there is none."""
        if not self._repeats.has_lists:
            return self._nearest_key(place)
        pending: list[tuple[int, bytes, KeyPlace, int]] = []
        seen = set[object]()  # places that were reached in another way, as with other blanks

        def push(text: bytes, before: KeyPlace, index: int) -> None:
            following = self._next_bytes(before[1])
            if index < len(following):
                num_bytes, byte = following[index]
                heappush(pending, (len(text) + 1 + num_bytes, text + bytes((byte,)), before, index))

        push(b"", place, 0)
        while pending:
            _, text, before, index = heappop(pending)
            push(text[:-1], before, index + 1)
            after = self._repeats.read_on(before, text[-1:])
            if not after[1] or (same := signature(after)) in seen:
                continue
            seen.add(same)
            if self._automaton.is_accepting(after[1]) or remembered(after) != remembered(before):
                if not self._repeats.dead_ends.is_dead(after):
                    return text, after
                continue
            push(text, after, 0)
        return b"", None

    def _nearest_key(self, place: KeyPlace) -> tuple[bytes, KeyPlace | None]:
        """The same where nothing but keys and strings can come twice: the end of the next of them."""
        text = self._up_to_key(place[1])
        here = self._repeats.read_on(place, text) if text else place
        written, state, begun = here
        innermost = None if written is None or self._automaton.network.item_texts else written.innermost
        for rest in self._ends_of_key(state):
            if innermost is None or not innermost.has(begun + rest[:-1]):
                after = self._repeats.read_on(here, rest)
                if after[1]:
                    return text + rest, after
        return b"", None

    def _ends_of_key(self, state: int) -> Iterator[bytes]:
        """What may be written from a state inside a key up to its end, nearest first; kept, as far as it was found."""
        found, pending = self._ends.get(state) or self._ends.keep(state, ([], self._next_step(b"", state, 0)))
        index = 0
        while index < len(found) or pending:
            with self._lock:
                while index >= len(found) and pending:
                    _, text, before, place = pending[0]
                    after = self._automaton.advance_bytes(before, text[-1:])
                    is_end = text[-1:] == QUOTE and self._repeats.place(after) != k.IN_KEY
                    steps = self._next_step(text[:-1], before, place + 1)
                    steps += [] if is_end else self._next_step(text, after, 0)
                    heappop(pending)  # from here on nothing is asked of the automaton, which might have no room
                    for step in steps:
                        heappush(pending, step)
                    found += [text] if is_end else []
            if index < len(found):
                yield found[index]
            index += 1

    def _next_step(self, text: bytes, state: int, index: int) -> list[Step]:
        """The text with one more byte, the one with this index of those that may follow, if there are so many."""
        following = self._next_bytes(state)[index : index + 1]
        return [(len(text) + 1 + num_bytes, text + bytes((byte,)), state, index) for num_bytes, byte in following]

    def _up_to_key(self, state: int) -> bytes:
        """The shortest completion of a state up to where a key begins, or to its end."""
        if self._repeats.place(state) == k.IN_KEY:
            return b""
        found = self._to_key.get(state)
        return self._to_key.keep(state, core.nearest_bytes(self._automaton, state, True)) if found is None else found

    def _next_bytes(self, state: int) -> list[tuple[int, int]]:
        """The bytes that may follow a state, nearest first: how many bytes are missing after each, and the byte."""
        found = self._following.get(state)
        if found is None:
            automaton = self._automaton
            live = np.flatnonzero(automaton.live_bytes(state)).tolist()
            found = sorted((automaton.min_bytes(automaton.advance_bytes(state, bytes((b,)))), b) for b in live)
            self._following.keep(state, found)
        return found

    # ---------------------------------------------------------------- rows

    def row(self, place: KeyPlace, left: Ints, limit: int, *, is_near: bool = True) -> Ints:
        """The tokens after which `limit` further tokens suffice.

        Args:
            left: those after which they would, were nothing forbidden, and which repeat nothing.
            is_near: whether keys may cost more than is left; else only items may.

        Raises:
            OutOfWork: before a text is followed for which nothing is left.
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
        """By token: whether there is more to know of the place after it than its state; see `row`.

        After a bracket, on the way to a repetition, and of items after a comma.
        """
        written, state, begun = place
        found = np.zeros(self._automaton.vocabulary.size, np.bool_)
        structure = self._repeats.tokens.structure
        is_in_string = core.is_in_string(self._automaton, state)
        if is_near:
            is_in_key = self._repeats.place(state) == k.IN_KEY
            found = structure > (is_in_key or is_in_string)  # brackets are characters there
            innermost = None if written is None else written.innermost
            if is_in_key and innermost is not None:
                texts = [text[:-1] for text in innermost.beginning_with(begun)]
                found[list(self._going_along(texts, begun))] = True
        if self._repeats.has_lists:
            found |= self._commas & (structure == HAS_QUOTE) if is_in_string else self._commas
        if written is not None and may_repeat(written.lists):
            for _, token_id, _ in self._repeats.dead_ends.walk(place):
                found[list(self._same_as(token_id))] = True
        return found

    @cached_property
    def _commas(self) -> npt.NDArray[np.bool_]:
        """By token: whether it has a comma."""
        return np.array([b"," in token for token in self._automaton.vocabulary.tokens], np.bool_)

    def _going_along(self, texts: Iterable[bytes], begun: bytes) -> Iterator[int]:
        """The tokens with which a key that has begun goes on as one of some keys."""
        vocabulary = self._automaton.vocabulary
        for text in texts:
            if text.startswith(begun):
                for end in range(len(begun) + 1, min(len(text), len(begun) + vocabulary.max_token_len) + 1):
                    yield from self._same_as(vocabulary.ids.get(text[len(begun) : end], -1))

    def _same_as(self, token_id: int) -> Iterator[int]:
        """A token and all others of the same bytes; none for -1."""
        while token_id >= 0:
            yield token_id
            token_id = int(self._automaton.vocabulary.trie.next_same[token_id])

    def _bound_after(self, place: KeyPlace, token_id: int, limit: int) -> int:
        """The bound after a token that repeats nothing. Raises OutOfWork before a text is followed."""
        which = signature(place), token_id
        known, number = self._followed.get(which, (-1, 0))
        if known < limit and (known < 0 or number > known):  # what is beyond a limit is known up to there alone
            self._automaton.spend(FOLLOW_WORK)
            number = self._bound(self._after(place, token_id), limit)[0]
            self._followed.keep(which, (limit, number))
        return number

    def _after(self, place: KeyPlace, token_id: int) -> KeyPlace:
        """The place after a token that repeats nothing."""
        written, state, begun = place
        target, after, text = self._repeats.follow(written, state, token_id, 0, lambda: begun)
        return after, target, text
