"""What can be written next of members in any order (`any_order`), for who looks for a way to the end of the set.

Of n members that are owed there are 2^n sets, and n! orders. Only of a few are all looked at: a token that ends one
member and begins another may be the only way to the second. Of more, a way begins with one of the first of those that
are owed, or, if none is, with one of the cheapest. Whoever goes along a way that is looked at is always at one that is
looked at from there.
"""

from __future__ import annotations

from typing import NamedTuple

from ..columns import (
    A_IS_COUNTED,
    A_MEMBERS,
    A_MISSING,
    A_NODE,
    A_NUM_MEMBERS,
    A_NUM_OTHERS,
    A_NUM_TEXTS,
    A_NUM_WORDS,
    A_OTHERS,
    A_SEPARATOR,
    A_SPARE,
    A_TRIE,
    A_WORDS,
    K_DEPTH,
    K_EDGES,
    K_END,
    K_ENDS,
    K_FIRST,
    K_NUM_EDGES,
    M_COST,
    M_ENTRY,
    M_EXCLUDED,
    M_IMPLIED,
    M_NUM_EXCLUDED,
    M_NUM_IMPLIED,
    UNBOUNDED,
    WORD_BITS,
)
from ..network.any_order import SetTables
from ..network.network import Network
from ..record import record

FEW_LEFT = 6  # members: every order of them
FEW_OWED, MANY_OWED = 4, 32  # how many of those that are owed may come first; one where there are many
FEW_FREE = 4  # of the others, if there are more than MANY_FREE
MANY_FREE = 16


class Begun(NamedTuple):
    """What has been written of a set; see `fsm/core/sets.h`. Members are bits.

    Attributes:
        spare: how many members may be written that are not owed; missing: how many must be.
        blocked: members that cannot be written; owed: that must be.
    """

    spare: int
    missing: int
    blocked: int
    owed: int

    def with_other(self) -> Begun:
        """Once something is written that is no member, or a member that is not owed."""
        spare = self.spare if self.spare == UNBOUNDED else self.spare - 1
        return Begun(spare, max(self.missing - 1, 0), self.blocked, self.owed)


@record
class SetTable:
    """One set of a network.

    Attributes:
        node: the set itself; separator: that between two members; others: what may be written that is no member.
        entries: where each member goes on behind its head; heads: what the trie reads of each.
        costs: the bytes of each member; implied, excluded: the members that each implies, and excludes, as bits.
        num_texts: the members from here on have no text. num_words: frames of the set on a stack; is_counted: whether
            there is one more below them, with the counts.
        places: by place in the trie: the members first .. end - 1, of which the first may end there; the bytes read.
        first: what is written at the beginning.
    """

    node: int
    separator: int
    others: list[int]
    entries: list[int]
    heads: list[bytes]
    costs: list[int]
    implied: list[int]
    excluded: list[int]
    num_texts: int
    num_words: int
    is_counted: bool
    places: dict[int, tuple[int, int, int]]
    first: Begun

    @classmethod
    def of(cls, network: Network, row: int) -> SetTable:
        """The set of a row."""
        tables = network.sets
        numbers = tables.sets[row].tolist()
        base, count, num_words = numbers[A_MEMBERS], numbers[A_NUM_MEMBERS], numbers[A_NUM_WORDS]
        members = tables.members[base : base + count]
        words = tables.lists[numbers[A_WORDS] : numbers[A_WORDS] + 2 * num_words].tolist()
        implied, excluded = (
            [
                sum(1 << other for other in tables.lists[begin : begin + size].tolist())
                for begin, size in members[:, (start, length)].tolist()
            ]
            for start, length in ((M_IMPLIED, M_NUM_IMPLIED), (M_EXCLUDED, M_NUM_EXCLUDED))
        )
        heads, places = _heads(tables, numbers[A_TRIE], count)
        return cls(
            numbers[A_NODE],
            numbers[A_SEPARATOR],
            network.options[numbers[A_OTHERS] : numbers[A_OTHERS] + numbers[A_NUM_OTHERS]].tolist(),
            members[:, M_ENTRY].tolist(),
            heads,
            members[:, M_COST].tolist(),
            implied,
            excluded,
            numbers[A_NUM_TEXTS],
            num_words,
            bool(numbers[A_IS_COUNTED]),
            places,
            Begun(numbers[A_SPARE], numbers[A_MISSING], _joined(words[::2]), _joined(words[1::2])),
        )

    def candidates(self, begun: Begun, first: int, end: int) -> list[int]:
        """Those of the members first .. end - 1 that a way to the end of the set may begin with."""
        wanted = (1 << end) - (1 << first)
        owed = _bits(begun.owed & wanted)
        free = _bits(~begun.blocked & ~begun.owed & wanted) if begun.spare > 0 else []
        left = ~begun.blocked & (1 << len(self.entries)) - 1
        if left.bit_count() <= FEW_LEFT:
            return owed + free
        if owed:
            return owed[: FEW_OWED if begun.owed.bit_count() <= MANY_OWED else 1]
        if len(free) > MANY_FREE:
            free = sorted(free, key=self.costs.__getitem__)[:FEW_FREE]
        return free

    def may_write_others(self, begun: Begun) -> bool:
        """Whether something that is no member may be written; not looked at while members are owed."""
        written = (begun.blocked & ~self.first.blocked) >> self.num_texts
        return bool(self.others) and begun.spare > 0 and not begun.owed and not written

    def with_member(self, begun: Begun, member: int) -> Begun:
        """What is written once a member is."""
        bit = 1 << member
        begun = begun._replace(owed=begun.owed ^ bit) if begun.owed & bit else begun.with_other()
        blocked = begun.blocked | bit
        owed = begun.owed | self.implied[member] & ~blocked
        return begun._replace(blocked=blocked | self.excluded[member], owed=owed)


def _heads(tables: SetTables, root: int, count: int) -> tuple[list[bytes], dict[int, tuple[int, int, int]]]:
    """The heads and places of a `SetTable`."""
    heads, places, pending = [b""] * count, dict[int, tuple[int, int, int]](), [(0, b"")]
    if not len(tables.tries):
        return heads, places
    while pending:
        place, read = pending.pop()
        node = tables.tries[root + place].tolist()
        if node[K_ENDS]:
            heads[node[K_FIRST]] = read
        places[place] = node[K_FIRST] + node[K_ENDS], node[K_END], node[K_DEPTH]
        for byte, target in tables.edges[node[K_EDGES] : node[K_EDGES] + node[K_NUM_EDGES]].tolist():
            if target < 0:
                heads[~target] = read + bytes((byte,))
            else:
                pending.append((target - root, read + bytes((byte,))))
    return heads, places


def _joined(words: list[int]) -> int:
    return sum(word << WORD_BITS * index for index, word in enumerate(words))


def _bits(mask: int) -> list[int]:
    """The bits of a mask, in order."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found
