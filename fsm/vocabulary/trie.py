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
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..compiled import inner_kernel, kernel
from ..memory import BEFORE_SHIFT, HAS_CUT, HEIGHT_SHIFT
from ..text.alphabet import Ints
from ..text.wide_kinds import wide_kinds

SUMMARISE_FROM = 3  # nodes of a sub-tree; smaller ones are as quickly walked as skipped
MAX_TOKEN_LEN = 255  # longer tokens are never allowed: no real vocabulary has one that a constraint could use


@dataclass(frozen=True, slots=True, eq=False)
class Trie:
    """Arrays over nodes (see the drawing), and

    roots: int32[256], the node of each first byte, or -1.
    summary_of: int32[num_nodes], index into `summaries`, or -1 (a small sub-tree, or not skippable).
    summaries: uint64[n, 3]: the ASCII bytes that occur (two words); the kinds of other characters (`wide_kinds`), plus
        HAS_CUT if some token ends within a character, the height in characters << HEIGHT_SHIFT, and the number of
        characters before the sub-tree << BEFORE_SHIFT. Of a character that is cut any one kind that it may become.
    ordered: int32[num_tokens], the tokens in the order of their nodes, all ids with the same bytes.
    firsts: int32[num_nodes + 1], how many of them end before each node.
    lens: uint8[num_tokens], the number of characters begun in each of them, if it is well-formed.
    """

    data: npt.NDArray[np.uint8]
    depths: npt.NDArray[np.uint8]
    ends: Ints
    tokens: Ints
    next_same: Ints
    roots: Ints
    summary_of: Ints
    summaries: npt.NDArray[np.uint64]
    ordered: Ints
    firsts: Ints
    lens: npt.NDArray[np.uint8]

    @property
    def num_nodes(self) -> int:
        return len(self.data)


def build_trie(tokens: Sequence[bytes], wanted: npt.NDArray[np.bool_] | None = None) -> Trie:
    """The trie of all tokens that have bytes; empty tokens (specials, unused ids) are left out.

    Args:
        tokens: the bytes of each id.
        wanted: bool[len(tokens)]; only these, if given.
    """
    next_same = np.full(len(tokens), -1, np.int32)
    first: dict[bytes, int] = {}
    last: dict[bytes, int] = {}
    ids_wanted = range(len(tokens)) if wanted is None else np.flatnonzero(wanted).tolist()
    for token_id in ids_wanted:
        token = tokens[token_id]
        if token and len(token) <= MAX_TOKEN_LEN:
            if token in first:
                next_same[last[token]] = token_id
            else:
                first[token] = token_id
            last[token] = token_id
    ordered = sorted(first)
    joined = np.frombuffer(b"".join(ordered), np.uint8)
    offsets = np.zeros(len(ordered) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, ordered), np.int64, len(ordered)), out=offsets[1:])
    ids = np.fromiter((first[token] for token in ordered), np.int32, len(ordered))
    data, depths, ends, node_tokens = _flatten(joined, offsets, ids)
    roots = np.full(256, -1, np.int32)
    node = 0
    while node < len(data):
        roots[data[node]] = node
        node = int(ends[node])
    wide = wide_kinds()
    num_ids = int((next_same >= 0).sum()) + len(ordered)
    summary_of, summaries, in_order, firsts, token_lens = _summarise(
        data, depths, ends, node_tokens, next_same, num_ids, wide.template, wide.kinds, wide.below
    )
    return Trie(data, depths, ends, node_tokens, next_same, roots, summary_of, summaries, in_order, firsts, token_lens)


@kernel
def plain_lens(data: Any, offsets: Any, plain0: Any, plain1: Any, limit: Any) -> Any:
    """int32[num_tokens]: the number of characters of each token that is plain, else 0.

    Plain: printable ASCII of the given two words of bits, and everything beyond ASCII but the separators U+2028 and
    U+2029; well-formed, except that the last character may be unfinished, if it cannot become a separator; at most
    `limit` characters.
    """
    num_tokens = offsets.shape[0] - 1
    lens = np.zeros(num_tokens, np.int32)
    for token in range(num_tokens):
        state, count = np.int64(0), 0
        begin, end = offsets[token], offsets[token + 1]
        for position in range(begin, end):
            byte = np.int64(data[position])
            if state == 0:
                count += 1
                if byte < 0x80:
                    word = plain0 if byte < 64 else plain1
                    if not (word >> np.uint64(byte & 63)) & np.uint64(1):
                        count = limit + 1
            elif 0xA8 <= byte <= 0xA9 and position >= begin + 2:
                is_separator = data[position - 2] == 0xE2 and data[position - 1] == 0x80
                count = limit + 1 if is_separator else count
            state = np.int64(_utf8_step(state, byte))
            if state < 0 or count > limit:
                count = 0
                break
        if state != 0 and (data[end - 1] == 0xE2 or (data[end - 1] == 0x80 and data[end - 2] == 0xE2)):
            count = 0
        lens[token] = count
    return lens


@kernel
def token_ends(data: Any, ends: Any, tokens: Any, roots: Any, text: Any, begin: Any, follow: Any, found: Any) -> Any:
    """Where the tokens end that stand in a text (uint8[n]) at `begin`; fills found (int32[256]).

    Returns (number of them, 1 if some token reaches beyond the text into a byte whose flag in follow (uint8[256]) is
    set, else 0).
    """
    count, position = 0, begin
    node = np.int64(roots[text[begin]])
    while node >= 0:
        position += 1
        if tokens[node] >= 0:
            found[count] = position
            count += 1
        child, last = node + 1, np.int64(ends[node])
        node = np.int64(-1)
        while child < last:
            if position == text.shape[0]:
                if follow[data[child]]:
                    return count, 1
            elif data[child] == text[position]:
                node = child
                break
            child = np.int64(ends[child])
    return count, 0


@kernel
def _flatten(joined: Any, offsets: Any, ids: Any) -> Any:
    """Nodes of sorted, distinct tokens in depth-first order."""
    num_nodes = 0
    previous_begin, previous_len = 0, 0
    for index in range(ids.shape[0]):
        begin, length = offsets[index], offsets[index + 1] - offsets[index]
        shared = 0
        while shared < min(length, previous_len) and joined[begin + shared] == joined[previous_begin + shared]:
            shared += 1
        num_nodes += length - shared
        previous_begin, previous_len = begin, length
    data = np.zeros(num_nodes, np.uint8)
    depths = np.zeros(num_nodes, np.uint8)
    ends = np.full(num_nodes, num_nodes, np.int32)
    tokens = np.full(num_nodes, -1, np.int32)
    open_nodes = np.zeros(512, np.int32)
    node = 0
    previous_begin, previous_len = 0, 0
    for index in range(ids.shape[0]):
        begin, length = offsets[index], offsets[index + 1] - offsets[index]
        shared = 0
        while shared < min(length, previous_len) and joined[begin + shared] == joined[previous_begin + shared]:
            shared += 1
        for depth in range(shared + 1, previous_len + 1):
            ends[open_nodes[depth]] = node
        for depth in range(shared + 1, length + 1):
            data[node] = joined[begin + depth - 1]
            depths[node] = depth
            open_nodes[depth] = node
            node += 1
        tokens[node - 1] = ids[index]
        previous_begin, previous_len = begin, length
    return data, depths, ends, tokens


@inner_kernel
def _utf8_step(state: Any, byte: Any) -> Any:
    """UTF-8 by bytes: 0 at a boundary, 1 to 3 continuation bytes to come, 4 to 7 after E0, ED, F0, F4; -1 malformed."""
    if state == 0:
        if byte < 0x80:
            return 0
        if byte < 0xC2 or byte > 0xF4:
            return -1
        if byte < 0xE0:
            return 1
        if byte < 0xF0:
            return 4 if byte == 0xE0 else 5 if byte == 0xED else 2
        return 6 if byte == 0xF0 else 7 if byte == 0xF4 else 3
    low, high = 0x80, 0xBF
    if state == 4:
        low = 0xA0
    elif state == 5:
        high = 0x9F
    elif state == 6:
        low = 0x90
    elif state == 7:
        high = 0x8F
    if state < 0 or byte < low or byte > high:
        return -1
    return 1 if 4 <= state <= 5 else 2 if state >= 6 else state - 1


@kernel
def _summarise(
    data: Any, depths: Any, ends: Any, tokens: Any, next_same: Any, num_ids: Any, template: Any, kinds: Any, below: Any
) -> Any:
    """summary_of, summaries, ordered, firsts and lens of a `Trie`; the last three arguments are `WideKinds`."""
    num_nodes = data.shape[0]
    ordered, firsts = np.empty(num_ids, np.int32), np.zeros(num_nodes + 1, np.int32)
    lens = np.zeros(num_ids, np.uint8)
    # by node: what it adds to the two words of ASCII bytes and to the third one; -1 there: malformed
    low, high, extra = np.zeros(num_nodes, np.uint64), np.zeros(num_nodes, np.uint64), np.zeros(num_nodes, np.int32)
    begins, skippable = np.zeros(num_nodes, np.uint8), np.zeros(num_nodes, np.bool_)
    inner, chars = np.zeros(512, np.int32), np.zeros(512, np.int32)  # by depth; inner < 0: malformed
    count, num_summaries = 0, 0
    before = np.zeros(num_nodes, np.uint8)
    for node in range(num_nodes):
        depth, byte = np.int64(depths[node]), np.int64(data[node])
        parent = inner[depth - 1]
        begins[node] = parent == 0
        before[node] = min(chars[depth - 1], 255)
        chars[depth] = chars[depth - 1] + begins[node]
        spelt = template[parent, byte] if parent >= 0 else 0
        inner[depth] = spelt if spelt > 0 else 0 if spelt < 0 else -1
        if spelt == 0:
            extra[node] = -1
        elif spelt < 0 and byte >= 0x80:
            extra[node] = kinds[-spelt]
        elif byte < 64:
            low[node] = np.uint64(1) << np.uint64(byte)
        elif byte < 128:
            high[node] = np.uint64(1) << np.uint64(byte - 64)
        elif ends[node] == node + 1:
            extra[node] = below[spelt] & -np.int64(below[spelt])
        firsts[node] = count
        token = tokens[node]
        if token >= 0 and spelt > 0:
            extra[node] |= HAS_CUT
        while token >= 0:
            ordered[count], lens[count] = token, min(chars[depth], 255)
            count += 1
            token = next_same[token]
        skippable[node] = parent == 0 and ends[node] - node >= SUMMARISE_FROM
        num_summaries += skippable[node]
    firsts[num_nodes] = count
    summary_of = np.full(num_nodes, -1, np.int32)
    summaries = np.zeros((num_summaries, 3), np.uint64)
    heights = np.zeros(num_nodes, np.uint8)
    count = 0
    for node in range(num_nodes - 1, -1, -1):  # so that children come before their parents
        height = 0
        child = node + 1
        while child < ends[node]:
            low[node] |= low[child]
            high[node] |= high[child]
            extra[node] |= extra[child]  # -1 stays -1
            height = max(height, heights[child])
            child = ends[child]
        heights[node] = min(height + begins[node], 255)
        if skippable[node] and extra[node] >= 0:
            summaries[count, 0], summaries[count, 1] = low[node], high[node]
            summaries[count, 2] = (
                extra[node] | np.int64(heights[node]) << HEIGHT_SHIFT | np.int64(before[node]) << BEFORE_SHIFT
            )
            summary_of[node] = count
            count += 1
    return summary_of, summaries[:count], ordered, firsts, lens
