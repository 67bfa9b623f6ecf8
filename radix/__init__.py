"""The prefix cache's radix tree: token prefixes → KV block ids. Knows no tensors and no requests."""

if "." not in __name__:  # Python was started in the repository
    raise ImportError("radix is a part of the package phloem: import phloem.radix")

from .blocks import BlockPool, OutOfBlocks
from .explain import Explanation
from .pins import Pin, PinBudgetExceeded
from .results import COLUMN_NAMES, NOTHING, Columns, Event, Inserted, Match, Node, Statistics
from .tokens import common_prefix, pack, unpack
from .tree import POLICIES, BlockCost, RadixTree, equal_cost
from .what_if import Visit, foresee, replay

__all__ = [
    "COLUMN_NAMES",
    "NOTHING",
    "POLICIES",
    "BlockCost",
    "BlockPool",
    "Columns",
    "Event",
    "Explanation",
    "Inserted",
    "Match",
    "Node",
    "OutOfBlocks",
    "Pin",
    "PinBudgetExceeded",
    "RadixTree",
    "Statistics",
    "Visit",
    "common_prefix",
    "equal_cost",
    "foresee",
    "pack",
    "replay",
    "unpack",
]
