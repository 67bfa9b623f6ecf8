"""The compiled operations of the tree, as Python calls them; what each does is said where it is defined.

The first argument of each is the address of a `Memory`, whatever that was made for: nothing is compiled per tree.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Int32s = npt.NDArray[np.int32]


class Operations(NamedTuple):
    """Ways in. An argument of another type than the signature says is an error or worse, never converted."""

    find: Callable[[int, int, bytes, float], tuple[int, int, int, int, int]]
    look: Callable[[int, int, bytes], tuple[int, int, int, int]]
    find_way: Callable[[int, int, bytes], tuple[int, int]]
    insert: Callable[[int, int, int, bytes, Int32s, int, float], tuple[int, int, bytes]]
    lease: Callable[[int, int], int]
    release: Callable[[int, int], int]
    evict: Callable[[int, int, float], tuple[bytes, bool]]
    find_cells: Callable[[int, int], int]
    find_blocks: Callable[[int, int], tuple[int, bytes]]
    count_sole_blocks: Callable[[int, int], int]
    touch: Callable[[int, int, int, float], int]
    take_leaf: Callable[[int], int]
    cut_leaf: Callable[[int, int, int, int, float], tuple[int, bytes]]
    make_root: Callable[[int], int]
    drop_root: Callable[[int], int]


@functools.cache
def compile_operations() -> Operations:
    """Compiles, or loads from disk, what all trees share: some seconds or a tenth of one, once per process."""
    # They bring numba, for which only who makes a tree should wait.
    from . import evict_kernels, tree_kernels
    from .compiled import INT32S, NUMBER, PACKED, SECONDS, entry

    return Operations(
        find=entry(tree_kernels.find, NUMBER, NUMBER, PACKED, SECONDS),
        look=entry(tree_kernels.look, NUMBER, NUMBER, PACKED),
        find_way=entry(tree_kernels.find_way, NUMBER, NUMBER, PACKED),
        insert=entry(tree_kernels.insert, NUMBER, NUMBER, NUMBER, PACKED, INT32S, NUMBER, SECONDS),
        lease=entry(tree_kernels.lease, NUMBER, NUMBER),
        release=entry(tree_kernels.release, NUMBER, NUMBER),
        evict=entry(evict_kernels.evict, NUMBER, NUMBER, SECONDS),
        find_cells=entry(tree_kernels.find_cells, NUMBER, NUMBER),
        find_blocks=entry(tree_kernels.find_blocks, NUMBER, NUMBER),
        count_sole_blocks=entry(tree_kernels.count_sole_blocks, NUMBER, NUMBER),
        touch=entry(tree_kernels.touch, NUMBER, NUMBER, NUMBER, SECONDS),
        take_leaf=entry(evict_kernels.take_leaf, NUMBER),
        cut_leaf=entry(evict_kernels.cut_leaf, NUMBER, NUMBER, NUMBER, NUMBER, SECONDS),
        make_root=entry(tree_kernels.make_root, NUMBER),
        drop_root=entry(evict_kernels.drop_root, NUMBER),
    )
