"""CompileTime: how long one constraint may take to compile, and the error that says so.

Work is bounded by counting it, with constants beside the loops that do it; this is the bound that a user sets. Loops
over parts of a description ask before each part, naming its place. Time is the processor's, on the compiling thread: a
busy machine refuses nothing that an idle one takes.

That time costs a microsecond to ask for, a twentieth of which the time on the wall costs. A thread is never given more
than has passed on the wall, so as long as this cannot have been enough, nobody asks for the other.

What is made does not depend on the time that it took. So two times are equal, and a function that keeps what it found
may be told one: whoever asks the same again finds it, in a time of their own.

Knows nothing of what is compiled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from ..errors import ConstraintTooLarge

MAX_SECONDS = 0.8
"""What a constraint may take unless somebody says otherwise: no input is without an answer after a second."""


FEW = 128
"""So many small things are done between two questions for the time; a power of two."""

Item = TypeVar("Item")


class CompileTime:
    """The time of one compilation, running from now on.

    Args:
        max_seconds: None: without end.
        clock: seconds spent so far.
        wall: seconds, at least as many as `clock` counts.
    """

    __slots__ = ("_clock", "_end", "_max_seconds", "_surely_until", "_wall")

    def __init__(
        self,
        max_seconds: float | None = None,
        clock: Callable[[], float] = time.thread_time,
        wall: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_seconds = max_seconds
        self._clock = clock
        self._wall = wall
        self._end = 0.0 if max_seconds is None else clock() + max_seconds
        self._surely_until = 0.0 if max_seconds is None else wall() + max_seconds

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CompileTime)

    def __hash__(self) -> int:
        return 0

    def check_here(self) -> None:
        """ConstraintTooLarge without a place if the time is over, for those who do not know where they are.

        Whoever called them names the place.
        """
        if self._is_over():
            raise ConstraintTooLarge(self.complaint)

    def check(self, pointer: str, name: str = "") -> None:
        """ConstraintTooLarge if the time is over; `pointer` or `name`: of what would be compiled next."""
        if self._is_over():
            raise ConstraintTooLarge(f"{name or pointer or '/'}: {self.complaint}", pointer=pointer)

    def over(self, items: Iterable[Item], pointer: str | None = None, name: str = "") -> Iterator[Item]:
        """The items, asking for the time before the first and now and then: for loops over many small things.

        pointer, name: as `check` has them; without them, as `check_here`.
        """
        for index, item in enumerate(items):
            if index & (FEW - 1) == 0 and self._is_over():
                if pointer is None and not name:
                    self.check_here()
                self.check(pointer or "", name)
            yield item

    def most_work(self, max_work: int, work_per_second: int) -> int:
        """So much of what cannot ask for the time while it runs as there is time for, and `max_work` at the most."""
        if self._max_seconds is None:
            return max_work
        return min(max_work, int(max(self._end - self._clock(), 0) * work_per_second))

    @property
    def complaint(self) -> str:
        """What is said where the time was not enough."""
        return (
            f"compiling took {self._max_seconds:g} s of CPU time up to here; make the constraint smaller, or raise "
            "max_compile_seconds"
        )

    def _is_over(self) -> bool:
        if self._max_seconds is None or self._wall() <= self._surely_until:
            return False
        left = self._end - self._clock()
        self._surely_until = self._wall() + left
        return left < 0


NO_LIMIT = CompileTime()
"""As long as it takes."""
