"""Trie: the vocabulary as a tree of bytes, flattened in depth-first order.

::

    node      0    1    2    3 ...        depth counts from 1 (children of the root)
    byte      a    b    c    x            end[node] is the first node that is not below `node`:
    depth     1    2    2    1            a refused byte jumps there
    end       3    2    3    ..           token[node] is the token spelt from the root to here, or -1

Ids with the same bytes are chained: token[node] is the smallest, next_same[id] the next one, -1 the last.

Larger sub-trees have a *summary*: the ASCII bytes and the kinds of other characters that occur in them, whether all of
it is well-formed UTF-8 when it begins at a character boundary, and how deep it is. A walk whose state lets through
all of that leaves out the sub-tree, and takes its tokens from the list of all in the order of the nodes.
It knows no automata. Built once per vocabulary: 130,000 tokens take about 0.1 s.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..._core import fsm as core
from ..text.alphabet import Ints
from ..text.wide_kinds import wide_kinds

MAX_TOKEN_LEN = 255  # longer tokens are never allowed: no real vocabulary has one that a constraint could use


class Trie(core.TokenTrie):
    """The trie of all tokens that have bytes; empty tokens (specials, unused ids) are left out.

    Args:
        tokens: the bytes of each id.
        wanted: bool[len(tokens)]; only these, if given.

    Attributes:
        next_same: int32[len(tokens)] (see the drawing). The arrays over nodes, and roots (int32[256]: the node of each
            first byte, or -1) are copied from the core when they are first asked for.
    """

    def __init__(self, tokens: Sequence[bytes], wanted: npt.NDArray[np.bool_] | None = None) -> None:
        self.next_same = np.full(len(tokens), -1, np.int32)
        first: dict[bytes, int] = {}
        last: dict[bytes, int] = {}
        ids_wanted = range(len(tokens)) if wanted is None else np.flatnonzero(wanted).tolist()
        for token_id in ids_wanted:
            token = tokens[token_id]
            if token and len(token) <= MAX_TOKEN_LEN:
                if token in first:
                    self.next_same[last[token]] = token_id
                else:
                    first[token] = token_id
                last[token] = token_id
        ordered = sorted(first)
        joined = np.frombuffer(b"".join(ordered), np.uint8)
        offsets = np.zeros(len(ordered) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, ordered), np.int64, len(ordered)), out=offsets[1:])
        ids = np.fromiter((first[token] for token in ordered), np.int32, len(ordered))
        super().__init__(joined, offsets, ids, self.next_same, wide_kinds())

    @cached_property
    def data(self) -> npt.NDArray[np.uint8]:
        return self.node_bytes

    @cached_property
    def ends(self) -> Ints:
        return self.node_ends

    @cached_property
    def tokens(self) -> Ints:
        return self.node_tokens

    @cached_property
    def roots(self) -> Ints:
        return self.root_nodes
