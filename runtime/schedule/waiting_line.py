"""The queue of requests that wait, the order in which they are admitted, and how long that order may delay one.

Entries are sorted by priority, namespace and tokens, so neighbours share prefixes. Admitting them in that order, from
where the last admission stood, is a depth-first walk of the tree that they would form. Those that come while it goes on
may belong before the place where it stands: no subtree is left before those are served too::

    sorted       [sys A q1] [sys A q2] [sys A q3] [sys B q1] [sys B q2] …
                     2           3          ▲ 1        4          5        the walk goes on here

    arrivals     | q1 q3 q7 | q2 | q4 q5 q6 |      those between two steps have arrived together
                   oldest          newest

A request is *overtaken* when one that arrived later is admitted. Those that arrived together cannot overtake one
another, so a batch of any size is walked depth-first. The oldest arrivals are *due* when they have been overtaken
`max_overtakes` times; with them, or without, those that have waited for `max_wait_seconds`. No request but those that
are due is admitted until they are gone, depth-first again.

Without a set number that bound is 256, or the most that have waited at a time since the oldest of them came: in a queue
of a thousand each waits for a thousand others anyway, and a bound far below that would make nearly all of them due, in
the order of arrival.

Knows requests as keys and tickets, and the time; it knows no cache and no blocks. Cost: O(log n) comparisons per
operation, and moving up to n pointers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

from ...radix import common_prefix, pack
from ..request import Request

FEW_OVERTAKES = 256  # even where fewer wait

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

    A step is `begin_step`, then `in_order` and `admit` as often as one fits; `add` comes between steps.

    Args:
        max_overtakes: None: 256, or the most that have waited at a time since the oldest came, whichever is more.
        clock: seconds, for ages and deadlines.
    """

    def __init__(self, *, max_overtakes: int | None, max_wait_seconds: float, clock: Callable[[], float]) -> None:
        self._max_overtakes = max_overtakes
        self._max_wait_seconds = max_wait_seconds
        self._clock = clock
        self._ordered: list[Waiting] = []
        self._by_ticket: dict[int, Waiting] = {}
        self._arrivals: dict[int, list[Waiting]] = {}  # each ordered; oldest first
        self._num_arrivals = 0
        self._admitted: list[int] = []  # arrivals of those admitted while an older one waited, ordered
        self._num_by_priority: Counter[int] = Counter()
        self._deadlines: list[tuple[float, int]] = []
        self._lengths: deque[tuple[int, int]] = (
            deque()
        )  # arrival, length of the line then: where no later one is longer
        self._cohort: list[Waiting] = []  # those that are due, ordered
        self._last_due = -1  # the youngest arrival among them
        self._resume_at: Key | None = None

    def __len__(self) -> int:
        return len(self._ordered)

    def __iter__(self) -> Iterator[Request]:
        return (entry.request for entry in self._ordered)

    def __contains__(self, request: Request) -> bool:
        return request.ticket in self._by_ticket

    def add(self, request: Request, *, again: bool = False) -> None:
        """Puts a request into the line; it counts as having arrived with all others since the last `begin_step`.

        again: it has waited before, and its age and its deadline are counted from then.
        """
        if not again:
            request.queued_at = self._clock()
        key = (-request.priority, request.namespace, pack(request.token_ids), request.ticket)
        entry = Waiting(key, request, self._num_arrivals)
        insort(self._ordered, entry)
        insort(self._arrivals.setdefault(entry.arrival, []), entry)
        self._by_ticket[request.ticket] = entry
        self._num_by_priority[key[0]] += 1
        while self._lengths and self._lengths[-1][1] <= len(self._ordered):
            self._lengths.pop()
        self._lengths.append((entry.arrival, len(self._ordered)))
        if request.deadline_seconds is not None:
            heappush(self._deadlines, (request.queued_at + request.deadline_seconds, request.ticket))

    def remove(self, request: Request) -> None:
        """Takes a request out that is not to be admitted."""
        entry = self._by_ticket.pop(request.ticket)
        del self._ordered[bisect_left(self._ordered, entry)]
        self._num_by_priority[entry.key[0]] -= 1
        if self._cohort and entry.arrival <= self._last_due:
            del self._cohort[bisect_left(self._cohort, entry)]
        together = self._arrivals[entry.arrival]
        del together[bisect_left(together, entry)]
        if not together:
            del self._arrivals[entry.arrival]
            oldest = next(iter(self._arrivals), self._num_arrivals)
            del self._admitted[: bisect_right(self._admitted, oldest)]
            while self._lengths and self._lengths[0][0] < oldest:
                self._lengths.popleft()

    def admit(self, request: Request, resume_at: Key) -> None:
        """Takes out a request that has been admitted; the walk goes on at `resume_at`."""
        insort(self._admitted, self._by_ticket[request.ticket].arrival)
        self.remove(request)
        self._resume_at = resume_at
        request.usage.admitted_at = self._clock()
        request.usage.queue_seconds = request.usage.admitted_at - request.queued_at

    def begin_step(self) -> list[Request]:
        """Begins a new arrival: requests added from now on came later. Takes out and returns those past their
        deadline.
        """
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
        """Requests that may be admitted now, best first: of the highest priority, in the order of the walk."""
        entries = self._due() or self._ordered
        if not entries:
            return
        top = entries[0].key[0]
        end = bisect_left(entries, (top + 1, "", b"", -1), key=_key_of)
        resume_at = self._resume_at
        if resume_at is None or resume_at[0] != top:
            resume_at = entries[0].key
        ahead = below = bisect_left(entries, resume_at, hi=end, key=_key_of)
        while ahead < end or below > 0:
            near = _num_shared_bytes(entries[ahead], resume_at) if ahead < end else -1
            far = _num_shared_bytes(entries[below - 1], resume_at) if below else -1
            if near >= far:
                yield entries[ahead]
                ahead += 1
            else:
                subtree = (top, resume_at[1], resume_at[2][:far], -1) if far else (top, "", b"", -1)
                first = bisect_left(entries, subtree, hi=below, key=_key_of)
                for index in range(first, below):
                    yield entries[index]
                below = first

    def _due(self) -> list[Waiting]:
        """Requests that must not be delayed any longer, ordered; none if none is due.

        The oldest arrivals, if they were overtaken often enough; those that have waited for long, as far as the oldest
        can bear being overtaken by the others. No request joins them until all of them are gone.
        """
        if not self._cohort and self._arrivals:
            latest = self._clock() - self._max_wait_seconds
            arrival = next(iter(self._arrivals))
            room = self._most_overtakes() - (len(self._admitted) - bisect_right(self._admitted, arrival))
            for arrival, together in self._arrivals.items():
                is_late = together[0].request.queued_at <= latest
                if self._cohort:
                    room -= len(together)
                    if room < 0 or not is_late:
                        break
                elif room > 0 and not is_late:
                    break
                self._cohort += together
                self._last_due = arrival
            self._cohort.sort()
        return self._cohort

    def _most_overtakes(self) -> int:
        return max(FEW_OVERTAKES, self._lengths[0][1]) if self._max_overtakes is None else self._max_overtakes

    def count_needed(self, namespace: str, tokens: bytes) -> int:
        """With how many of these packed tokens a waiting request begins, at most. Only neighbours in the order
        count.
        """
        num_needed = 0
        for priority, number in self._num_by_priority.items():
            if number:
                at = bisect_left(self._ordered, (priority, namespace, tokens, -1), key=lambda entry: entry.key)
                for entry in self._ordered[max(0, at - 1) : at + 1]:
                    if entry.key[:2] == (priority, namespace):
                        num_needed = max(num_needed, common_prefix(tokens, entry.tokens) >> 2)
        return num_needed


def _key_of(entry: Waiting) -> Key:
    return entry.key


def _num_shared_bytes(entry: Waiting, key: Key) -> int:
    """With how many bytes of the key's tokens an entry begins; none in another namespace."""
    return common_prefix(entry.tokens, key[2]) if entry.key[1] == key[1] else 0
