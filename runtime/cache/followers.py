"""What is notified of blocks that enter and leave the tree: the tiers below the pool, and KV events.

Names each block once for all of them (`BlockKeys`). Knows no requests. Belongs to the step's thread. Cost: O(blocks
that are new, or leave).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..events.kv_events import KVEvents
from ..offload.block_key import BlockKeys
from ..offload.lower_tiers import LowerTiers


@dataclass(frozen=True, slots=True)
class Followers:
    """What follows the tree; each may be missing."""

    keys: BlockKeys
    tiers: LowerTiers | None = None
    events: KVEvents | None = None

    def entered(
        self, blocks: Sequence[int], tokens: bytes, namespace: str, before: int | None, *, is_loaded: bool = False
    ) -> None:
        """Blocks come into the tree. The last may be a tail; some may be duplicates of what the tree has.

        Args:
            tokens: packed, that they hold, after block `before` of the tree (None: at its root).
            is_loaded: they were read from a tier, not computed.
        """
        keys = self.keys.enter(blocks, tokens, namespace, before)
        if self.events is not None:
            self.events.entered(keys, tokens, namespace)
        if self.tiers is not None and not is_loaded:
            self.tiers.entered(keys, blocks)

    def leaving(self, blocks: Sequence[int]) -> None:
        """Blocks have just been evicted, and are about to be written over."""
        if self.tiers is not None:
            self.tiers.leaving(blocks)
        if self.events is not None:
            self.events.left([key for key, _ in self.keys.of(blocks)])

    def forget(self, blocks: Sequence[int]) -> None:
        """These blocks will hold other tokens."""
        self.keys.forget(blocks)

    def flushed(self, blocks: Sequence[int]) -> None:
        """The caches are emptied: these blocks have left the tree, and are kept nowhere."""
        if self.tiers is not None:
            self.tiers.clear()
        if self.events is not None:
            self.events.left([key for key, _ in self.keys.of(blocks)], is_flush=True)

    def remain(self, blocks: Sequence[int]) -> None:
        """After a fault: these blocks are in the tree, and no others, whatever was reported before."""
        if self.events is not None:
            self.events.remain([key for key, _ in self.keys.of(blocks)])

    def end_step(self) -> None:
        """What was said since the last call belongs together."""
        if self.events is not None:
            self.events.end_batch()

    def close(self) -> None:
        """Ends their threads."""
        if self.tiers is not None:
            self.tiers.close()
        if self.events is not None:
            self.events.close()
