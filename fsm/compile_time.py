"""CompileTime: how long one constraint may take to compile, and the error that says so.

Work is bounded by counting it, with constants next to the loops that do it; this is the bound that a user sets. Loops
over parts of a description check it before each part, naming its place. It is CPU time of the compiling thread: a busy
machine refuses nothing that an idle one accepts.

Reading CPU time costs a microsecond, wall time a twentieth of that. A thread cannot use more CPU time than wall time,
so CPU time is not read before the limit has passed on the wall.

What is compiled does not depend on the time that it took. So all objects of this class are equal, and a function that
caches its results may take one as an argument: later calls find the result, whatever their own time.

It knows nothing of what is compiled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from ..errors import ConstraintTooLarge

MAX_SECONDS = 0.8
"""The default limit of one constraint: every input has an answer within a second."""


FEW = 128
"""Small items between two checks of the time; a power of two."""

Item = TypeVar("Item")


class CompileTime:
    """The time of one compilation, running from now on.

    Args:
        max_seconds: None: without end.
        clock: seconds spent so far.
        wall: seconds; never fewer than `clock` counts.
    """

    __slots__ = ("_clock", "_earliest_end", "_end", "_max_seconds", "_wall")

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
        self._earliest_end = 0.0 if max_seconds is None else wall() + max_seconds

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CompileTime)

    def __hash__(self) -> int:
        return 0

    def check_here(self) -> None:
        """`check` for code that does not know its place; its caller names the place."""
        self.check()

    def check(self, pointer: str | None = None, name: str = "") -> None:
        """ConstraintTooLarge if the time is over; `pointer` or `name`: of what would be compiled next."""
        if self._is_over():
            place = "" if pointer is None and not name else f"{name or pointer or '/'}: "
            raise ConstraintTooLarge(place + self.complaint, pointer=pointer or "")

    def over(self, items: Iterable[Item], pointer: str | None = None, name: str = "") -> Iterator[Item]:
        """The items, with the time checked before the first and now and then: for loops over many small things.

        pointer, name: as `check` has them.
        """
        if type(items) is tuple and len(items) <= FEW:  # which is most often so, and takes a tenth of the time
            self.check(pointer, name)
            return iter(items)
        return self._over(items, pointer, name)

    def _over(self, items: Iterable[Item], pointer: str | None, name: str) -> Iterator[Item]:
        for index, item in enumerate(items):
            if index & (FEW - 1) == 0:
                self.check(pointer, name)
            yield item

    def most_work(self, max_work: int, work_per_second: int) -> int:
        """How much work there is time for, at most `max_work`: for code that cannot check the time while it runs."""
        if self._max_seconds is None:
            return max_work
        return min(max_work, int(max(self._end - self._clock(), 0) * work_per_second))

    @property
    def complaint(self) -> str:
        """The message when the time was not enough."""
        return (
            f"compiling took {self._max_seconds:g} s of CPU time up to here; make the constraint smaller, or raise "
            "max_compile_seconds"
        )

    def _is_over(self) -> bool:
        if self._max_seconds is None or self._wall() <= self._earliest_end:
            return False
        left = self._end - self._clock()
        self._earliest_end = self._wall() + left
        return left < 0


NO_LIMIT = CompileTime()
"""As long as it takes."""
