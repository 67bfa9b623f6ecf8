"""Garbage: when Python looks for cycles of dead objects in a process that phloem owns.

While torch and the engine are loaded, hundreds of thousands of objects are made that all stay. Collections find nothing
among them, and were a fifth of the CPU time of a short command, half of it at exit (`hold`, `release`, `end`).

In a server a collection stops all threads, and so some request waits for it. What is loaded at the start is kept out of
collections (68 ms for each full collection of a process with torch in it). What a request makes is freed as soon as
nothing refers to it; cycles are rare. A collection takes 0.1 to 0.4 us an object, all at once: 3 to 7 ms for 20,000 of
them, in the middle of some step. So young objects are searched in small portions, and what survives is searched
again only after a hundred of them (`settle`).

Knows no engine. Process-wide, so it is for programs that own their process (the command line), never for the library.
"""

from __future__ import annotations

import gc

YOUNG_OBJECTS = 2_000  # containers made and not yet freed, until the young ones are looked through
YOUNG_LOOKS = 100  # until those that outlived them are


def hold() -> None:
    """No collection by itself until `release`."""
    gc.disable()


def release() -> None:
    """Ends `hold`: what has been made is kept out of later collections. Does nothing where collections are on."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def end() -> None:
    """The process ends: no collection at exit. The system takes the memory back; finalizers in cycles do not run."""
    gc.freeze()


def settle() -> None:
    """Collects, keeps what is left out of all later collections, and makes these rarer and short."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_LOOKS, gc.get_threshold()[2])
