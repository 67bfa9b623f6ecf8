"""What happens to blocks, recorded by the threads where it happens. Plain values; the ledger decides what is published.

Keys are those of `offload.block_key`; digests are theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ..offload import BlockKey

Medium = Literal["GPU", "CPU_PINNED", "DISK", "EXTERNAL"]
POOL: Medium = "GPU"  # for consumers "CPU" is a tier below the pool, so the pool is "GPU" wherever the model runs


class Scope(NamedTuple):
    """Which requests may share a block.

    Attributes:
        lora_name: the adapter's; None: none.
        lora_id: a number that stands for its content.
        salt: the caller's namespace; None: none.
    """

    lora_name: str | None = None
    lora_id: int | None = None
    salt: str | None = None


@dataclass(frozen=True, slots=True)
class Entered:
    """Blocks are in the pool's tree, `tokens` (packed) in them, from their beginning on; some may be known to be."""

    keys: Sequence[BlockKey]
    tokens: bytes
    scope: Scope


@dataclass(frozen=True, slots=True)
class Left:
    """Blocks have left the pool's tree."""

    digests: Sequence[bytes]
    is_flush: bool = False


@dataclass(frozen=True, slots=True)
class Remain:
    """Of the blocks that were in the pool's tree these are still there, and no others."""

    digests: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class TierChanged:
    """A tier below the pool has blocks now, or has lost them, in this order."""

    medium: Medium
    changes: Sequence[tuple[bytes, bool]]


@dataclass(frozen=True, slots=True)
class Ended:
    """The engine is closed: nothing is anywhere."""


Fact = Entered | Left | Remain | TierChanged | Ended


@dataclass(frozen=True, slots=True)
class EventStatistics:
    """Counts since start.

    Attributes:
        num_batches: published.
        num_dropped: not published, since too many waited; subscribers find their sequence numbers missing.
    """

    num_batches: int = 0
    num_dropped: int = 0
