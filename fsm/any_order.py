"""The tables behind `AnyOrder`: which member a text belongs to, and what has to be known of each of them.

A set of members that have been written is a run of frames on the stack, 31 members to a frame: a bit for "cannot be
written (any more)" and a bit for "must still be written"; below them one with two counts if their number is bounded.
Frames are interned, so only the sets that somebody has met exist. Where a member begins, its text is read with a trie:

::

    members  "id": ..  "name": ..  "note": ..       (their texts sorted, numbered from 0)

    root --"--> . --i--> member 0 (d": follows)
                  --n--> . --a--> member 1 (me": follows)
                           --o--> member 2 (te": follows)

A node of the trie stands for a range of members, first .. end - 1; a byte is let through if one of these can still be
written. So the place in the trie and the set are all there is to know, however many members there are. Behind the node
at which a member is alone it is a plain chain of positions, as everywhere else.

This module only builds; `any_order_kernels` and `key_kernels` run. Costs a few microseconds per member.
"""

from __future__ import annotations

import functools
from array import array
from dataclasses import dataclass

import numpy as np

from ..errors import ConstraintTooLarge
from .alphabet import Ints
from .expression import AnyOrder
from .memory import (
    A_MEMBERS,
    A_NUM_MEMBERS,
    A_NUM_OTHERS,
    M_ENTRY,
    MEMBER_WIDTH,
    NEVER,
    SET_WIDTH,
    TRIE_WIDTH,
    UNBOUNDED,
    WORD_BITS,
)

MAX_TRIE_NODES = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class SetTables:
    """All `AnyOrder`s of a network.

    Attributes:
        sets: int32[num_sets, SET_WIDTH]; members: int32[num_members, MEMBER_WIDTH].
        tries: int32[num_trie_nodes, TRIE_WIDTH]; edges: int32[num_edges, 2], byte and trie node or ~member.
        lists: members that are implied or excluded, and first words of sets.
        max_words: number of frames that the widest set needs.
    """

    sets: Ints
    members: Ints
    tries: Ints
    edges: Ints
    lists: Ints
    max_words: int

    @property
    def num_bytes(self) -> int:
        """Memory of the arrays."""
        return sum(array.nbytes for array in (self.sets, self.members, self.tries, self.edges, self.lists))

    def entries(self, row: int) -> list[int]:
        """The nodes at which the members of a set go on once their head is read."""
        first, count = self.sets[row, (A_MEMBERS, A_NUM_MEMBERS)].tolist()
        return self.members[first : first + count, M_ENTRY].tolist()  # type: ignore[no-any-return]  # numpy's

    def label(self, row: int) -> str:
        """The set in a few words, for people to read."""
        count, others = self.sets[row, (A_NUM_MEMBERS, A_NUM_OTHERS)].tolist()
        return f"{count} members{' and others' if others else ''}, in any order"


class SetBuilder:
    """Collects the sets of a network."""

    def __init__(self) -> None:
        self.sets = array("i")
        self.members = array("i")
        self.tries = array("i")
        self.edges = array("i")
        self.lists = array("i")
        self.max_words = 1

    @property
    def num_sets(self) -> int:
        return len(self.sets) // SET_WIDTH

    def _add_trie(self, texts: list[bytes]) -> list[int]:
        """Adds the nodes that tell sorted texts apart; the depth at which each is alone or ends."""
        root = len(self.tries) // TRIE_WIDTH
        tries, edges = list[int](), list[int]()  # lists grow faster than arrays
        num_edges_before = len(self.edges) // 2
        heads = [0] * len(texts)
        nodes = [(0, len(texts), 0)]
        for first, end, depth in nodes:  # which grows meanwhile
            ends = int(len(texts[first]) == depth) if end > first else 0
            i = first + ends
            if ends:
                heads[first] = depth
            edges_before = len(edges)
            while i < end:
                byte = texts[i][depth]
                begin = i
                i += 1
                while i < end and texts[i][depth] == byte:
                    i += 1
                if i == begin + 1:
                    heads[begin] = depth + 1
                    target = ~begin
                else:
                    target = root + len(nodes)
                    nodes.append((begin, i, depth + 1))
                edges += (byte, target)
            num_edges = (len(edges) - edges_before) // 2
            tries += (first, end, num_edges_before + edges_before // 2, num_edges, depth, ends)
        self.tries.extend(tries)
        self.edges.extend(edges)
        if root + len(nodes) > MAX_TRIE_NODES:
            raise ConstraintTooLarge(f"the names of members need more than {MAX_TRIE_NODES} positions")
        return heads

    def add(self, expression: AnyOrder, first_option: int) -> list[tuple[int, int]]:
        """Adds a set: its members in the order in which they are numbered, with the bytes of their texts in the trie.

        Args:
            first_option: where among the network's options the nodes of the set will be: the set itself, its key,
                the separator, the others, and what follows the head of each member, in order.
        """
        members, lists = expression.members, self.lists
        texts = sorted((member.text, index) for index, member in enumerate(members) if member.text is not None)
        order = [index for _, index in texts]
        num_texts = len(order)
        trie = len(self.tries) // TRIE_WIDTH
        heads = self._add_trie([text for text, _ in texts])
        if num_texts < len(members):
            order += [index for index, member in enumerate(members) if member.text is None]
            heads += [0] * (len(members) - num_texts)
        first = len(self.members) // MEMBER_WIDTH
        numbers = {index: number for number, index in enumerate(order)}
        num_required, rows = 0, list[int]()
        for index, head in zip(order, heads, strict=True):
            member, at = members[index], len(lists)
            num_required += member.is_required
            end_implied = at + len(member.implied)
            if member.implied or member.excluded:
                lists.extend(numbers[other] for other in (*member.implied, *member.excluded))
            rows += (0, head, 0, member.is_required, 0, at, end_implied - at, end_implied, len(member.excluded))
        self.members.extend(rows)
        num_words = max(-(-len(members) // WORD_BITS), 1)
        self.max_words = max(self.max_words, num_words)
        spare = UNBOUNDED if expression.maximum is None else expression.maximum - num_required
        missing = max(expression.minimum - num_required, 0)
        is_counted = int(missing > 0 or spare != UNBOUNDED)
        words = len(lists)
        lists.extend(bytes(2 * num_words))
        self.sets.extend((first_option, 0, 0, 0, first, len(members), num_texts, num_words))
        self.sets.extend((is_counted, spare, missing, words, trie, first_option + 3, len(expression.others), NEVER))
        return list(zip(order, heads, strict=True))

    def tables(self) -> SetTables:
        """The arrays, still without costs: see `set_cost_kernels.settle_sets`."""
        if not self.sets:
            return _no_sets()
        return SetTables(
            np.array(self.sets or [0] * SET_WIDTH, np.int32).reshape(-1, SET_WIDTH),
            np.array(self.members or [0] * MEMBER_WIDTH, np.int32).reshape(-1, MEMBER_WIDTH),
            np.array(self.tries or [0] * TRIE_WIDTH, np.int32).reshape(-1, TRIE_WIDTH),
            np.array(self.edges or [0, 0], np.int32).reshape(-1, 2),
            np.array(self.lists or [0], np.int32),
            self.max_words,
        )


@functools.cache
def _no_sets() -> SetTables:
    """The arrays of a grammar without sets, which is most of them: one shared object."""
    return SetTables(
        np.zeros((1, SET_WIDTH), np.int32),
        np.zeros((1, MEMBER_WIDTH), np.int32),
        np.zeros((1, TRIE_WIDTH), np.int32),
        np.zeros((1, 2), np.int32),
        np.zeros(1, np.int32),
        SetBuilder().max_words,
    )
