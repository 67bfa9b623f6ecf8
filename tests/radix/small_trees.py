"""Small trees for tests, built in one line."""

from __future__ import annotations

from phloem.radix import RadixTree, pack


class Clock:
    """A clock that changes only when it is set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def make_tree(*runs: tuple[list[int], list[int]], block_size: int = 1, **options: object) -> RadixTree:
    """A tree with these (tokens, blocks) inserted in this order."""
    tree = RadixTree(block_size, **options)  # type: ignore[arg-type]  # options of the constructor under test
    for tokens, blocks in runs:
        tree.insert(pack(tokens), blocks, "")
    return tree
