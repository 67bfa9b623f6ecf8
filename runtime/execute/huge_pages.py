"""Huge pages: what a program has loaded at its start, moved to pages of 2 MiB.

A request touches a little of very much: objects, tables and code that lie all over some thousand pages of 4 KiB. After
anything else has run, the processor has to look up where each of these is. In huge pages the same memory takes a
hundred look-ups: the first mask of a constraint comes a tenth sooner, masks and steps a twentieth
(`bench/studies/mask_turns.py`).

::

    4 KiB pages    |a| |b|c| | |d| ... |z|    512 of them, each somewhere in memory
    2 MiB page     |a . b c . . d  ...  z|    the same addresses

The kernel is asked to do so at once (MADV_COLLAPSE: Linux 6.1 and later), whatever it does by itself. Elsewhere nothing
happens. What is allocated later lies in ordinary pages, unless it fills a gap.

Cost: once, 6 ms of CPU time for a huge page. One that was not full before takes more memory than it did: a twentieth
of a server's. Knows nothing of what lies in memory. Process-wide, so it is for programs that own their process
(`phloem serve`), never for the library.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

MADV_COLLAPSE = 25
MAX_BYTES = 512 << 20
HUGE_PAGE_SIZE = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
MAPPINGS = Path("/proc/self/maps")


def gather(max_bytes: int = MAX_BYTES) -> int:
    """Moves what the process holds to huge pages, the heap first; how many bytes lie in such now.

    Args:
        max_bytes: of memory that is looked at, which bounds the time this takes.
    """
    try:
        size, mappings = int(HUGE_PAGE_SIZE.read_text()), MAPPINGS.read_text()
    except (OSError, ValueError):
        return 0  # not Linux, or one without huge pages
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    gathered = 0
    for address, _ in zip(places(mappings, size), range(max_bytes // size), strict=False):
        # it fails where the kernel knows no such request, or cannot: then all is as it was
        gathered += size if madvise(address, size, MADV_COLLAPSE) == 0 else 0
    return gathered


def places(mappings: str, size: int) -> Iterator[int]:
    """Where a huge page fits into memory of the process alone: first in the heap, then in the smallest mappings.

    The largest ones are a model's weights, of which nothing is looked up.

    Args:
        mappings: as /proc/self/maps has them; size: of a huge page in bytes, at multiples of which it may begin.
    """
    found: list[tuple[bool, int, range]] = []
    for line in mappings.splitlines():
        bounds, permissions, _, _, _, *name = line.split(maxsplit=5)
        if permissions == "rw-p" and (not name or name[0].startswith(("[heap]", "[anon"))):
            begin, end = [int(bound, 16) for bound in bounds.split("-")]
            fitting = range(-(-begin // size) * size, end // size * size, size)
            found.append((name != ["[heap]"], end - begin, fitting))
    for _, _, fitting in sorted(found, key=lambda mapping: mapping[:2]):
        yield from fitting
