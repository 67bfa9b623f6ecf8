"""Garbage: how often Python looks for circles of dead objects while a server runs.

A collection stops all threads, and so lands on some request. What is loaded at the start lives as long as the server:
it is taken out of sight (68 ms for each full collection of a process with torch and numba in it). What a request makes
is freed as soon as nothing refers to it; circles are rare. So it is enough to look for them after 20,000 new objects,
not after 700: a large schema makes 10,000 while it is compiled, and looking through them took a tenth of that time.
Nor is it good to wait for many more: a look takes about 0.4 us an object, all at once.

Knows no engine. Process-wide, so it is for programs that own their process (`phloem serve`), never for the library.
"""

from __future__ import annotations

import gc

YOUNG_OBJECTS = 20_000  # containers made and not yet freed, until the young ones are looked through


def settle() -> None:
    """Collects, keeps what is left out of all later collections, and makes these rarer."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])
