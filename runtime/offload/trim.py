"""Which files go when a folder is over its budget.

A block is of use only with all blocks before it, so files are taken from the ends of prefixes, like leaves of the
prefix tree: of all files that no other one follows, the one used longest ago. A file counts as used when any that
follows it was; so the beginning of a conversation, written an hour before its last turn, is as recent as that.

::

    a 10:00 ── b 10:00 ─┬─ c 11:00            goes first: d; then c, b, a
                        └─ d 10:30            x: what it follows is not there any more, so it is of no use
    (gone) ── x 11:30

Knows names, times and sizes; it touches no file. Cost: O(n log n) in the number of files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from .block_key import NO_PARENT

PARENT_BYTES = 8  # of the parent's digest are in a file's name: enough to find it among the files


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A block's file.

    Attributes:
        digest: of its key.
        parent: the first `PARENT_BYTES` of the digest of the block before it; zeros if it is the first.
        used_at: when it was written or last read, in any unit.
    """

    digest: bytes
    parent: bytes
    num_bytes: int
    used_at: float


def choose_victims(files: Sequence[StoredFile], num_bytes: int) -> list[StoredFile]:
    """Those that go, in this order: all that follow nothing, then others until all have `num_bytes` together."""
    by_name = {file.digest[:PARENT_BYTES]: file for file in files}
    children: dict[bytes, list[StoredFile]] = {}
    for file in files:
        children.setdefault(file.parent, []).append(file)
    # from the first blocks down: a file that is not reached follows nothing
    reached = list(children.get(NO_PARENT[:PARENT_BYTES], ()))
    kept = {file.digest for file in reached}
    for file in reached:  # grows meanwhile
        for child in children.get(file.digest[:PARENT_BYTES], ()):
            if child.digest not in kept:  # made-up names may form a cycle
                kept.add(child.digest)
                reached.append(child)
    victims = [file for file in files if file.digest not in kept]
    num_freed = sum(file.num_bytes for file in victims)
    used_at = {file.digest: file.used_at for file in reached}
    num_children = {file.digest: len(children.get(file.digest[:PARENT_BYTES], ())) for file in reached}
    for file in reversed(reached):
        parent = by_name.get(file.parent)
        if parent is not None and parent.digest in used_at:
            used_at[parent.digest] = max(used_at[parent.digest], used_at[file.digest])
    leaves = [(used_at[file.digest], file.digest, file) for file in reached if not num_children[file.digest]]
    heapify(leaves)
    while leaves and num_freed < num_bytes:
        _, _, file = heappop(leaves)
        victims.append(file)
        num_freed += file.num_bytes
        parent = by_name.get(file.parent)
        if parent is not None and parent.digest in num_children:
            num_children[parent.digest] -= 1
            if not num_children[parent.digest]:
                heappush(leaves, (used_at[parent.digest], parent.digest, parent))
    return victims
