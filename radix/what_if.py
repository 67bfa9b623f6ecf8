"""What would have been hit: recorded traffic played again, under a policy or by somebody who knows the future.

For people who choose a pool size or a policy. Both functions take the same requests in the same order, one after the
other, and begin with an empty cache. Neither touches the tree that is in use.

They count whole blocks; with `to_the_token` they count tokens as an engine does that copies what a block has in common
with the next one that is wanted, keeps last blocks that are not full, and computes the last token of every prompt. So
for requests that came one after the other, and no evictions, that share is the engine's own hit rate.

Knows token sequences only. Cost: that of the matches and insertions replayed; `foresee` O(blocks of the traffic · log).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from .eviction import BlockCost, equal_cost
from .tokens import common_prefix
from .tree import RadixTree


@dataclass(frozen=True, slots=True)
class Visit:
    """One request as the cache saw it.

    Attributes:
        namespace: in which.
        tokens: packed int32: what it asked for, and what it left behind after that.
        num_asked_tokens: how many of them it asked for (its prompt).

    Raises:
        ValueError: the bytes of `tokens` are no multiple of 4.
    """

    namespace: str
    tokens: bytes
    num_asked_tokens: int

    def __post_init__(self) -> None:
        if len(self.tokens) % 4:
            raise ValueError(f"packed int32 take 4 bytes each, so they cannot be {len(self.tokens)} bytes")


class _Worth:
    """What the first blocks of a sequence are worth together."""

    def __init__(self, weigh: BlockCost, block_size: int) -> None:
        self._weigh = weigh
        self._block_size = block_size
        self._sums = [0.0]

    def of(self, num_blocks: int) -> float:
        sums = self._sums
        while len(sums) <= num_blocks:
            sums.append(sums[-1] + self._weigh(len(sums) * self._block_size))
        return sums[num_blocks]


def replay(
    visits: Sequence[Visit],
    *,
    num_blocks: int,
    block_size: int,
    policy: str = "lru",
    block_cost: BlockCost = equal_cost,
    num_ahead: int = 0,
    weigh: BlockCost = equal_cost,
    to_the_token: bool = False,
) -> float:
    """Share of the asked blocks that a tree of `num_blocks` would have held, a block counted `weigh(its end)` times; or
    `to_the_token`, of the asked tokens, which are not weighed.

    With `num_ahead` it knows that many visits to come, as a scheduler knows its queue, and spares what they need.
    `block_cost` is for the policy "cost"; weighed by it, the share is that of the computation that was spared.
    """
    tree = RadixTree(block_size, policy=policy, block_cost=block_cost)
    worth = _Worth(weigh, block_size)
    ahead = deque(visits[:num_ahead])
    ordered = sorted((visit.namespace, visit.tokens) for visit in ahead)
    free = num_blocks
    num_made = 0  # blocks so far: each has a number of its own
    asked = hit = 0.0

    def count_needed(namespace: str, path: bytes) -> int:
        at = bisect_left(ordered, (namespace, path))
        around = (tokens for other, tokens in ordered[max(0, at - 1) : at + 1] if other == namespace)
        return max((common_prefix(path, tokens) >> 2 for tokens in around), default=0)

    for index, visit in enumerate(visits):
        if num_ahead:
            ahead.popleft()
            del ordered[bisect_left(ordered, (visit.namespace, visit.tokens))]
            if index + num_ahead < len(visits):
                coming = visits[index + num_ahead]
                ahead.append(coming)
                key = coming.namespace, coming.tokens
                ordered.insert(bisect_left(ordered, key), key)
        num_needed = len(visit.tokens) // (4 * block_size)
        if to_the_token:
            num_needed = -(-len(visit.tokens) // (4 * block_size))
            asked += visit.num_asked_tokens
            hit += _count_hit(tree, visit)
        match = tree.match(visit.tokens, visit.namespace)
        num_known = match.num_tokens // block_size
        if not to_the_token:
            num_wanted = visit.num_asked_tokens // block_size
            asked += worth.of(num_wanted)
            hit += worth.of(min(num_known, num_wanted))
        tree.lease(match.node)
        if num_needed - num_known > free:
            missing = num_needed - num_known - free
            free += len(tree.evict(missing, spare=count_needed if num_ahead else None))
        num_kept = min(num_needed, num_known + free)
        if num_kept > num_known:
            new = visit.tokens[match.num_tokens * 4 : num_kept * 4 * block_size]
            tree.insert(new, range(num_made, num_made + num_kept - num_known), visit.namespace, after=match.node)
            num_made += num_kept - num_known
            free = num_blocks - tree.num_cached_blocks
        tree.release(match.node)
    return hit / asked if asked else 0.0


def _count_hit(tree: RadixTree, visit: Visit) -> int:
    """Tokens of a prompt that an engine would not compute: all that agree, but for its last."""
    match = tree.match(visit.tokens[: 4 * max(0, visit.num_asked_tokens - 1)], visit.namespace)
    if match.num_partial_tokens and tree.is_tail(match.partial_node):
        tree.touch(match.partial_node)
    return match.num_tokens + match.num_partial_tokens


def foresee(
    visits: Sequence[Visit],
    *,
    num_blocks: int,
    block_size: int,
    weigh: BlockCost = equal_cost,
    to_the_token: bool = False,
) -> float:
    """The same share for who knows the future: the optimum, up to rounding, where all blocks are worth the same.

    Among the blocks that nothing hangs on, the one whose next use is farthest goes first (Belady 1966), the deepest
    among equals. `to_the_token`, what a wanted block has in common with other blocks counts whether or not these are
    still there, and last blocks that are not full take no room; so it is the optimum up to less than a block per visit.
    """
    worth = _Worth(weigh, block_size)
    paths, parent = _paths(visits, 4 * block_size)
    siblings = _Siblings(4 * block_size)
    uses: list[deque[int]] = [deque() for _ in range(len(parent))]
    for time, path in enumerate(paths):
        for block in path:
            uses[block].append(time)
    num_children = [0] * len(parent)
    depth = [0] * len(parent)
    is_cached = [False] * len(parent)
    leaves: list[tuple[int, int, int]] = []  # entries go stale; they are checked when they come up
    free = num_blocks
    asked = hit = 0.0

    def entry(block: int) -> tuple[int, int, int]:
        return -(uses[block][0] if uses[block] else len(paths)), -depth[block], block

    for visit, path in zip(visits, paths, strict=True):
        for index, block in enumerate(path):
            uses[block].popleft()
            depth[block] = index
        num_known = next((index for index, block in enumerate(path) if not is_cached[block]), len(path))
        if to_the_token:
            asked += visit.num_asked_tokens
            limit = max(0, visit.num_asked_tokens - 1)
            num_whole = min(num_known, limit // block_size)
            above = path[num_whole - 1] if num_whole else 0
            chunk = visit.tokens[4 * num_whole * block_size : 4 * (num_whole + 1) * block_size]
            wanted = chunk[: 4 * (limit - num_whole * block_size)]
            hit += num_whole * block_size
            if num_whole < num_known:
                hit += len(wanted) >> 2
            else:
                hit += siblings.agreement(above, visit.namespace, wanted, chunk)
            siblings.add(path, visit)
        else:
            num_wanted = visit.num_asked_tokens // block_size
            asked += worth.of(num_wanted)
            hit += worth.of(min(num_known, num_wanted))
        own = set(path[:num_known])
        while free < len(path) - num_known and leaves:
            top = heappop(leaves)
            block = top[2]
            if block in own or not is_cached[block] or num_children[block] or top != entry(block):
                continue
            is_cached[block] = False
            free += 1
            above = parent[block]
            num_children[above] -= 1
            if above and not num_children[above] and above not in own:
                heappush(leaves, entry(above))
        last = num_known + min(free, len(path) - num_known)
        for block in path[num_known:last]:
            is_cached[block] = True
            num_children[parent[block]] += 1
            free -= 1
        for block in path[max(0, num_known - 1) : last][-1:]:
            heappush(leaves, entry(block))
    return hit / asked if asked else 0.0


class _Siblings:
    """What has followed each block so far: blocks, and ends that fill none. Namespaces tell first blocks apart."""

    def __init__(self, block_bytes: int) -> None:
        self._block_bytes = block_bytes
        self._known: dict[tuple[int, str], list[bytes]] = {}  # sorted

    def add(self, path: Sequence[int], visit: Visit) -> None:
        """Puts down the blocks of a visit, of which `path` has the numbers, and what is behind them."""
        above, namespace = 0, visit.namespace
        for index in range(len(path) + 1):
            chunk = visit.tokens[index * self._block_bytes : (index + 1) * self._block_bytes]
            known = self._known.setdefault((above, namespace), [])
            at = bisect_left(known, chunk)
            if chunk and known[at : at + 1] != [chunk]:
                known.insert(at, chunk)
            if index < len(path):
                above, namespace = path[index], ""

    def agreement(self, above: int, namespace: str, wanted: bytes, block: bytes) -> int:
        """How many tokens of `wanted`, the beginning of `block`, another one behind `above` begins with."""
        known = self._known.get((above, "" if above else namespace), [])
        at = bisect_left(known, wanted)
        itself = block if len(block) == self._block_bytes else None
        around = [other for other in known[max(0, at - 1) : at + 2] if other != itself]
        return max((common_prefix(wanted, other) >> 2 for other in around), default=0)


def _paths(visits: Sequence[Visit], block_bytes: int) -> tuple[list[list[int]], list[int]]:
    """The blocks of each visit as numbers from 1, equal where all tokens up to their end are; and each one's parent."""
    numbers: dict[tuple[int, bytes, str], int] = {}
    parent = [0]
    paths = []
    for visit in visits:
        path, above = [], 0
        namespace = visit.namespace  # tells first blocks apart; those behind them have different parents
        for at in range(0, len(visit.tokens) - block_bytes + 1, block_bytes):
            key = above, visit.tokens[at : at + block_bytes], namespace
            number = numbers.get(key)
            if number is None:
                number = numbers[key] = len(parent)
                parent.append(above)
            above, namespace = number, ""
            path.append(above)
        paths.append(path)
    return paths, parent
