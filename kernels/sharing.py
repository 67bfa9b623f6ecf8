"""Who shares leading blocks with whom: the batch as a forest of key ranges. Knows block ids, no tensors.

Sorted by their block tables, requests that share a prefix stand side by side, and the shared lengths of
neighbours spell the forest. Each node is a range of keys and the run of (sorted) requests that read it::

    sorted requests    0    1    2    3          nodes (request run, keys), root to leaf
    keys 0..255        ├────┼────┤    │          [0, 3) x [0, 256)
    keys 256..511      ├────┤    │    │          [0, 2) x [256, 512)
    own keys           │    │    │    │          leaves: [0, 1) x [512, n0), [1, 2) x [512, n1),
                                                         [2, 3) x [256, n2), [3, 4) x [0, n3)

Invariant: the nodes over one request cover its keys `[0, context_len)` exactly once, in rising order; inner
nodes begin and end on the grid and hold only keys that every one of their query rows sees; every request has
a leaf of its own, never empty. Cost: one sort, then O(batch x blocks compared) in compiled loops.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .compiled import compiled

IntArray = npt.NDArray[np.int32]


def order_by_prefix(block_tables: IntArray) -> IntArray:
    """A permutation of the requests that puts equal leading blocks side by side. `[B, M]` -> `[B]`."""
    rows = np.ascontiguousarray(block_tables)
    return np.argsort(rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1])))[:, 0]).astype(np.int32)


@compiled()
def shared_lens(
    order: IntArray, block_tables: IntArray, context_lens: IntArray, q_lens: IntArray, block_size: int, grid: int
) -> IntArray:
    """Entry i: keys that sorted requests i - 1 and i share, rounded down to the grid (entry 0 is 0).

    Only keys that both have fully computed count, so that no query row of either is among them.
    """
    shared = np.zeros(len(order), np.int32)
    for i in range(1, len(order)):
        a, b = order[i - 1], order[i]
        computed = min(context_lens[a] - q_lens[a], context_lens[b] - q_lens[b])
        same = 0
        while (same + 1) * block_size <= computed and block_tables[a, same] == block_tables[b, same]:
            same += 1
        shared[i] = same * block_size // grid * grid
    return shared


@compiled()
def forest(shared: IntArray, ends: IntArray) -> IntArray:
    """The nodes `[N, 5]` = (first request, end request, first key, end key, tree), each tree root to leaf.

    shared: from `shared_lens`; ends `[B]`: the context_lens in sorted order. Requests are sorted indices.
    """
    num_requests = len(shared)
    nodes = np.empty((2 * num_requests, 5), np.int32)
    stack = np.empty((2 * num_requests + 1, 3), np.int32)
    num_nodes, tree, begin = 0, 0, 0
    while begin < num_requests:
        end = begin + 1
        while end < num_requests and shared[end] > 0:
            end += 1
        stack[0, 0], stack[0, 1], stack[0, 2] = begin, end, 0
        depth = 1
        while depth > 0:
            depth -= 1
            first, last, key = stack[depth, 0], stack[depth, 1], stack[depth, 2]
            until = ends[first]
            for i in range(first + 1, last):
                until = min(until, shared[i])
            if until > key:
                node = nodes[num_nodes]
                node[0], node[1], node[2], node[3], node[4] = first, last, key, until, tree
                num_nodes += 1
            if last - first > 1:  # children: runs between the neighbours that share no more than `until`
                child_end = last
                for i in range(last - 1, first - 1, -1):
                    if i == first or shared[i] == until:
                        stack[depth, 0], stack[depth, 1], stack[depth, 2] = i, child_end, until
                        depth += 1
                        child_end = i
        tree += 1
        begin = end
    return nodes[:num_nodes]
