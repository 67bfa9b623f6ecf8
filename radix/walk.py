"""Moving along the tree and cutting it: what `match`, `insert`, `peek` and `explain` have in common.

All lengths and offsets here are in bytes of packed tokens.
"""

from __future__ import annotations

from collections.abc import Iterable

from .node import Node, unpack_blocks
from .siblings import Siblings
from .tokens import common_prefix

# A shortcut spans this many edges, unless their tokens take more bytes: then comparing them dominates anyway.
SKIP_EDGES = 16
MAX_SKIP_BYTES = 8192
# A node with more children than this gets an ordered index of them when its closest child is asked for.
MAX_CHILDREN_TO_SCAN = 8


def walk(node: Node, tokens: bytes, block_bytes: int) -> tuple[Node, int, Node | None, int]:
    """Descend from `node` as far as whole edges agree.

    Returns (node, offset, edge, agreed): `node` is the end of the last whole edge, `offset` where that is. If a
    child's first block agrees but not all of its run does, it is `edge`, and `agreed` (at least a block, less
    than the run) says how far; else `edge` is None and `agreed` 0.

    Lays a shortcut over every `SKIP_EDGES` edges walked one by one: deep chains of short edges (a chat of many
    short turns, blocks of one token) cost a sixteenth from then on.
    """
    start, offset, start_offset, num_edges = node, 0, 0, 0
    while True:
        skip = node.skip
        if skip is not None and tokens.startswith(skip[0], offset):
            offset += len(skip[0])
            node = skip[2]
            start, start_offset, num_edges = node, offset, 0
            continue
        children = node.children
        child = children.get(tokens[offset : offset + block_bytes]) if children else None
        if child is None:
            return node, offset, None, 0
        run = child.tokens
        if not tokens.startswith(run, offset):
            return node, offset, child, common_prefix(run, tokens, offset)
        node = child
        offset += len(run)
        num_edges += 1
        if num_edges == SKIP_EDGES:
            if offset - start_offset <= MAX_SKIP_BYTES:
                _lay_skip(start, node, tokens[start_offset:offset], block_bytes)
            start, start_offset, num_edges = node, offset, 0


def reach(root: Node, tokens: bytes, block_bytes: int) -> tuple[Node | None, int, int]:
    """How far the tree knows `tokens`: (node, agreed, cached).

    `agreed` counts to the token, `cached` whole blocks; `node` is the end of the latter, None if it is inside an
    edge.
    """
    node, offset, edge, agreed = walk(root, tokens, block_bytes)
    if edge is None:
        return node, offset + closest_child(node, tokens, offset, block_bytes)[1], offset
    return None, offset + agreed, offset + agreed - agreed % block_bytes


def closest_child(node: Node, tokens: bytes, offset: int, block_bytes: int) -> tuple[Node | None, int]:
    """The child whose first block agrees with `tokens[offset:]` furthest, and how far.

    For the end of a walk: no child agrees in a whole block. (None, 0) if none agrees in a token.
    """
    first = tokens[offset : offset + 4]
    children = node.children
    if len(first) < 4 or block_bytes == 4 or not children:
        return None, 0
    candidates: Iterable[bytes] = children
    if len(children) > MAX_CHILDREN_TO_SCAN:
        if node.siblings is None:
            node.siblings = Siblings(candidates)
        candidates = node.siblings.closest(tokens[offset : offset + block_bytes])
    best, most = None, 0
    for key in candidates:
        if key.startswith(first):
            agreed = common_prefix(key, tokens, offset)
            if agreed > most:
                best, most = children[key], agreed
    return best, most


def split(lower: Node, at: int, block_bytes: int) -> Node:
    """Put a new node over the first `at` bytes of a run, and return it.

    `lower` keeps its identity, and with it its leases, its children and its place in the eviction queue.
    """
    parent = lower.parent
    assert parent is not None and parent.children is not None
    cut = 4 * at // block_bytes
    upper = Node(lower.namespace, parent, lower.key, lower.tokens[:at], lower.blocks[:cut])
    parent.children[upper.key] = upper
    lower.key = lower.tokens[at : at + block_bytes]
    lower.tokens = lower.tokens[at:]
    lower.blocks = lower.blocks[cut:]
    lower.parent = upper
    upper.children = {lower.key: lower}
    upper.num_holds = 1 if lower.num_holds else 0
    upper.last_used = lower.last_used
    upper.era = lower.era
    upper.priority = lower.priority
    return upper


def differing_blocks(row: bytes, node: Node) -> list[int]:
    """The packed ids in `row` other than those at the end of the path to `node`."""
    path = node.path_blocks()
    if path.endswith(row):
        return []
    pairs = zip(unpack_blocks(row), unpack_blocks(path[-len(row) :]), strict=True)
    return [given for given, held in pairs if given != held]


def _lay_skip(start: Node, end: Node, run: bytes, block_bytes: int) -> None:
    """Make `start` skip to its descendant `end`; a node starts and ends one skip at most, the newest."""
    if start.skip is not None:
        start.skip[2].skipped_by = None
    if end.skipped_by is not None:
        end.skipped_by.skip = None
    start.skip = run, end.path_blocks()[-4 * len(run) // block_bytes :], end
    end.skipped_by = start


def drop_skip(end: Node) -> None:
    """Forget the skip to a node whose place is about to change."""
    if end.skipped_by is not None:
        end.skipped_by.skip = None
        end.skipped_by = None
