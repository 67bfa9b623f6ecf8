"""What subscribers receive: three kinds of events, as vLLM has them."""

from __future__ import annotations

from dataclasses import dataclass, field

from .facts import Medium, Scope


@dataclass(slots=True)
class BlockStored:
    """A run of blocks, each the parent of the next.

    Attributes:
        hashes: unsigned 64-bit, of the whole prefix up to the end of each block.
        parent: of the block before the first; None: there is none.
        tokens: packed, of each block.
    """

    medium: Medium
    scope: Scope
    parent: int | None
    hashes: list[int] = field(default_factory=list)
    tokens: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class BlockRemoved:
    medium: Medium
    hashes: list[int] = field(default_factory=list)


@dataclass(slots=True)
class AllBlocksCleared:
    """In all media."""


Event = BlockStored | BlockRemoved | AllBlocksCleared
