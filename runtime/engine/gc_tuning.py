"""Garbage: when Python looks for cycles of dead objects in a process that phloem owns.

While torch and the engine are loaded, hundreds of thousands of objects are made that all stay. Collections find nothing
among them, and were a fifth of the CPU time of a short command, half of it at exit (`hold`, `release`, `end`).

In a server a collection stops all threads, and so some request waits for it. What is loaded at the start is kept out of
collections (68 ms for each full collection of a process with torch in it). What a request makes is freed as soon as
nothing refers to it; cycles are rare. A collection takes 0.1 to 0.6 us an object, all at once: 3 to 12 ms for 20,000 of
them, in the middle of some step. What outlives a collection is looked at once more with all else that has since the
last such time, which takes as long in all however often that is: so it is often, in small portions, and everything is
looked through as rarely as before (`settle`). Most of what stays is what compiled constraints have found out: 108,000
objects of 1,320 of them with 374,000 masks, which were 52 to 97 ms at once.

Knows no engine. Process-wide, so it is for programs that own their process (the command line), never for the library.
"""

from __future__ import annotations

import gc

YOUNG_OBJECTS = 2_000  # containers made and not yet freed, until the young ones are looked through
YOUNG_LOOKS = 5  # until those that outlived them are: up to 10,000
OLD_LOOKS = 200  # of these, until all objects may be


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
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_LOOKS, OLD_LOOKS)
