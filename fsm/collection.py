"""Collection: Python's search for circles of dead objects, put off while one constraint is compiled.

A large description becomes hundreds of thousands of small objects that all die together when the network is laid out,
none of them in a circle. Searching through them finds nothing, and was a third of the time.

The switch belongs to the process, so other threads do without the search as well, for as long as one compilation may
take (`Limits.max_compile_seconds`); what they leave behind is found right after. Several threads may compile at once,
without a lock and without anything shared: only who found the search on turns it on again, so that it ends as it began,
and it is on at the latest when all are done. A program that turns it off itself in that very moment finds it on later.

A refusal would keep all that was made up to there, in the frames that it passed through and in the functions that these
belong to, and the first search would go through it. So it is told without them: it names its place in the description,
not in this package. Any other error is a fault of the package, and is left as it is.

The first search goes through whatever is new and still alive: 0.13 s for 600,000 objects. So what a compilation makes
must be gone by then, and what puts the search off is the outermost function that holds such objects (`while_put_off`).
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
    """No collection by itself until the block is left; `gc.collect` works as ever."""

    __slots__ = ("_was_on",)

    def __enter__(self) -> None:
        self._was_on = gc.isenabled()
        if self._was_on:
            gc.disable()

    def __exit__(self, _: object, error: BaseException | None, traceback: object) -> None:
        del traceback  # it would keep the frames until the search is on again
        told = error
        while isinstance(error, PhloemError) and told is not None:
            told.__traceback__ = None
            told = told.__context__
        if self._was_on:
            gc.enable()


def while_put_off(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """The function, with no collection by itself until it has returned, and its variables are gone."""

    @functools.wraps(function)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        with put_off():
            return function(*args, **kwargs)

    return call
