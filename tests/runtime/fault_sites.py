"""Every call site of a step, found by watching one; and the same step again with an exception at one of them.

A *site* is a line of the product that calls something: Python functions, generators that go on, functions in C. What
the interpreter reports to a profiler of both kinds of call is written down in one run; in another run the profiler
raises where a given call of a given site is reported, so that the call does not take place.

Python's garbage collector is off meanwhile: when it runs, and whose callbacks and finalizers it then calls from the
line where it happens to run, differs from one run to the next.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import phloem
from phloem.runtime.engine.engine_core import EngineCore

ROOT = Path(phloem.__file__).parent
WATCHED = tuple(str(ROOT / room) + "/" for room in ("runtime", "radix"))
OUTSIDE = {EngineCore.step.__code__}  # it calls the guard, and has done nothing before and after
NEVER_FAIL = {"lock.__exit__", "RLock.__exit__", "lock.release", "RLock.release"}  # and nothing interrupts them

DEALING = {"Scheduler.plan", "Scheduler.plan_ahead", "Scheduler._is_coming", "Stepper._commit", "Stepper._compact"}
"""What deals with one request after the other, each called `request` there."""


class Fault(Exception):
    pass


class Interrupt(KeyboardInterrupt):
    """Ctrl-C where the profiler is; what is raised then goes on to the caller of the step."""


class Site(NamedTuple):
    """A line of `caller` that calls something of this name, in Python or in C."""

    caller: CodeType
    line: int
    callee: str
    is_python: bool

    def __str__(self) -> str:
        place = Path(self.caller.co_filename).relative_to(ROOT)
        return f"{place}:{self.line} {self.caller.co_name} -> {self.callee}"


class Watch:
    """Counts the calls of all sites while it is on; raises at one of them.

    Args:
        at: a site, and at which of its calls.
        error: what is raised.

    Attributes:
        dealt_with: id and index of the request that the raising site dealt with, where it is one of `DEALING`.
    """

    def __init__(self, at: tuple[Site, int] | None = None, error: type[BaseException] = Fault) -> None:
        self.calls: Counter[Site] = Counter()
        self.has_raised = False
        self.dealt_with: tuple[str, int] | None = None
        self._at = at
        self._error = error

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            caller = frame.f_back
        elif event == "c_call":
            caller = frame
        else:
            return
        if caller is None:
            return
        if self._at is not None:
            if caller.f_code is not self._at[0].caller or caller.f_lineno != self._at[0].line:
                return
        elif not caller.f_code.co_filename.startswith(WATCHED) or caller.f_code in OUTSIDE:
            return
        callee = frame.f_code.co_qualname if event == "call" else getattr(argument, "__qualname__", "?")
        if event == "c_call" and callee in NEVER_FAIL:
            return
        site = Site(caller.f_code, caller.f_lineno, callee, event == "call")
        self.calls[site] += 1
        if self._at is not None and not self.has_raised and site == self._at[0] and self.calls[site] == self._at[1]:
            self.has_raised = True
            request = caller.f_locals.get("request") if caller.f_code.co_qualname in DEALING else None
            self.dealt_with = None if request is None else (request.request_id, request.index)
            raise self._error(str(site))

    @contextmanager
    def on(self) -> Iterator[None]:
        """Watches what happens meanwhile on this thread."""
        before, was_collecting = sys.getprofile(), gc.isenabled()
        gc.disable()
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(before)
            if was_collecting:
                gc.enable()

    def unseen(self, function: Callable[[], None]) -> None:
        """Does something that is none of the step's."""
        before = sys.getprofile()
        sys.setprofile(None)
        try:
            function()
        finally:
            sys.setprofile(before)
