"""The memory of a tree as people, and all that is not in a hurry, read it."""

from __future__ import annotations

from .memory import NUMBER_BITS, Memory
from .operations import Int32s, Operations
from .tokens import without_padding


class View:
    """Reads one tree, of which it must be told which root is whose.

    A node is named by its number here; by what `RadixTree` hands out where a parameter is called `handle`.

    Attributes:
        roots: of the namespaces that there are.
        namespaces: the inverse.
    """

    __slots__ = ("_operations", "block_size", "memory", "namespaces", "roots")

    def __init__(self, memory: Memory, operations: Operations, block_size: int) -> None:
        self.memory = memory
        self.block_size = block_size
        self.roots: dict[str, int] = {}
        self.namespaces: dict[int, str] = {}
        self._operations = operations

    def field(self, node: int, name: str) -> int:
        """One of the integers of a node."""
        return int(self.memory.nodes[name][node])

    @staticmethod
    def open(handle: int) -> int:
        """The number of a node that has not been evicted."""
        return handle & NUMBER_BITS

    def namespace(self, handle: int) -> str:
        """In which a node is."""
        return self.namespaces[self.field(self.open(handle), "root")]

    def path_cells(self, handle: int) -> Int32s:
        """From the root to the end of a node; ValueError if the node was evicted. O(depth), like what follows."""
        num_cells = self._operations.find_cells(self.memory.address, handle)
        if num_cells < 0:
            raise ValueError("the prefix has been evicted since it was matched: lease it before evicting")
        return self.memory.found[:num_cells].copy()

    def path_tokens(self, handle: int) -> bytes:
        """Packed tokens from the root to the end of a node."""
        return self.memory.tokens[self.path_cells(handle)].tobytes()

    def is_tail(self, handle: int) -> bool:
        """Whether a prefix ends in a block that is filled up with padding."""
        cells = self.path_cells(handle)
        return len(cells) > 0 and bool(self.memory.tokens[cells[-1], -1] < 0)

    def run_cells(self, node: int) -> range:
        """Those of one run."""
        first = self.field(node, "first_cell")
        return range(first, first + self.field(node, "num_blocks"))

    def run_tokens(self, node: int) -> bytes:
        """The packed tokens of one run."""
        cells = self.run_cells(node)
        return self.memory.tokens[cells.start : cells.stop].tobytes()

    def way_on(self, node: int, num_before: int, count: int) -> bytes:
        """At most `count` packed tokens from within the run of a node on, while there is one child only."""
        runs: list[bytes] = []
        num_tokens = -num_before
        while node > 0 and num_tokens < count:
            runs.append(self.run_tokens(node))
            num_tokens += len(runs[-1]) >> 2
            node = self.field(node, "children")  # a fork's number is negative
        return without_padding(b"".join(runs)[4 * num_before : 4 * (num_before + count)])

    def run_blocks(self, node: int) -> list[int]:
        """The ids of one run."""
        cells = self.run_cells(node)
        blocks: list[int] = self.memory.blocks[cells.start : cells.stop].tolist()
        return blocks

    def handle(self, node: int) -> int:
        """What `RadixTree` hands out for a node."""
        return self.field(node, "generation") << 32 | node

    def nodes(self) -> list[int]:
        """All that have a run. O(nodes)."""
        found: list[int] = []
        stack = list(self.roots.values())
        while stack:
            children = self.children(stack.pop())
            found += children
            stack += children
        return found

    def children(self, node: int) -> list[int]:
        """By number."""
        found, stack = [], [self.field(node, "children")]
        while stack:
            reference = stack.pop()
            if reference < 0:
                fork = self.memory.forks[-reference]
                stack += [int(fork["zero"]), int(fork["one"])]
            elif reference:
                found.append(reference)
        return sorted(found)
