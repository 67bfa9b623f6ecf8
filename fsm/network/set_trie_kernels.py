"""Compiled loops that make the tables of `AnyOrder`: members, and the tries that tell their texts apart.

See `any_order` for the tables. Used by `network_kernels` only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import inner_kernel
from ..memory import (
    A_IS_COUNTED,
    A_MEMBERS,
    A_MISSING,
    A_NODE,
    A_NUM_MEMBERS,
    A_NUM_OTHERS,
    A_NUM_TEXTS,
    A_NUM_WORDS,
    A_OTHERS,
    A_OTHERS_COST,
    A_SPARE,
    A_TRIE,
    A_WORDS,
    K_DEPTH,
    K_EDGES,
    K_END,
    K_ENDS,
    K_FIRST,
    K_NUM_EDGES,
    M_EXCLUDED,
    M_HEAD,
    M_IMPLIED,
    M_IS_REQUIRED,
    M_NUM_EXCLUDED,
    M_NUM_IMPLIED,
    NEVER,
    UNBOUNDED,
    WORD_BITS,
)

# columns of a set as `SetBuilder` describes it
B_OPTION, B_NUM_MEMBERS, B_NUM_TEXTS, B_NUM_OTHERS, B_MINIMUM, B_MAXIMUM, B_LITERAL = range(7)
BUILT_WIDTH = 7


@inner_kernel
def measure_sets(built: Any, data: Any, begins: Any, heads: Any) -> Any:
    """Finds out how much of each text is in its trie (heads, by literal).

    Args:
        built: int32[num_sets, BUILT_WIDTH].
        data: bytes, all literals; begins: int64[num_literals + 1], where each begins.

    Returns:
        The number of trie nodes, of edges (at most), of words that the sets begin with, and of words of the widest.
    """
    num_nodes, num_edges, num_words, max_words = np.int64(0), np.int64(0), 0, 1
    for row in range(built.shape[0]):
        literal, count = built[row, B_LITERAL], built[row, B_NUM_TEXTS]
        before, nodes = np.int64(0), np.int64(1)
        for i in range(literal, literal + count):
            after, length = np.int64(0), begins[i + 1] - begins[i]
            if i + 1 < literal + count:
                limit = min(length, begins[i + 2] - begins[i + 1])
                while after < limit and data[begins[i] + after] == data[begins[i + 1] + after]:
                    after += 1
            nodes += after - before if after > before else 0
            shared = after if after > before else before
            heads[i] = shared + 1 if shared < length else length
            before = after
        num_nodes += nodes
        num_edges += nodes - 1 + count
        words = max((built[row, B_NUM_MEMBERS] + WORD_BITS - 1) // WORD_BITS, 1)
        num_words += 2 * words
        max_words = max(max_words, words)
    return num_nodes, num_edges, num_words, max_words


@inner_kernel
def fill_sets(
    built: Any,
    required: Any,
    relations: Any,
    heads: Any,
    data: Any,
    begins: Any,
    sets: Any,
    members: Any,
    tries: Any,
    edges: Any,
    lists: Any,
) -> None:
    """Fills in all that is known before there are nodes and costs.

    Args:
        built, heads, data, begins: as in `measure_sets`.
        required: int32[num_members], whether it must be written.
        relations: int32, nothing, or for each member how many it implies and excludes, and these, by their numbers.
    """
    member, word, trie, edge, at = 0, 0, 0, 0, 0
    for row in range(built.shape[0]):
        first, count, num_texts = member, built[row, B_NUM_MEMBERS], built[row, B_NUM_TEXTS]
        num_required = 0
        for i in range(count):
            members[member, M_HEAD] = heads[built[row, B_LITERAL] + i] if i < num_texts else 0
            members[member, M_IS_REQUIRED] = required[member]
            num_required += required[member]
            if relations.shape[0]:
                num_implied, num_excluded = relations[at], relations[at + 1]
                members[member, M_IMPLIED], members[member, M_NUM_IMPLIED] = word, num_implied
                members[member, M_EXCLUDED], members[member, M_NUM_EXCLUDED] = word + num_implied, num_excluded
                at += 2
                for _ in range(num_implied + num_excluded):
                    lists[word] = relations[at]
                    word, at = word + 1, at + 1
            member += 1
        num_words = max((count + WORD_BITS - 1) // WORD_BITS, 1)
        maximum = built[row, B_MAXIMUM]
        spare = np.int64(UNBOUNDED) if maximum < 0 else np.int64(maximum - num_required)
        missing = max(built[row, B_MINIMUM] - num_required, 0)
        sets[row, A_NODE], sets[row, A_OTHERS] = built[row, B_OPTION], built[row, B_OPTION] + 3
        sets[row, A_MEMBERS], sets[row, A_NUM_MEMBERS], sets[row, A_NUM_TEXTS] = first, count, num_texts
        sets[row, A_NUM_WORDS], sets[row, A_WORDS] = num_words, word
        sets[row, A_IS_COUNTED], sets[row, A_SPARE] = missing > 0 or spare != UNBOUNDED, spare
        sets[row, A_MISSING], sets[row, A_TRIE], sets[row, A_NUM_OTHERS] = missing, trie, built[row, B_NUM_OTHERS]
        sets[row, A_OTHERS_COST] = NEVER
        word += 2 * num_words
        trie, edge = _fill_trie(built[row, B_LITERAL], num_texts, data, begins, tries, edges, trie, edge)


@inner_kernel
def _fill_trie(
    literal: Any, num_texts: Any, data: Any, begins: Any, tries: Any, edges: Any, root: Any, edge: Any
) -> Any:
    """Adds the nodes that tell sorted texts apart, in breadth-first order; the next free node and edge."""
    tries[root, K_FIRST], tries[root, K_END], tries[root, K_DEPTH] = 0, num_texts, 0
    node, size = root, root + 1
    while node < size:
        first, end, depth = np.int64(tries[node, K_FIRST]), np.int64(tries[node, K_END]), tries[node, K_DEPTH]
        ends = np.int64(end > first and begins[literal + first] + depth == begins[literal + first + 1])
        tries[node, K_EDGES], tries[node, K_ENDS] = edge, ends
        begin = first + ends
        while begin < end:
            byte = data[begins[literal + begin] + depth]
            following = begin + 1
            while following < end and data[begins[literal + following] + depth] == byte:
                following += 1
            edges[edge, 0] = byte
            if following == begin + 1:
                edges[edge, 1] = ~begin
            else:
                edges[edge, 1] = size
                tries[size, K_FIRST], tries[size, K_END], tries[size, K_DEPTH] = begin, following, depth + 1
                size += 1
            edge += 1
            begin = following
        tries[node, K_NUM_EDGES] = edge - tries[node, K_EDGES]
        node += 1
    return size, edge
