"""Collection: Python's cyclic garbage collector, put off while one constraint is compiled.

A large description becomes hundreds of thousands of small objects that are all freed together when the network is laid
out, none of them in a reference cycle. Collecting among them finds nothing, and was a third of the time.

The switch belongs to the process, so other threads do without the collector as well, for as long as one compilation may
take (`Limits.max_compile_seconds`); their cycles are found right afterwards. Several threads may compile at once,
without a lock and without shared state: only a call that found the collector on turns it on again, so it ends as it
began, and it is on at the latest when all are done. A program that turns it off in that very moment finds it on later.

A refusal would keep alive, in the frames of its traceback and in their functions, all that was made up to there, and
the first collection would go through it. So its traceback is dropped: the error names its place in the description, not
in this package. Any other error is a fault of the package, and is left as it is.

The first collection goes through all new objects that are still alive: 0.13 s for 600,000. So what a compilation makes
must be freed by then: `while_put_off` decorates the outermost function that holds such objects.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from ..errors import PhloemError

Given = ParamSpec("Given")
Result = TypeVar("Result")


class put_off:
    """No automatic collection until the block is left; `gc.collect` works as before."""

    __slots__ = ("_was_on",)

    def __enter__(self) -> None:
        self._was_on = gc.isenabled()
        if self._was_on:
            gc.disable()

    def __exit__(self, _: object, error: BaseException | None, traceback: object) -> None:
        del traceback  # it would keep the frames until the search is on again
        cause = error
        while isinstance(error, PhloemError) and cause is not None:
            cause.__traceback__ = None
            cause = cause.__context__
        if self._was_on:
            gc.enable()


def while_put_off(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """The function, with no automatic collection until it has returned and its variables are freed."""

    @functools.wraps(function)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        with put_off():
            return function(*args, **kwargs)

    return call
