"""Token prefixes → KV block ids. Knows no tensors and no requests."""

from .blocks import BlockPool, OutOfBlocks
from .eviction import POLICIES
from .node import Node
from .pins import Pin, PinBudgetExceeded
from .tokens import pack, unpack
from .tree import Inserted, Match, RadixTree

__all__ = [
    "POLICIES",
    "BlockPool",
    "Inserted",
    "Match",
    "Node",
    "OutOfBlocks",
    "Pin",
    "PinBudgetExceeded",
    "RadixTree",
    "pack",
    "unpack",
]
