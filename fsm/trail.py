"""Trail: what a cursor has taken, shared with its forks.

    shared, frozen                     own
    +-----------------+    +------+    +---------+
    | t0 t1 t2 ... t9 | <- | a  b | <- | c  d  e |      a cursor appends to and cuts its own segment only
    +-----------------+    +------+    +---------+
             ^                  ^      +---+
             |                  +----- | x |            a fork made after b
             |                         +---+
             +-- used: 7               +------+
                 (rolled back to t6)   | y  z |         and one that has rolled back into the shared segment
                                       +------+

Forking freezes the own segment and lets both go on with an empty one: O(1), whatever the length. Taking back n tokens
costs O(n) at most, taking one O(1). It knows token ids and states as numbers only. Not thread-safe.
"""

from __future__ import annotations


class Trail:
    """Pairs (token id, state after it), in order.

    Attributes:
        tokens, states: the own segment. Append to both or call `cut`, nothing else.
    """

    __slots__ = ("_below", "_num_below", "_used", "states", "tokens")

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.states: list[int] = []
        self._below: Trail | None = None
        self._used = 0  # of the own segment of `_below`
        self._num_below = 0  # in all that is shared

    def __len__(self) -> int:
        return self._num_below + len(self.tokens)

    def cut(self, count: int) -> None:
        """Drops the last `count` pairs."""
        own = min(count, len(self.tokens))
        if own:
            del self.tokens[-own:]
            del self.states[-own:]
        self._used -= count - own
        self._num_below -= count - own
        self._settle()

    def _settle(self) -> None:
        """Moves down until something of the segment below is in use."""
        while self._below is not None and self._used <= 0:
            below = self._below
            self._below, self._used = below._below, below._used + self._used

    def last_state(self, default: int) -> int:
        """The state after the last pair; `default` if there is none."""
        return self.states[-1] if self.states else self.first_state(default)

    def last_tokens(self, count: int) -> list[int]:
        """The last `count` token ids, or all if there are fewer."""
        found = self.tokens[-count:] if count else []
        segment = self
        while segment._below is not None and len(found) < count:
            used, segment = segment._used, segment._below
            found = segment.tokens[max(0, used - count + len(found)) : used] + found
        return found

    def first_state(self, default: int) -> int:
        """The state before the own segment; `default` if nothing is before it."""
        return self._below.states[self._used - 1] if self._below is not None else default

    def fork(self) -> Trail:
        """An independent trail with the same pairs."""
        other = Trail()
        if self.tokens:
            frozen = Trail()
            frozen.tokens, frozen.states = self.tokens, self.states
            frozen._below, frozen._used, frozen._num_below = self._below, self._used, self._num_below
            self.tokens, self.states = [], []
            self._below, self._used, self._num_below = frozen, len(frozen.tokens), len(frozen)
        other._below, other._used, other._num_below = self._below, self._used, self._num_below
        return other
