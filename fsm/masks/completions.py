"""Completions: how many tokens suffice to complete a text, in a vocabulary that lacks some bytes.

From a configuration the text goes on to the end of its rule, and then returns to its stack, frame by frame:

    bound(node, stack)  =  least  passage(node, 0 -> place)  +  behind(stack, place)

`behind` is known for each stack and place once, and a frame asks for those below it only. What is known of a state
follows from its configurations alone, whatever was asked before, and no other states are made to find it out.

A bound n > 0 is a promise: some token, the first atom on the way that was found, leads to a state with a bound below n.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..automaton.automaton import Automaton
from ..columns import (
    F_COST,
    F_COUNT,
    F_OWED,
    F_PARENT,
    JOINT,
    K_KEY,
    K_LOOP,
    K_SET,
    K_TEXT,
    NEVER,
    UNBOUNDED,
    WORD_BITS,
)
from .passages import AFTER_MEMBER, MEMBER, NODE, TURNS, Passage, Passages
from .set_passages import Begun, SetTable


class Completions:
    """Those of one automaton.

    Attributes:
        is_possible: whether there is any text at all; passages: of its network.
    """

    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton
        self.passages = Passages(automaton.network, automaton.vocabulary.atoms)
        self._kind, self._arg = automaton.network.kind.item, automaton.network.arg.item
        self._next = automaton.network.next_node.item
        self._behind = {(0, 0): 0}  # at the bottom, and between two atoms
        self._is_plain: dict[int, bool] = {0: True}
        self.is_possible = 0 in self.passages.first(automaton.network.start)

    @property
    def num_bytes(self) -> int:
        """Memory of what is known, roughly."""
        return self.passages.num_bytes + 200 * len(self._behind) + 100 * len(self._is_plain)

    def bound(self, state: int) -> int:
        """A number of tokens that surely suffices from a state in which a token has ended; NEVER if none does."""
        if self._automaton.is_accepting(state):
            return 0
        best = NEVER
        for node, sub, stack in self._automaton.configurations(state):
            if not self.passages.is_mixed(node) and self._kind(node) not in (K_TEXT, K_KEY) and self._plain(stack):
                best = min(best, self._automaton.network.cost.item(node) + self._automaton.frame(stack)[F_COST])
                continue
            outer, passage = self._of_configuration(node, sub, stack)
            for place, count in passage.items():
                if count < best:
                    best = min(best, count + self._after(outer, place))
        return best

    def _of_configuration(self, node: int, sub: int, stack: int) -> tuple[int, Passage]:
        """The passage to the end of a configuration's rule, and the stack to return to."""
        passages = self.passages
        if self._kind(node) == K_TEXT:
            index, count, outer = self._arg(node), 0, stack
            if self._automaton.network.texts[index].counted is not None:
                frame = self._automaton.frame(stack)
                count, outer = frame[F_COUNT], frame[F_PARENT]
            return outer, passages.behind(passages.text(index, sub, count), self._next(node))
        if self._kind(node) != K_KEY:
            return stack, passages.of((NODE, node, 0))
        row = self._arg(node)
        table = passages.set_table(row)
        begun, below = self._begun(table, stack)
        first, end, depth = table.places[sub - 1]
        found: Passage = {}
        for member in table.candidates(begun, first, end):
            spelt = passages.spelt({0: 0}, table.heads[member][depth:])
            for place, count in passages.through_member(row, begun, member, 1, spelt).items():
                found[place] = min(found.get(place, NEVER), count)
        return below, passages.behind(found, self._next(table.node))

    def _begun(self, table: SetTable, top: int) -> tuple[Begun, int]:
        """What is written of the set on top of a stack, and the stack below it."""
        blocked, owed = 0, 0
        for _ in range(table.num_words):
            frame = self._automaton.frame(top)
            blocked, owed = blocked << WORD_BITS | frame[F_COUNT], owed << WORD_BITS | frame[F_OWED]
            top = frame[F_PARENT]
        if not table.is_counted:
            return Begun(UNBOUNDED, 0, blocked, owed), top
        frame = self._automaton.frame(top)
        return Begun(frame[F_COUNT], frame[F_OWED], blocked, owed), frame[F_PARENT]

    # ---------------------------------------------------------------- stacks

    def _plain(self, stack: int) -> bool:
        """Whether nothing but plain bytes can be read behind it."""
        pending = [stack]
        while pending:
            here = pending[-1]
            if here not in self._is_plain:
                node, count, _, parent, _ = self._automaton.frame(here)
                below = (parent, count) if node == JOINT else (parent,)
                if node != JOINT and self.passages.is_mixed(node):
                    self._is_plain[here] = False
                else:
                    unknown = [other for other in below if other not in self._is_plain]
                    if unknown:
                        pending += unknown
                        continue
                    self._is_plain[here] = all(self._is_plain[other] for other in below)
            pending.pop()
        return self._is_plain[stack]

    def _after(self, stack: int, place: int) -> int:
        """How many tokens suffice where what was on top of a stack has ended, at a place within an atom."""
        known, pending = self._behind, [(stack, place)]
        while pending:
            here = pending[-1]
            if here not in known:
                ways = list(self._ways(*here))
                unknown = [(below, after) for below, after, _ in ways if (below, after) not in known]
                if unknown:
                    pending += unknown
                    continue
                known[here] = min([NEVER, *(count + known[below, after] for below, after, count in ways)])
            pending.pop()
        return known[stack, place]

    def _ways(self, stack: int, place: int) -> Iterator[tuple[int, int, int]]:
        """The ways to the stacks below: (stack, place, atoms)."""
        if not stack:
            return
        if not place and self._plain(stack):
            yield 0, 0, self._automaton.frame(stack)[F_COST]
            return
        node, count, _, below, _ = self._automaton.frame(stack)
        if node == JOINT:
            yield below, place, 0
            yield count, place, 0
            return
        kind, passages = self._kind(node), self.passages
        if kind in (K_SET, K_KEY):
            row = self._arg(node)
            table = passages.set_table(row)
            begun, below = self._begun(table, stack if kind == K_SET else below)
            what = AFTER_MEMBER if kind == K_SET else MEMBER
            passage = passages.behind(passages.of((what, row, *begun, 1, place)), self._next(table.node))
        elif kind == K_LOOP:
            passage = passages.behind(passages.of((TURNS, node, count, place)), self._next(node))
        else:
            passage = passages.of((NODE, node, place))
        for after, num_atoms in passage.items():
            yield below, after, num_atoms
