"""What groups of layers need besides the keys of all tokens, to go on after a whole block: *parts* of blocks.

::

    blocks of a prefix         [ 0 ][ 1 ][ 2 ][ 3 ][ 4 ]      keys and values of layers that see all tokens
    parts, recurrent layers         ●         ●               the state after the block: to go on after 3 that of 3
    parts, windows                       [ 2 ][ 3 ]           keys of the block in those layers: of 2 and 3

Few blocks have parts that are wanted. In a tier a part is rows of the size of a block, under keys of its own that are
made from the block's (`part_keys`), so it takes room there and makes room like blocks. Knows numbers; no tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartRules:
    """Which parts a model needs.

    Attributes:
        num_bytes: of a part.
        needed: given a number of whole blocks, the indices of those whose parts are needed to go on after them.
    """

    num_bytes: int
    needed: Callable[[int], range]

    def num_rows(self, block_bytes: int) -> int:
        """Rows of the size of a block that hold a part."""
        return -(-self.num_bytes // block_bytes)


@dataclass(frozen=True, slots=True)
class PoolPrefix:
    """What of a request's tokens is in the pool.

    Attributes:
        tokens: packed, that it might not have to compute.
        num_cached: of these, tokens whose keys are in the tree. num_resumable: after which it could go on now.
        there: indices of cached blocks whose parts are in the pool.
        below: of those whose parts are not, and were offered to the tiers.
    """

    tokens: bytes
    num_cached: int
    num_resumable: int
    there: Collection[int] = ()
    below: Collection[int] = ()
