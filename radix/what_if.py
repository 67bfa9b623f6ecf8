"""What another cache would have hit: recorded traffic replayed, under a policy or with Belady's.

Both functions take requests in order, one after the other, and begin with an empty cache. They count as an engine does
that copies what a block has in common with the next one that is wanted, keeps last blocks that are not full, and
computes the last token of every prompt. (A replay per size: Mattson's stack distances would give all sizes at once, but
for LRU only.)

Knows token sequences only. Cost: matches and insertions replayed; `foresee` O(blocks of the traffic · log).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from .tree import BlockCost, RadixTree, Spare, equal_cost


@dataclass(frozen=True, slots=True)
class Visit:
    """One request as the cache saw it.

    Attributes:
        tokens: packed int32: its prompt, and what it left in the cache after that.
        num_asked_tokens: how many of them are its prompt.

    Raises:
        ValueError: the bytes of `tokens` are no multiple of 4.
    """

    namespace: str
    tokens: bytes
    num_asked_tokens: int

    def __post_init__(self) -> None:
        if len(self.tokens) % 4:
            raise ValueError(f"packed int32 take 4 bytes each, so they cannot be {len(self.tokens)} bytes")

    @property
    def wanted(self) -> bytes:
        """What would best come from the cache: all of the prompt but its last token."""
        return self.tokens[: 4 * max(0, self.num_asked_tokens - 1)]


def replay(
    visits: Iterable[Visit],
    *,
    num_blocks: int,
    block_size: int,
    policy: str = "lru",
    block_cost: BlockCost = equal_cost,
    spare: Spare | None = None,
) -> list[int]:
    """How many tokens of each prompt a tree of `num_blocks` would have had. `block_cost` and `spare` are the tree's."""
    tree = RadixTree(block_size, policy=policy, block_cost=block_cost)
    hits = []
    num_made = 0  # blocks so far: each has an id of its own
    for visit in visits:
        match = tree.match(visit.wanted, visit.namespace)
        if match.num_partial_tokens and tree.is_tail(match.partial_node):
            tree.touch(match.partial_node)
        hits.append(match.num_tokens + match.num_partial_tokens)
        tree.lease(match.node)
        rest = visit.tokens[4 * match.num_tokens :]
        num_new = -(-len(rest) // (4 * block_size))
        tree.evict(num_new - (num_blocks - tree.num_cached_blocks), spare)
        num_new = min(num_new, num_blocks - tree.num_cached_blocks)
        new = range(num_made, num_made + num_new)
        tree.insert(rest[: 4 * block_size * num_new], new, visit.namespace, after=match.node)
        num_made += num_new
        tree.release(match.node)
    return hits


def foresee(visits: Sequence[Visit], *, num_blocks: int, block_size: int) -> list[int]:
    """The same with Belady's policy (1966), which knows the future: the leaf whose next use is farthest goes first, the
    deepest among equals.

    The optimum up to less than a block per visit: the block after the cached ones counts as far as it agrees with any
    that was ever there, and last blocks that are not full take no room.
    """
    paths, parent = _number_blocks(visits, 4 * block_size)
    uses: list[list[int]] = [[] for _ in parent]  # visits to come of each block, the next one last
    for time in range(len(paths) - 1, -1, -1):
        for block in paths[time]:
            uses[block].append(time)
    num_children = [0] * len(parent)
    is_cached = [False] * len(parent)
    leaves: list[tuple[int, int]] = []  # a heap; entries go out of date and are checked when they come up
    seen = RadixTree(block_size)
    free = num_blocks
    hits = []

    def entry(block: int) -> tuple[int, int]:  # deeper blocks have greater numbers
        return -(uses[block][-1] if uses[block] else len(paths)), -block

    for visit, path in zip(visits, paths, strict=True):
        num_known = next((index for index, block in enumerate(path) if not is_cached[block]), len(path))
        num_wanted = len(visit.wanted) // 4
        num_hit = min(num_known * block_size, num_wanted)
        num_agreeing = seen.peek(visit.wanted, visit.namespace) - num_hit
        hits.append(num_hit + (num_agreeing if num_agreeing < block_size else 0))
        seen.insert(visit.tokens, range(-(-len(visit.tokens) // (4 * block_size))), visit.namespace)
        for block in path:
            uses[block].pop()
        own = set(path[:num_known])
        while free < len(path) - num_known and leaves:
            top = heappop(leaves)
            block = -top[1]
            if block in own or not is_cached[block] or num_children[block] or top != entry(block):
                continue
            is_cached[block] = False
            free += 1
            num_children[parent[block]] -= 1
            if parent[block] and not num_children[parent[block]] and parent[block] not in own:
                heappush(leaves, entry(parent[block]))
        last = min(len(path), num_known + free)
        for block in path[num_known:last]:
            is_cached[block] = True
            num_children[parent[block]] += 1
        free -= last - num_known
        if last:
            heappush(leaves, entry(path[last - 1]))
    return hits


def _number_blocks(visits: Sequence[Visit], block_bytes: int) -> tuple[list[list[int]], list[int]]:
    """The blocks of each visit as numbers from 1, equal where all tokens up to their end are; and each one's parent."""
    numbers: dict[tuple[int, bytes, str], int] = {}
    parent = [0]
    paths = []
    for visit in visits:
        path = [0]
        for at in range(0, len(visit.tokens) - block_bytes + 1, block_bytes):
            key = path[-1], visit.tokens[at : at + block_bytes], visit.namespace
            if key not in numbers:
                numbers[key] = len(parent)
                parent.append(path[-1])
            path.append(numbers[key])
        paths.append(path[1:])
    return paths, parent
