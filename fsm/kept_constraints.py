"""The constraints that a compiler keeps: an LRU cache, bounded in bytes, whose entries grow while they are used.

So the bytes of a constraint have to be measured again. To measure a thousand of them takes tens of milliseconds,
for which some request would wait; so a few are measured at a time:

    put(new)  ── counts `new` with its bytes before it is used
              ── every `TURNS` turns measures
                     the same number of the next entries  (so that each is measured again in time),
                     those put or found `SOON` turns ago  (so that what has just been used is measured soon)
              ── and drops the least recently used while all together take too much, never the newest

To measure one takes ten microseconds, and two directly after others.

Text automata that several constraints share are counted once. It does not know how constraints are made.

Invariant: `num_bytes` is the sum of the bytes of each when it was last measured, and of the distinct text automata; at
most `max_bytes` after every `put`, except for the newest. Not thread-safe: its owner holds a lock.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable

from .constraint import Constraint
from .text.text_table import TextTable

TURNS = 16
SOON = 32  # turns, a multiple of TURNS; most requests are done by then


class _Kept:
    """A constraint that is kept.

    Attributes:
        constraint: None once it is dropped.
        weight: what it weighed when it was last asked.
        is_awaited: whether it is among those to be weighed soon.
    """

    __slots__ = ("constraint", "is_awaited", "weight")

    def __init__(self, constraint: Constraint, weight: int) -> None:
        self.constraint: Constraint | None = constraint
        self.weight = weight
        self.is_awaited = False


class KeptConstraints:
    """See the module's docstring.

    Args:
        max_bytes: bound on what is kept.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()  # the least recently used first
        self._users: dict[TextTable, int] = {}
        self._num_bytes = 0
        self._line: deque[_Kept] = deque()  # all that are kept, and some that were dropped
        self._due: deque[tuple[int, _Kept]] = deque()  # the turn in which to weigh what was used
        self._turn = 0

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def num_bytes(self) -> int:
        """The bytes of everything, as last measured."""
        return self._num_bytes

    def find(self, key: Hashable) -> Constraint | None:
        """The constraint of this key, which is now the most recently used."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        self._kept.move_to_end(key)
        self._await(kept)
        return kept.constraint

    def put(self, key: Hashable, constraint: Constraint) -> None:
        """Keeps a constraint in the place of the one that had its key, and drops others if need be."""
        self._turn += 1
        before = self._kept.pop(key, None)
        if before is None:
            kept = _Kept(constraint, constraint.num_bytes_unused)
        else:
            self._let_go(before)
            kept = _Kept(constraint, constraint.num_bytes)  # it may have been used in place of the other one
        self._kept[key] = kept
        self._num_bytes += kept.weight
        users = self._users
        for table in constraint.texts:
            num_users = users.get(table, 0)
            users[table] = num_users + 1
            if not num_users:
                self._num_bytes += table.num_bytes
        self._line.append(kept)
        self._await(kept)
        if self._turn % TURNS == 0:
            self._weigh_some()
        while self._num_bytes > self._max_bytes and len(self._kept) > 1:
            self._let_go(self._kept.popitem(last=False)[1])

    def weigh(self) -> int:
        """The bytes of everything, all measured again."""
        for kept in self._kept.values():
            self._weigh(kept)
        return self._num_bytes

    def clear(self) -> None:
        """Drops everything."""
        for kept in self._kept.values():
            self._let_go(kept)
        self._kept.clear()
        self._line.clear()
        self._due.clear()

    def _await(self, kept: _Kept) -> None:
        if not kept.is_awaited:
            kept.is_awaited = True
            self._due.append((self._turn + SOON, kept))

    def _weigh_some(self) -> None:
        while self._due and self._due[0][0] <= self._turn:
            used = self._due.popleft()[1]
            used.is_awaited = False
            self._weigh(used)
        left = min(TURNS, len(self._kept))
        while left:
            following = self._line.popleft()
            if self._weigh(following):  # else it was dropped meanwhile
                self._line.append(following)
                left -= 1

    def _weigh(self, kept: _Kept) -> bool:
        """Asks a constraint again; False if it is not kept any more."""
        if kept.constraint is None:
            return False
        weight = kept.constraint.num_bytes
        self._num_bytes += weight - kept.weight
        kept.weight = weight
        return True

    def _let_go(self, kept: _Kept) -> None:
        """Takes one that has left its place out of the accounts."""
        assert kept.constraint is not None
        self._num_bytes -= kept.weight
        for table in kept.constraint.texts:
            self._users[table] -= 1
            if not self._users[table]:
                del self._users[table]
                self._num_bytes -= table.num_bytes
        kept.constraint = None
