"""Items that are counted: arrays as right-linear rules, one for each state of what has been counted.

A state says how many items there are and what has been counted, as far as it still matters: for `contains` how often it
was fulfilled, for a value that must come twice which one it is and whether it has come. The automaton runs the rules as
states. Which of the ways an item counts in is left open where it may be one or another.
"""

from __future__ import annotations

from collections.abc import Callable

from ...errors import ConstraintError, ConstraintTooLarge
from ..network.expression import EMPTY_TEXT, Expression, Literal, Rule, Sequence, alternation
from ..record import record
from .algebra import ANYTHING, ArrayFacet, Contains, Goal
from .disjointness import goal_of_item
from .layout import Layout
from .negation import refusals
from .texts import error_at

MAX_STATES, MAX_MOVES = 4_000, 40_000
FEW_CELLS = 64
AGAIN = -1

State = tuple[int, tuple[int, ...]]
"""How many items there are, and what else has been counted."""


@record
class ItemStates:
    """Writes arrays whose items are counted.

    Attributes:
        value: compiles a goal; None if no value fulfils it.
        reserve, define: give a rule a name, and a body.
        check: asks for the time at a place, before each state.
    """

    layout: Layout
    value: Callable[[Goal], Expression | None]
    reserve: Callable[[], str]
    define: Callable[[str, Expression], None]
    check: Callable[[str], None]

    def containing(
        self,
        facets: tuple[ArrayFacet, ...],
        contains: list[Contains],
        minimum: int,
        maximum: int | None,
        num_fixed: int,
        twice: list[Goal] | None = None,
    ) -> Expression | None:
        """States are (items so far, how often each `contains` was fulfilled), as far as they still matter.

        Only the first state has no items: the number of items is never capped below 1.

        Args:
            twice: what fulfils one of these goals must come twice. Then a state also says which of them will (by its
                number, from 1 on), once it has come for the first time; 0 before that, and -1 when it has come again.
        """
        last = max([1, num_fixed, minimum, *(c.first for c in contains)]) if maximum is None else max(maximum, 1)
        caps = [c.minimum if c.maximum is None else c.maximum for c in contains]
        if any(c.maximum is not None and c.maximum < c.minimum for c in contains):
            return None

        def moves(state: State) -> tuple[bool, list[tuple[Goal, State]]]:
            index, counts, chosen = state[0], state[1][:-1], state[1][-1]
            stop = chosen == AGAIN and index >= minimum
            stop = stop and all(n >= c.minimum for n, c in zip(counts, contains, strict=True))
            if maximum is not None and index >= maximum:
                return stop, []
            base = goal_of_item(facets, index)
            ways = [(base, chosen)]
            if chosen == 0:
                ways += [(base | goal, number) for number, goal in enumerate(twice or (), 1)]
            elif chosen != AGAIN and twice is not None:
                ways.append((base | twice[chosen - 1], AGAIN))
            found: list[tuple[Goal, State]] = []
            for item, then in ways:
                for goal, hits in self._cells(item, contains, counts, index, facets[0].pointer):
                    after = tuple(
                        min(n + hit, cap) if c.maximum is None else n + hit
                        for n, hit, cap, c in zip(counts, hits, caps, contains, strict=True)
                    )
                    if all(c.maximum is None or n <= c.maximum for n, c in zip(after, contains, strict=True)):
                        found.append((goal, (min(index + 1, last), (*after, then))))
            return stop, found

        start = (*(0,) * len(contains), AGAIN if twice is None else 0)
        return self.rules((0, start), moves, facets[0].pointer)

    def _cells(
        self, base: Goal, contains: list[Contains], counts: tuple[int, ...], index: int, pointer: str
    ) -> list[tuple[Goal, tuple[int, ...]]]:
        """Ways in which an item may count: its goal, and 1 or 0 for each `contains`."""
        cells: list[tuple[Goal, tuple[int, ...]]] = [(base, ())]
        for contained, count in zip(contains, counts, strict=True):
            self.check(pointer)
            ways: list[tuple[Goal, int]] = [(ANYTHING, 0)]
            if index >= contained.first and (contained.maximum is not None or count < contained.minimum):
                if contained.maximum is not None:
                    ways = [(refusal, 0) for refusal in refusals(contained.goal)]
                ways.insert(0, (contained.goal, 1))
            cells = [(goal | part, (*hits, hit)) for goal, hits in cells for part, hit in ways]
            if len(cells) > FEW_CELLS:  # what no value fulfils is not multiplied any further
                cells = [cell for cell in cells if self.value(cell[0]) is not None]
            if len(cells) > MAX_MOVES:
                raise too_many_items(pointer)
        return cells

    def rules(
        self,
        start: State,
        moves: Callable[[State], tuple[bool, list[tuple[Goal, State]]]]
        | Callable[[State], tuple[bool, list[tuple[str, State]]]],
        pointer: str,
    ) -> Expression | None:
        """One rule per state: stop, or write an item and go on in the next state."""
        names = {start: self.reserve()}
        pending = [start]
        num_moves = 0
        while pending:
            state = pending.pop()
            self.check(pointer)
            stop, found = moves(state)
            num_moves += len(found)
            if num_moves > MAX_MOVES:
                raise too_many_items(pointer)
            options: list[Expression] = [EMPTY_TEXT] if stop else []
            comma = self.layout.comma if state[0] else ()
            by_target: dict[State, list[Expression]] = {}
            for what, target in found:
                item = Literal(what.encode()) if isinstance(what, str) else self.value(what)
                if item is not None:
                    by_target.setdefault(target, []).append(item)
            for target, items in by_target.items():
                if target not in names:
                    if len(names) >= MAX_STATES:
                        raise too_many_items(pointer)
                    names[target] = self.reserve()
                    pending.append(target)
                options.append(Sequence((*comma, alternation(*items), Rule(names[target]))))
            self.define(names[state], alternation(*options))
        return self.layout.bracketed(b"[", (Rule(names[start]),), b"]", may_be_empty=False)


def too_many_items(pointer: str) -> ConstraintError:
    message = f"counting items needs more than {MAX_STATES} states, or {MAX_MOVES} ways between them; lower the bounds"
    return error_at(ConstraintTooLarge, pointer, message)
