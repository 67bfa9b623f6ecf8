"""ItemBudget: how many tokens complete a text in which some items must not be written again.

    no item has rivals, and none is owed     what the automaton knows (and `KeyBudget`), as a shortest completion writes
    (`minItems` > 1)                         no further item
    else                                     the way to such a place is searched for (`Distinct.way_out`), and what is
                                             left there added

The search takes the nearest end first and goes on from where that repeats something. It takes every step for itself,
so that it goes on from each place on its way as before; in the longest tokens that spell it, it is a way of so many.
Hence a number is a promise, as in `Completions`: from a place with the number n > 0 some token that repeats no item
leads to a place with a number below n. It need not be the least one: there may be shorter ways.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ..automaton.automaton import Automaton
from ..columns import IN_KEY, NEVER
from ..masks.completions import Completions
from ..text.alphabet import Ints
from .distinct import Distinct, Place, clear, string_of
from .key_budget import KeyBudget


class ItemBudget:
    """The bounds of one automaton whose network has lists of items that must differ."""

    def __init__(
        self, automaton: Automaton, completions: Completions, distinct: Distinct, keys: KeyBudget | None
    ) -> None:
        self._automaton = automaton
        self._completions = completions
        self._distinct = distinct
        self._keys = keys
        self._owes = automaton.network.owes_items

    def bound(self, place: Place) -> int:
        """A number of tokens that surely suffices to complete the text."""
        found = self._distinct.way_out(place, self._is_free)
        if found is None:
            return NEVER
        way, end = found
        return self._num_tokens(way) + self._rest(end)

    def is_within(self, place: Place, limit: int) -> bool:
        """Whether `limit >= bound(place)`, which is cheaper to ask where there are plenty."""
        if self._keys is None and self._automaton.min_bytes(place.state) + self._slack(place) <= limit:
            return True
        return self.bound(place) <= limit

    def row(self, place: Place, left: Ints, limit: int, worst: int) -> Ints:
        """The tokens after which `limit` further tokens suffice, and which repeat no item.

        Args:
            left: those after which they would, were no item forbidden; worst: bytes that are enough after any of them.
        """
        distinct, tokens = self._distinct, self._automaton.vocabulary.tokens
        suspects = self._suspects(place, left, limit - worst)
        cleared = []
        for token_id in suspects:
            after = distinct.after(place, tokens[token_id])
            if after is None or not distinct.is_alive(after) or not self.is_within(after, limit):
                cleared.append(token_id)
        if self._owes and worst + self._slack(place) > limit:
            cleared += self._too_far(place, left, set(suspects), limit)
        if cleared or worst > limit:
            left = left.copy()
            for token_id in cleared:
                clear(left, token_id)
        if worst > limit and self.bound(place) <= limit + 1 and (way := self._way(place)):
            # the first token of the way out leads on, though the automaton knows of no completion as short behind it
            first = self._automaton.vocabulary.ids[self._longest(way)]
            left[first >> 5] |= np.uint32(1 << (first & 31)).astype(np.int32)
        return left

    def _suspects(self, place: Place, left: Ints, spare: int) -> list[int]:
        """The tokens that may repeat an item, or after which `spare` further ones may not be enough for leaving it."""
        num_rivals, num_items, lists = 0, self._automaton.vocabulary.max_token_len, place.items.lists
        while lists is not None:
            num_rivals += len(lists.rivals)
            num_items += lists.count + len(lists.tried)
            lists = lists.below
        suspects, room = self._distinct.suspects, spare // (self._dearest + 1) - 1
        if self._keys is not None or self._owes or num_rivals > room:
            return suspects.all(place.state, place.items, place.since, left)
        return suspects.of(place.state, place.items, place.since, left, are_ends_safe=num_items <= room)

    def _too_far(self, place: Place, left: Ints, known: set[int], limit: int) -> list[int]:
        """The other tokens after which `limit` further ones may not suffice, where several items are to be written.

        Tokens that lead to one state are as far from the end, but for what they add to the item: that item may be met
        again once, which costs another one. The first token of the way out is in any case allowed.
        """
        targets = self._automaton.targets(place.state, left)
        targets[list(known)] = 0
        if way := self._way(place):
            targets[self._automaton.vocabulary.ids[self._longest(way)]] = 0
        tokens, far = self._automaton.vocabulary.tokens, []
        for target in np.unique(targets[targets > 0]).tolist():
            if self._distinct.items_to_go(target):
                after = self._distinct.after(place, tokens[int(np.argmax(targets == target))])
                if after is None or self.bound(after) + self._dearest + 1 > limit:
                    far.append(target)
        cleared: list[int] = np.flatnonzero(np.isin(targets, far)).tolist()
        return cleared

    def _way(self, place: Place) -> bytes:
        """The way to a place where a shortest completion repeats no item."""
        found = self._distinct.way_out(place, self._is_free)
        return b"" if found is None else found[0]

    def _is_free(self, place: Place) -> bool:
        """Whether a shortest completion repeats no item: it writes none, and that which has begun is another one."""
        return not place.items.has_rivals and not self._distinct.items_to_go(place.state)

    def _slack(self, place: Place) -> int:
        """By how many bytes a completion may be longer than the automaton knows.

        Each item that is to be written may be met as each one that is there, and leaving its way then costs no more
        than the dearest thing there is.
        """
        num_rivals, num_items, lists = 0, 0, place.items.lists
        while lists is not None:
            num_rivals += len(lists.rivals)
            num_items = max(num_items, lists.count + len(lists.tried))
            lists = lists.below
        to_go = self._distinct.items_to_go(place.state)
        return (num_rivals + to_go * (num_items + to_go) + 1) * (self._dearest + 1)

    def _rest(self, place: Place) -> int:
        """What the automaton and the keys know."""
        if self._keys is None or place.written is None:
            return self._completions.bound(place.state)
        is_in_key = self._automaton.key_place(place.state) == IN_KEY
        return self._keys.bound((place.written, place.state, string_of(place) if is_in_key else b""))

    def _num_tokens(self, way: bytes) -> int:
        count = 0
        while way:
            way = way[len(self._longest(way)) :]
            count += 1
        return count

    def _longest(self, way: bytes) -> bytes:
        """The longest token that a way begins with."""
        ids = self._automaton.vocabulary.ids
        most = min(len(way), self._automaton.vocabulary.max_token_len)
        return next(way[:end] for end in range(most, 0, -1) if way[:end] in ids)

    @cached_property
    def _dearest(self) -> int:
        """The greatest number of bytes from a node to the end of its rule."""
        cost = self._automaton.network.cost
        return int(np.max(cost[cost < NEVER], initial=0))
