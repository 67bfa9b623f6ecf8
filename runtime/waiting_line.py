"""Who waits, in which order they are to be admitted, and how long that order may put anybody off.

Entries are sorted by priority, namespace and tokens, so neighbours share prefixes. Admitting them in that order, from
where the last admission stood, is a depth-first walk of the tree that they would form::

    sorted       [sys A q1] [sys A q2] [sys A q3] [sys B q1] [sys B q2] …
                                 ▲ the walk goes on here

    arrivals     | q1 q3 q7 | q2 | q4 q5 q6 |      those between two steps have arrived together
                   oldest          newest

Being *overtaken* is to see somebody admitted who arrived later. Those that arrived together cannot overtake one
another, so a batch of any size is walked depth-first. When the oldest arrivals have been overtaken `max_overtakes`
times, or have waited for `max_wait_seconds`, nobody but them is admitted until they are gone, depth-first again.

Knows requests as keys and tickets, and the time; it knows no cache and no blocks. Cost: O(log n) comparisons per
operation, and moving up to n pointers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

from ..radix import common_prefix, pack
from .request import Request

Key = tuple[int, str, bytes, int]  # -priority, namespace, packed tokens, ticket


@dataclass(frozen=True, slots=True, order=True)
class Waiting:
    """A request in the line.

    Attributes:
        arrival: number of the arrivals it belongs to.
    """

    key: Key
    request: Request = field(compare=False)
    arrival: int = field(compare=False)

    @property
    def tokens(self) -> bytes:
        """Its tokens, packed."""
        return self.key[2]


class WaitingLine:
    """The requests that have not been admitted yet.

    Args:
        clock: seconds, for ages and deadlines.
    """

    def __init__(self, *, max_overtakes: int, max_wait_seconds: float, clock: Callable[[], float]) -> None:
        self._max_overtakes = max_overtakes
        self._max_wait_seconds = max_wait_seconds
        self._clock = clock
        self._ordered: list[Waiting] = []
        self._by_ticket: dict[int, Waiting] = {}
        self._arrivals: dict[int, list[Waiting]] = {}  # each ordered; oldest first
        self._num_arrivals = 0
        self._admitted: list[int] = []  # arrivals of those admitted while somebody older waited, ordered
        self._num_by_priority: Counter[int] = Counter()
        self._deadlines: list[tuple[float, int]] = []
        self._resume_at: Key | None = None

    def __len__(self) -> int:
        return len(self._ordered)

    def __iter__(self) -> Iterator[Request]:
        return (entry.request for entry in self._ordered)

    def __contains__(self, request: Request) -> bool:
        return request.ticket in self._by_ticket

    def add(self, request: Request) -> None:
        """Puts a request into the line; it counts as having arrived with all others since the last `begin_step`."""
        request.queued_at = self._clock()
        key = (-request.priority, request.namespace, pack(request.token_ids), request.ticket)
        entry = Waiting(key, request, self._num_arrivals)
        insort(self._ordered, entry)
        insort(self._arrivals.setdefault(entry.arrival, []), entry)
        self._by_ticket[request.ticket] = entry
        self._num_by_priority[key[0]] += 1
        if request.deadline_seconds is not None:
            heappush(self._deadlines, (request.queued_at + request.deadline_seconds, request.ticket))

    def remove(self, request: Request) -> None:
        """Takes a request out that is not to be admitted."""
        entry = self._by_ticket.pop(request.ticket)
        del self._ordered[bisect_left(self._ordered, entry)]
        self._num_by_priority[entry.key[0]] -= 1
        together = self._arrivals[entry.arrival]
        del together[bisect_left(together, entry)]
        if not together:
            del self._arrivals[entry.arrival]
            oldest = next(iter(self._arrivals), self._num_arrivals)
            del self._admitted[: bisect_right(self._admitted, oldest)]

    def admit(self, request: Request, resume_at: Key) -> None:
        """Takes out a request that has been admitted; the walk goes on at `resume_at`."""
        insort(self._admitted, self._by_ticket[request.ticket].arrival)
        self.remove(request)
        self._resume_at = resume_at

    def begin_step(self) -> list[Request]:
        """Whoever comes from now on has come later. Takes out those whose deadline has passed, and returns them."""
        self._num_arrivals += 1
        late = []
        now = self._clock() if self._deadlines else 0.0
        while self._deadlines and self._deadlines[0][0] <= now:
            entry = self._by_ticket.get(heappop(self._deadlines)[1])
            if entry is not None:
                self.remove(entry.request)
                late.append(entry.request)
        return late

    def in_order(self) -> Iterator[Waiting]:
        """Those who may be admitted now, best first: of the highest priority, in the order of the walk."""
        entries = self._overdue() or self._ordered
        if not entries:
            return
        top = entries[0].key[0]
        first = 0
        if self._resume_at is not None and self._resume_at[0] == top:
            first = bisect_left(entries, self._resume_at, key=lambda entry: entry.key)
        num_entries = len(entries)
        for step in range(num_entries):
            entry = entries[(first + step) % num_entries]
            if entry.key[0] == top:
                yield entry

    def _overdue(self) -> list[Waiting] | None:
        """The oldest arrivals, if they must not be put off any longer."""
        if not self._arrivals:
            return None
        arrival, oldest = next(iter(self._arrivals.items()))
        num_overtakes = len(self._admitted) - bisect_right(self._admitted, arrival)
        is_overdue = (
            num_overtakes >= self._max_overtakes
            or self._clock() - oldest[0].request.queued_at >= self._max_wait_seconds
        )
        return oldest if is_overdue else None

    def count_needed(self, namespace: str, tokens: bytes) -> int:
        """With how many of these packed tokens somebody who waits begins: in the order he is a neighbour of them."""
        num_needed = 0
        for priority, number in self._num_by_priority.items():
            if number:
                at = bisect_left(self._ordered, (priority, namespace, tokens, -1), key=lambda entry: entry.key)
                for entry in self._ordered[max(0, at - 1) : at + 1]:
                    if entry.key[:2] == (priority, namespace):
                        num_needed = max(num_needed, common_prefix(tokens, entry.tokens, 0) >> 2)
        return num_needed
