"""Collection: Python's search for circles of dead objects, put off while one constraint is compiled.

A large description becomes hundreds of thousands of small objects that all die together when the network is laid out,
none of them in a circle. Searching through them finds nothing, and was a third of the time.

The switch belongs to the process, so other threads do without the search as well, for as long as one compilation may
take (`Limits.max_compile_seconds`); what they leave behind is found right after. Several threads may compile at once,
without a lock and without anything shared: only who found the search on turns it on again, so that it ends as it began,
and it is on at the latest when all are done. A program that turns it off itself in that very moment finds it on later.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def put_off() -> Iterator[None]:
    """No collection by itself until the block is left; `gc.collect` works as ever."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
