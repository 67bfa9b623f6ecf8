"""What another cache would have hit: recorded traffic replayed under a policy of the tree, or under Belady's optimum.

Both functions process requests one after the other, from an empty cache. They count hits as the engine does: to the
token (the partial block after the whole ones is copied), with tails in the cache, and without the last token of each
prompt, which is always computed. Each cache size needs its own replay: Mattson's stack algorithm gives all sizes in one
pass, but only for policies such as LRU whose caches include each other.

Knows token sequences only. Cost: `replay`: one match and one insertion per request; `foresee`: O(n log n) in the blocks
of the traffic.
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
        tokens: packed int32: its prompt, and the tokens after it that it left in the cache.
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
        """What could at best come from the cache: all of the prompt but its last token."""
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
    """How many tokens of each prompt would have hit in a tree of `num_blocks`. For the others see `RadixTree`."""
    tree = RadixTree(block_size, policy=policy, block_cost=block_cost)
    hits = []
    num_made = 0  # blocks so far; each gets a new id
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
    """The same under Belady's policy (1966), which knows the future: it evicts the leaf whose next use is farthest
    away, of equal ones the deepest.

    An upper bound that exceeds the optimum by less than a block per visit: the partial block counts as a hit if it was
    ever in the cache, and tails take no blocks.
    """
    paths, parent = _number_blocks(visits, 4 * block_size)
    uses: list[list[int]] = [[] for _ in parent]  # future visits of each block, the next one last
    for time in range(len(paths) - 1, -1, -1):
        for block in paths[time]:
            uses[block].append(time)
    num_children = [0] * len(parent)
    is_cached = [False] * len(parent)
    leaves: list[tuple[int, int]] = []  # a heap with lazy updates: outdated entries are skipped
    seen = RadixTree(block_size)
    free = num_blocks
    hits = []

    def entry(block: int) -> tuple[int, int]:  # deeper blocks have higher numbers
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
    """The blocks of each visit as numbers from 1, equal if all tokens up to their ends are; and each one's parent."""
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
