"""Garbage: how often Python looks for circles of dead objects while a server runs.

A collection stops all threads, and so lands on some request. What is loaded at the start lives as long as the server:
it is taken out of sight (68 ms for each full collection of a process with torch in it). What a request makes
is freed as soon as nothing refers to it; circles are rare. A look takes 0.1 to 0.4 us an object, all at once: 3 to 7 ms
for 20,000 of them, in the middle of some step. So the young ones are looked through in small portions, and what
outlives a look is looked at again only after a hundred of them.

Knows no engine. Process-wide, so it is for programs that own their process (`phloem serve`), never for the library.
"""

from __future__ import annotations

import gc

YOUNG_OBJECTS = 2_000  # containers made and not yet freed, until the young ones are looked through
YOUNG_LOOKS = 100  # until those that outlived them are


def settle() -> None:
    """Collects, keeps what is left out of all later collections, and makes these rarer and short."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_LOOKS, gc.get_threshold()[2])
