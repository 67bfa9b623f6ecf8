"""Passages: what can be spelt from a node of a network to the end of its rule, in a vocabulary that lacks bytes.

Tokens need not end where rules do: ``":`` may be the only token with a colon. So a way through a rule begins at some
place within an atom (`Atoms`) and ends at another, and what is to be known of it is

    passage(node, place)  =  {place behind it: the least number of atoms that end on the way}

from which that of whatever contains it follows. Such equations hold for every kind of node; those that matter are
found from the one that is asked for, and solved together, since rules may call each other: the values only ever fall.
Nearly all places are 0, and where only plain bytes are read nothing is to be solved at all: atoms are bytes there, and
the network knows how many.

Of ways that are longer than they have to be not all are looked for: of turns, characters and members beyond those that
are demanded only a few. So a passage may be missing (and a vocabulary be refused) in which it exists; one that is there
is real, and stays so while it is gone along. No state and no stack is known here, so a passage never depends on what
was asked before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from ..._core import fsm as core
from ...errors import ConstraintTooLarge
from ..columns import (
    K_BYTE,
    K_BYTES,
    K_CALL,
    K_LOOP,
    K_RETURN,
    K_SET,
    K_SPLIT,
    K_TEXT,
    NEVER,
)
from ..network.network import Network
from ..text.text_view import TextView, mask_of
from ..vocabulary.atoms import Atoms
from .bytes_read import byte_set_mask
from .character_steps import CharacterSteps
from .set_passages import Begun, SetTable

NODE, TURNS, TEXT, MEMBER, AFTER_MEMBER = range(5)
MAX_FIRST = 200_000  # equations for a whole constraint
FREE_TURNS = 8  # beyond the minimum
MOST_TURNS = 256  # below the minimum, of which each is looked at for itself
FREE_CHARACTERS = 64  # beyond the minimum and the longest way to an end
MAX_COUNTED = 20_000  # least number of characters of a text

Passage = dict[int, int]
What = tuple[int, ...]
"""One of
    NODE, node, place                                from a node to the end of its rule
    TURNS, node of a loop, turns begun, place        from the end of a turn to the end of the loop
    TEXT, text, state, characters read, place        to the end of a text, between two characters
    MEMBER, set, what is written (4), extra, place   where a member begins, to the end of the set; see `set_passages`
    AFTER_MEMBER, likewise                           where one has ended
"""
Read = Callable[[What], Passage]


class Passages:
    """The passages of one network, over the atoms of one vocabulary."""

    def __init__(self, network: Network, atoms: Atoms) -> None:
        self.network = network
        self.atoms = atoms
        self._known: dict[What, Passage] = {}
        self._kind, self._arg = network.kind.item, network.arg.item
        self._next, self._cost = network.next_node.item, network.cost.item
        self._byte_sets: dict[int, int] = {}
        self._sets: dict[int, SetTable] = {}
        self._texts = [TextView(text) for text in network.texts]
        self._characters = CharacterSteps(self._texts, atoms)
        self._plain_texts = [not text.bytes_read & ~atoms.plain for text in self._texts]
        self.is_mixed = self._find_mixed().item

    @property
    def num_bytes(self) -> int:
        """Memory of what is known, roughly."""
        return 500 * len(self._known) + self._characters.num_bytes

    def _find_mixed(self) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        network, plain = self.network, self.atoms.plain
        tables = network.sets
        masks = [byte_set_mask(network, index) for index in range(len(network.byte_sets))]
        heads = [
            mask_of(np.frombuffer(b"".join(self.set_table(row).heads), np.uint8)) & ~plain != 0
            for row in range(len(tables.sets))
        ]
        return core.find_mixed(
            network.data,
            np.array([not plain >> byte & 1 for byte in range(256)]),
            np.array([mask & ~plain != 0 for mask in masks], np.uint8),
            np.array([not is_plain for is_plain in self._plain_texts], np.uint8),
            np.array(heads, np.uint8),
        )

    # ---------------------------------------------------------------- solving

    def first(self, node: int) -> Passage:
        """The passage from the beginning, with all that it needs.

        Raises:
            ConstraintTooLarge: that is too much.
        """
        for index, text in enumerate(self._texts):
            if text.counted is not None and text.counted.minimum > MAX_COUNTED and not self._plain_texts[index]:
                raise ConstraintTooLarge(
                    f"this vocabulary has no token for some bytes; with it a text has at least {MAX_COUNTED} characters"
                    " at the most"
                )
        return self.of((NODE, node, 0), MAX_FIRST)

    def of(self, what: What, limit: int | None = None) -> Passage:
        """One passage. At most `limit` equations are solved, else ConstraintTooLarge."""
        known = self._known
        if what in known:
            return known[what]
        pending, waiting, asked_by = deque((what,)), {what}, dict[What, set[What]]()
        known[what], asked_by[what] = {}, set()
        asker = what

        def read(needed: What) -> Passage:
            value = known.get(needed)
            if value is None:
                known[needed], asked_by[needed] = {}, {asker}
                waiting.add(needed)
                pending.append(needed)
                return {}
            if needed in asked_by:
                asked_by[needed].add(asker)
            return value

        while pending:
            asker = pending.pop()
            waiting.discard(asker)
            value = self._equation(asker, read)
            if value != known[asker]:
                known[asker] = value
                again = asked_by[asker] - waiting
                waiting |= again
                pending.extendleft(again)
            if limit is not None and len(asked_by) > limit:
                for fresh in asked_by:
                    del known[fresh]
                raise ConstraintTooLarge(
                    "this vocabulary has no token for some bytes, and the constraint is too large to find out "
                    "whether every text can be completed without them; make it smaller"
                )
        return known[what]

    def _equation(self, what: What, read: Read) -> Passage:
        kind = what[0]
        if kind == NODE:
            return self._node(what[1], what[2], read)
        if kind == TURNS:
            return self._turns(what[1], what[2], what[3], read)
        if kind == TEXT:
            return self._text(what[1], what[2], what[3], what[4], read)
        begun = Begun(*what[2:6])
        if kind == MEMBER:
            return self._member(what[1], begun, what[6], what[7], read)
        return self._after_member(what[1], begun, what[6], what[7], read)

    def behind(self, passage: Passage, node: int, read: Read | None = None) -> Passage:
        """A passage, and then that of a node."""
        if not passage or self._kind(node) == K_RETURN:
            return passage
        found: Passage = {}
        for place, count in passage.items():
            add(found, (read or self.of)((NODE, node, place)), count)
        return found

    # ---------------------------------------------------------------- nodes

    def _node(self, node: int, place: int, read: Read) -> Passage:
        cost = self._cost(node)
        if cost >= NEVER:
            return {}
        if not place and not self.is_mixed(node):
            return {0: cost}
        kind, arg = self._kind(node), self._arg(node)
        if kind == K_RETURN:
            return {place: 0}
        found: Passage = {}
        if kind == K_SPLIT:
            for index in range(arg, arg + self._next(node)):
                add(found, read((NODE, self.network.options.item(index), place)), 0)
            return found
        if kind == K_BYTE:
            found = {place: 0}
            while found and self._kind(node) == K_BYTE:
                found = self.spelt(found, bytes((self._arg(node),)))
                node = self._next(node)
            return self.behind(found, node, read)
        if kind == K_BYTES:
            mask = self._byte_set(arg)
            for byte, ways in self.atoms.steps[place].items():
                if mask >> byte & 1:
                    add_ways(found, ways, 0)
        elif kind == K_TEXT:
            found = read((TEXT, arg, self._texts[arg].start, 0, place))
        elif kind == K_CALL:
            found = read((NODE, arg, place))
        elif kind == K_LOOP:
            found = read((TURNS, node, 0, place))
        else:
            assert kind == K_SET
            found = read((MEMBER, arg, *self.set_table(arg).first, 1, place))
        return self.behind(found, self._next(node), read)

    def spelt(self, passage: Passage, data: bytes) -> Passage:
        """A passage, and then some bytes."""
        for byte in data:
            found: Passage = {}
            for place, count in passage.items():
                add_ways(found, self.atoms.steps[place].get(byte, ()), count)
            passage = found
        return passage

    def _byte_set(self, index: int) -> int:
        mask = self._byte_sets.get(index)
        if mask is None:
            mask = self._byte_sets[index] = byte_set_mask(self.network, index)
        return mask

    def _turns(self, node: int, count: int, place: int, read: Read) -> Passage:
        item, minimum, maximum, cost = self.network.loops[self._arg(node)].tolist()
        if not place and not self.is_mixed(node):
            return {0: max(minimum - count, 0) * cost}
        found: Passage = {}
        if count >= minimum:
            if maximum >= 0:
                count = max(count, maximum - FREE_TURNS)
            found[place] = 0
            if count == maximum:
                return found
        turn = read((NODE, item, place))
        if minimum - count > MOST_TURNS:  # all but the last of them end where they begin
            if place in turn:
                num_turns = minimum - count - MOST_TURNS
                add(found, read((TURNS, node, minimum - MOST_TURNS, place)), num_turns * turn[place])
            return found
        after = count + 1 if maximum >= 0 else min(count + 1, minimum)
        for target, num_atoms in turn.items():
            add(found, read((TURNS, node, after, target)), num_atoms)
        return found

    # ---------------------------------------------------------------- texts

    def text(self, index: int, sub: int, count: int) -> Passage:
        """The passage from inside a text, between two tokens."""
        text = self._texts[index]
        state, inner = divmod(sub, text.num_nodes)
        if not inner:
            return self.of((TEXT, index, state, count, 0))
        found: Passage = {}
        row = text.table[state].tolist()
        for (class_id, place), num_atoms in self._characters.ends(index, inner, 0).items():
            if row[class_id] > 0:
                add(found, self.of((TEXT, index, row[class_id], count + 1, place)), num_atoms)
        return found

    def _text(self, index: int, state: int, count: int, place: int, read: Read) -> Passage:
        text, found = self._texts[index], dict[int, int]()
        counted = text.counted
        if counted is None:
            count = 0
        if not place and self._plain_texts[index]:
            if counted is None:
                return {0: int(text.costs[state])}
            length = counted.lengths.from_state(state, counted.minimum - count)
            limit = NEVER - 1 if counted.maximum is None else counted.maximum - count
            return {0: length * text.widest} if length <= limit else {}
        if counted is not None and count >= counted.minimum:
            count = counted.minimum if counted.maximum is None else count
            if counted.maximum is not None:  # what is further off is not looked for
                count = max(count, counted.maximum - FREE_CHARACTERS - counted.lengths.longest_way)
        if text.accepting[state] and (counted is None or count >= counted.minimum):
            found[place] = 0
        if counted is not None and count == counted.maximum:
            return found
        for target, after, num_atoms in self._characters.steps(index, state, place):
            add(found, read((TEXT, index, target, count + (counted is not None), after)), num_atoms)
        return found

    def never_runs_out(self, index: int) -> bool:
        """Whether every beginning of a text can become endlessly many, in tokens, however the first ones were spelt.

        Looked for in characters of one byte only; and whatever is begun must end in the same places.
        """
        text = self._texts[index]
        if text.counted is not None:
            return False
        ends = -text.template[0][[byte for byte in range(256) if self.atoms.alone >> byte & 1]]
        no_more = text.accepting.copy()
        no_more[0] = True
        following = text.table[:, np.unique(np.maximum(ends, 0))]
        if not np.array_equal(no_more[following].all(axis=1), no_more):
            return False
        return len({frozenset(self.of((TEXT, index, state, 0, 0))) for state in np.flatnonzero(~no_more).tolist()}) == 1

    def goes_on_behind(self, index: int) -> bool:
        """Whether behind a text, wherever it stands, the rule can be passed from the end of a token to another one."""
        network = self.network
        nodes = np.flatnonzero((network.kind == K_TEXT) & (network.arg == index) & (network.cost < NEVER))
        return all(0 in self.of((NODE, self._next(node), 0)) for node in nodes.tolist())

    # ---------------------------------------------------------------- sets

    def set_table(self, row: int) -> SetTable:
        """A set of members in any order."""
        found = self._sets.get(row)
        if found is None:
            found = self._sets[row] = SetTable.of(self.network, row)
        return found

    def _member(self, row: int, begun: Begun, extra: int, place: int, read: Read) -> Passage:
        table, found = self.set_table(row), dict[int, int]()
        for member in table.candidates(begun, 0, len(table.entries)):
            add(
                found,
                self.through_member(row, begun, member, extra, self.spelt({place: 0}, table.heads[member]), read),
                0,
            )
        if table.may_write_others(begun):
            after = begun.with_other()
            for node in table.others:
                for target, count in self.behind({place: 0}, node, read).items():
                    add(found, read((AFTER_MEMBER, row, *after, extra, target)), count)
        return found

    def through_member(
        self, row: int, begun: Begun, member: int, extra: int, spelt: Passage, read: Read | None = None
    ) -> Passage:
        """The passage behind the head of a member, to the end of the set."""
        table, found = self.set_table(row), dict[int, int]()
        after = table.with_member(begun, member)
        for target, count in self.behind(spelt, table.entries[member], read).items():
            add(found, (read or self.of)((AFTER_MEMBER, row, *after, extra, target)), count)
        return found

    def _after_member(self, row: int, begun: Begun, extra: int, place: int, read: Read) -> Passage:
        table, found = self.set_table(row), dict[int, int]()
        if not begun.owed and not begun.missing:
            found[place] = 0
            if not extra:
                return found
            extra = 0
        for target, count in self.behind({place: 0}, table.separator, read).items():
            add(found, read((MEMBER, row, *begun, extra, target)), count)
        return found


def add(found: Passage, passage: Passage, count: int) -> None:
    """Adds another way of passing, of which `count` atoms come before."""
    for place, num_atoms in passage.items():
        if num_atoms + count < found.get(place, NEVER):
            found[place] = num_atoms + count


def add_ways(found: Passage, ways: tuple[tuple[int, int], ...], count: int) -> None:
    """Adds what a byte does behind `count` atoms."""
    for place, ended in ways:
        if count + ended < found.get(place, NEVER):
            found[place] = count + ended
