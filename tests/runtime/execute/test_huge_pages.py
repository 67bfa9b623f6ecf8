"""Huge pages: which places of memory they fit into, and that nothing in it changes."""

from __future__ import annotations

import subprocess
import sys

from phloem.runtime.execute.huge_pages import places

PAGE = 0x200000
MAPPINGS = """\
00400000-00800000 r-xp 00000000 fe:00 12 /usr/bin/program
00800000-00c00000 rw-p 00400000 fe:00 12 /usr/bin/program
10100000-10700000 rw-p 00000000 00:00 0 [heap]
20000000-20800000 rw-p 00000000 00:00 0
30000000-30200000 rw-p 00000000 00:00 0
40000000-40600000 rw-p 00000000 00:00 0 [anon: arena]
50000000-50400000 r--p 00000000 00:00 0
60000000-60400000 rw-s 00000000 00:00 0
70000000-701fffff rw-p 00000000 00:00 0
7ffc0000-7ffe1000 rw-p 00000000 00:00 0 [stack]
"""

CHECK = """
from phloem.runtime.execute.huge_pages import gather

blocks = [bytes((index & 255,)) * 70_000 for index in range(200)]
large = bytearray(range(256)) * 100_000
assert gather(0) == 0
before = hash(tuple(blocks)), hash(bytes(large))
assert gather() >= 0
assert (hash(tuple(blocks)), hash(bytes(large))) == before
large[0] = 7
assert large.count(7) == 100_001
"""


def test_huge_pages_fit_into_memory_of_the_process_alone_the_heap_first_then_the_smallest_mapping() -> None:
    heap, smallest = [0x10200000, 0x10400000], [0x30000000]
    others = [*range(0x40000000, 0x40600000, PAGE), *range(0x20000000, 0x20800000, PAGE)]
    assert list(places(MAPPINGS, PAGE)) == heap + smallest + others


def test_nothing_in_memory_changes() -> None:
    subprocess.run([sys.executable, "-c", CHECK], check=True)
