"""Bounds: how many tokens complete a text from a place, and the tokens that keep within a number of them.

A place is a state and, where keys that the text has written must not come again, the memory of these. In most
languages there are none: then the state tells all, and `Completions` and `Budget` answer. Else `Repeats` leaves out
tokens that repeat a key, and `KeyBudget` counts the keys that are left. It knows no cursor and no request.

Throughout, `written` is what is remembered, None if that is nothing; `typed` tells what is written of the string in
which the state stands, and is asked only there. Cost where no key is to be remembered: one comparison more than what
answers.
"""

from __future__ import annotations

from collections.abc import Callable

from .columns import IN_KEY
from .keys.key_budget import KeyBudget
from .keys.repeats import Repeats
from .keys.written import KeyPlace, Written
from .masks.budget import Budget
from .masks.completions import Completions
from .masks.mask_store import Row
from .masks.masks import Masks
from .text.alphabet import Ints

Typed = Callable[[], bytes]


class Bounds:
    """The bounds of one language.

    Args:
        repeats, keys: None if the language has no keys to be remembered.
    """

    __slots__ = ("_budget", "_completions", "_keys", "_masks", "_repeats")

    def __init__(
        self, completions: Completions, masks: Masks, budget: Budget, repeats: Repeats | None, keys: KeyBudget | None
    ) -> None:
        self._completions = completions
        self._masks = masks
        self._budget = budget
        self._repeats = repeats
        self._keys = keys

    def bound(self, state: int, written: Written | None, typed: Typed) -> int:
        """A number of tokens that suffices to complete the text; 0 if it is complete."""
        keys = self._keys
        if keys is None or (written is None and not keys.owes):  # nearly always
            return self._completions.bound(state)
        return keys.bound(self._place(state, written, typed))

    def is_within(self, state: int, written: Written | None, typed: Typed, limit: int) -> bool:
        """Whether `bound <= limit`, which is cheaper if there are many."""
        keys = self._keys
        if keys is None or (written is None and not keys.owes):  # nearly always
            return self._completions.is_within(state, limit)
        return keys.is_far(written, state, limit) or keys.bound(self._place(state, written, typed)) <= limit

    def is_free(self, row: Row, written: Written | None, remaining: int) -> bool:
        """Whether fewer than `remaining` tokens certainly suffice after each token of a row, whatever keys it ends."""
        keys = self._keys
        return row.worst < remaining and (keys is None or row.worst + keys.slack(written, row.worst) < remaining)

    def row(self, state: int, written: Written | None, typed: Typed, remaining: int) -> Ints:
        """The tokens that repeat no key and after which `remaining - 1` further tokens suffice. Read-only.

        A token that ends the first key counts as well: it may begin the next one, which must be another.
        """
        keys = self._keys
        if keys is None:
            return self._budget.row(state, remaining - 1)
        row = self._masks.row(state)
        left = row.bits if row.worst < remaining else self._budget.row(state, remaining - 1)
        if written is not None and self._repeats is not None:
            left = self._repeats.row(written, state, left, typed)
        if self.is_free(row, written, remaining):
            return left
        is_near = row.worst + keys.key_slack(written, row.worst) >= remaining
        return keys.row(self._place(state, written, typed), left, remaining - 1, is_near=is_near)

    def _place(self, state: int, written: Written | None, typed: Typed) -> KeyPlace:
        is_in_key = self._repeats is not None and self._repeats.place(state) == IN_KEY
        return written, state, typed() if is_in_key else b""
