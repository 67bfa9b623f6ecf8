"""ItemBudget: how many tokens complete a text in which some items must not be written again.

As in `KeyBudget` the shortest completion stands where it repeats nothing. Else the text goes on byte by byte, to the
nearest place at which a key or an item ends, or a list opens, that is no repetition and no dead end (`dead_ends`), and
from there in the same way. Of two such places that are equally near the end of the text the first by their bytes is
taken; so it is taken again after each byte that leads there, and the number stays a promise.

Lists that must have several items of any kind are not compiled, so that a shortest completion ends each list after the
item that has begun: what is looked for is seldom further away than one more digit.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

from ..._core import fsm as core
from ..._core.fsm import KeyEvent
from .. import columns as k
from ..bounded_map import BoundedMap
from .dead_ends import signature
from .key_budget import ITEM_BYTES, WIDEST, KeyBudget
from .open_lists import may_repeat
from .written import KeyPlace, Written

FOLLOW_WORK = 5_000  # for a text that is followed to its end, as an allowance counts it (`Automaton.allow`)
MAX_KEPT = 1 << 14


class ItemBudget(KeyBudget):
    """The bounds of one automaton whose network has lists of any values that must differ.

    What was followed is kept, and each text takes from the allowance: so a row may be made in parts.
    """

    @cached_property
    def _followed(self) -> BoundedMap[object, tuple[int, int]]:
        """By the place of a row and a token: the limit up to which the text was followed, and what was found."""
        return BoundedMap(MAX_KEPT)

    def slack(self, written: Written | None, num_bytes: int) -> int:
        """See `KeyBudget`. To differ from n others an item goes on n times: by a member, an item, a part of a text."""
        return self.key_slack(written, num_bytes) + self._item_slack(written)

    def key_slack(self, written: Written | None, num_bytes: int) -> int:
        """See `KeyBudget`."""
        return super().key_slack(written, num_bytes) if self._tables else 0

    def _item_slack(self, written: Written | None) -> int:
        lists = [] if written is None or written.lists is None else written.lists.chain()
        count = self._most_commas + sum(len(one.values.by_text) for one in lists)
        most = self._automaton.vocabulary.max_token_len
        return most + (len(lists) + 1) * (count + 2) * self._most_further

    def _bound(self, place: KeyPlace, limit: int) -> tuple[int, Iterable[bytes]]:
        """See `KeyBudget`."""
        num_bytes, keys = 0, list[bytes]()
        begin: KeyPlace | None = place
        while begin is not None and num_bytes <= limit:
            _, state, _ = begin
            text, events = self._completion(state, has_keys=True)
            _, end, _ = self._repeats.read_on(begin, text)
            keys += [text[first:last] for kind, first, last in events if kind == KeyEvent.KEY_ENDS and first >= 0]
            if end and self._automaton.is_accepting(end):
                return num_bytes + len(text) if num_bytes else self._completions.bound(state), keys
            more, begin = self._nearest_end(begin)
            num_bytes += len(more)
            keys.append(more)
        return max(num_bytes, limit + 1) if begin is not None else k.NEVER, keys

    def _bound_after(self, place: KeyPlace, token_id: int, limit: int) -> int:
        """See `KeyBudget`. Raises OutOfWork before a text is followed for which nothing is left."""
        which = signature(place), token_id
        known, number = self._followed.get(which, (-1, 0))
        if known < limit and (known < 0 or number > known):  # what is beyond a limit is known up to there alone
            self._automaton.spend(FOLLOW_WORK)
            number = super()._bound_after(place, token_id, limit)
            self._followed.keep(which, (limit, number))
        return number

    def _nearest_end(self, place: KeyPlace) -> tuple[bytes, KeyPlace | None]:
        """The nearest place at which something ends, and the bytes up to there; None: there is none."""
        pending: list[tuple[int, bytes, KeyPlace, int]] = []
        seen = set[object]()  # places that were reached in another way, as with other blanks

        def push(text: bytes, before: KeyPlace, index: int) -> None:
            following = self._nearest.following(before[1])
            if index < len(following):
                more = following[index]
                num_bytes = len(text) + 1 + more.num_bytes
                heappush(pending, (num_bytes, text + bytes((more.byte,)), before, index))

        push(b"", place, 0)
        while pending:
            _, text, before, index = heappop(pending)
            push(text[:-1], before, index + 1)
            after = self._repeats.read_on(before, text[-1:])
            if not after[1] or (same := signature(after)) in seen:
                continue
            seen.add(same)
            if self._automaton.is_accepting(after[1]) or _remembered(after) != _remembered(before):
                if not self._repeats.dead_ends.is_dead(after):
                    return text, after
                continue
            push(text, after, 0)
        return b"", None

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

    @cached_property
    def _commas(self) -> npt.NDArray[np.bool_]:
        """By token: whether it has a comma."""
        return np.array([b"," in token for token in self._automaton.vocabulary.tokens], np.bool_)

    def _tells(self, place: KeyPlace, *, is_near: bool) -> npt.NDArray[np.bool_]:
        """See `KeyBudget`; after a comma, and on the way to a repetition, the state does not tell all."""
        written, state, _ = place
        found = super()._tells(place, is_near=is_near)
        if core.is_in_string(self._automaton, state):
            found |= self._commas & (self._repeats.tokens.structure == 2)  # a quote
        else:
            found |= self._commas
        if written is not None and may_repeat(written.lists):
            vocabulary = self._automaton.vocabulary
            for _, token_id, _ in self._repeats.dead_ends.walk(place):
                while token_id >= 0:
                    found[token_id] = True
                    token_id = int(vocabulary.trie.next_same[token_id])
        return found


def _remembered(place: KeyPlace) -> tuple[object, ...]:
    """What differs where a key or an item has ended, or a list or an object that is remembered opens or closes."""
    written = place[0]
    if written is None:
        return ()
    lists = [] if written.lists is None else written.lists.chain()
    return written.objects, *(one.values for one in lists)
