"""The waiting line in its plainest form: lists, searched from end to end at every call."""

from __future__ import annotations

from dataclasses import dataclass, field

from phloem.radix import common_prefix, pack
from phloem.runtime.request import Request


@dataclass
class Place:
    """A request that waits.

    Attributes:
        arrival: of which arrivals: those between two steps came together.
        overtaken: how many of those that came later were admitted before.
        longest: how many waited at a time since.
    """

    request: Request
    arrival: int
    at: float
    overtaken: int = 0
    longest: int = 0

    @property
    def key(self) -> tuple[int, str, bytes, int]:
        one = self.request
        return -one.priority, one.namespace, pack(one.token_ids), one.ticket


@dataclass
class PlainLine:
    """What `WaitingLine` does, by its description."""

    max_overtakes: int | None
    max_wait_seconds: float
    places: list[Place] = field(default_factory=list)
    arrival: int = 0
    due: list[Place] = field(default_factory=list)
    last: Place | None = None  # where the walk stands

    def add(self, request: Request, now: float) -> None:
        self.places.append(Place(request, self.arrival, now))
        for place in self.places:
            place.longest = max(place.longest, len(self.places))

    def remove(self, request: Request) -> Place:
        (place,) = [place for place in self.places if place.request is request]
        self.places.remove(place)
        if place in self.due:
            self.due.remove(place)
        return place

    def admit(self, request: Request, resume_at: Request) -> None:
        self.last = next(place for place in self.places if place.request is resume_at)
        admitted = self.remove(request)
        for place in self.places:
            place.overtaken += place.arrival < admitted.arrival

    def begin_step(self, now: float) -> list[Request]:
        self.arrival += 1
        late = [
            place.request
            for place in self.places
            if place.request.deadline_seconds is not None and place.at + place.request.deadline_seconds <= now
        ]
        for request in late:
            self.remove(request)
        return late

    def order(self, now: float) -> list[Request]:
        self.due = self.due or self._due(now)
        entries = sorted(self.due or self.places, key=lambda place: place.key)
        entries = [place for place in entries if place.key[0] == entries[0].key[0]]
        last = self.last
        if last is None or (entries and last.key[0] != entries[0].key[0]):
            return [place.request for place in entries]

        def by_walk(place: Place) -> tuple[object, ...]:
            shared = common_prefix(place.key[2], last.key[2]) if place.key[1] == last.key[1] else 0
            return -shared, place.key < last.key, place.key

        return [place.request for place in sorted(entries, key=by_walk)]

    def _due(self, now: float) -> list[Place]:
        """The oldest, once they have been overtaken often enough or waited long enough; with them the next oldest, as
        long as those have waited long enough and the oldest can bear it.
        """
        due: list[Place] = []
        room = 0
        for arrival in sorted({place.arrival for place in self.places}):
            together = [place for place in self.places if place.arrival == arrival]
            is_late = together[0].at <= now - self.max_wait_seconds
            if due:
                room -= len(together)
                if room < 0 or not is_late:
                    break
            else:
                room = self._most(together) - together[0].overtaken
                if room > 0 and not is_late:
                    break
            due += together
        return due

    def _most(self, oldest: list[Place]) -> int:
        if self.max_overtakes is not None:
            return self.max_overtakes
        return max(256, *(place.longest for place in oldest))
