"""Automaton handover: a cursor whose automaton is filling up reads its text again in another one, and goes on there.

An automaton is shared, so what other requests have added may fill it. A cursor is handed over at two points:

    early      at LITTLE_ROOM, when a row has to be made: to the constraint in which texts begin now, if that gains room
    last       when a call found no room (`retry_in_renewed`): to that constraint as well, or else to one of its own

A constraint of its own holds no other request. A text that leaves little room even there uses up what is left; a call
that then needs more ends with ConstraintTooLarge, as if the text had been alone from the beginning.

Cost: one comparison where a row has to be made; some microseconds per token to read a text again. Before each handover
the automaton that is left has grown by much more than the text alone needs.

A handover does not add to the work allowed: what is left of an allowance (`Automaton.allow`) goes along, and reading
again is bounded by LAST_WORK. At one place of a text a cursor is handed over at last at most twice, the second time to
a constraint of its own: so a call that is made in parts ends, however often it is repeated.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Concatenate, ParamSpec, Protocol, Self, TypeVar

from ..errors import ConstraintTooLarge
from .automaton.limits import ENDLESS, LAST_WORK, OutOfWork
from .columns import NEVER
from .language_caches import LanguageCaches
from .trail import Trail

LITTLE_ROOM, ENOUGH_ROOM, ALL = 0.75, 0.6, 2.0  # of an automaton's bound on memory, used up
EARLY, AT_LAST, NO_MORE = 2, 1, 0  # when a cursor may be handed over: early, only if it must be, or no more
NEVER_HANDED_OVER = (-1, False)  # as a cursor's last handover


class Renewable(Protocol):
    """What a cursor is in, and may be handed over to: a `Constraint`. All of them have the same texts."""

    @property
    def caches(self) -> LanguageCaches:
        """Those of the automaton that may fill up."""

    def renewed(self) -> Renewable:
        """Where texts begin now: this one, or the one that has replaced it."""

    def another(self) -> Renewable:
        """A new one, which no request uses yet."""

    def placed(self, error: ConstraintTooLarge, token_ids: list[int]) -> ConstraintTooLarge:
        """The error with the place in the source of what is at fault after some tokens."""


class HandingOver(Protocol):
    """What is handed over: a `Cursor`."""

    constraint: Renewable
    cohort: str
    patience: int
    last_handover: tuple[int, bool]
    trail: Trail

    @classmethod
    def first(cls, constraint: Renewable, cohort: str) -> Self: ...
    @property
    def num_consumed(self) -> int: ...
    def is_within(self, limit: int) -> bool: ...
    def advance(self, token_id: int) -> bool: ...
    def become(self, other: Self) -> None: ...


AnyCursor = TypeVar("AnyCursor", bound=HandingOver)
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def retry_in_renewed(
    method: Callable[Concatenate[AnyCursor, Arguments], Result],
) -> Callable[Concatenate[AnyCursor, Arguments], Result]:
    """Decorates a method that is called again in another automaton where this one has no room left for it.

    Its arguments must not be states, which are numbers of one automaton.
    """

    @functools.wraps(method)
    def called(cursor: AnyCursor, /, *args: Arguments.args, **named: Arguments.kwargs) -> Result:
        while True:
            try:
                return method(cursor, *args, **named)  # nearly always
            except ConstraintTooLarge as error:
                if not cursor.constraint.caches.automaton.is_filled(LITTLE_ROOM) or not hand_over_at_last(cursor):
                    raise _placed(cursor, error) from None

    return called


def _placed(cursor: HandingOver, error: ConstraintTooLarge) -> ConstraintTooLarge:
    return cursor.constraint.placed(error, cursor.trail.last_tokens(cursor.num_consumed))


def hand_over_early(cursor: HandingOver, remaining: int) -> None:
    """Hands over if little room is left and the other automaton has more; else not before it is necessary.

    It is no better if the text itself takes the room, or if there no way to the end within `remaining` tokens is known.
    """
    if cursor.patience == EARLY and cursor.constraint.caches.automaton.is_filled(LITTLE_ROOM):
        cursor.patience = AT_LAST
        place = cursor.num_consumed
        if cursor.last_handover[0] != place and _hand_over(cursor, cursor.constraint.renewed(), remaining, ENOUGH_ROOM):
            cursor.last_handover = (place, False)


def hand_over_at_last(cursor: HandingOver) -> bool:
    """Hands over to an automaton with room: False if the text itself takes all of it.

    A second time at the same place of a text it goes to a constraint of its own, which other requests cannot fill.
    """
    place, was_alone = cursor.last_handover
    is_again = place == cursor.num_consumed
    if cursor.patience == NO_MORE or (is_again and was_alone):
        return False
    constraint = cursor.constraint
    if not is_again:
        shared = constraint.renewed()
        if shared is not constraint and _hand_over(cursor, shared, NEVER, ENOUGH_ROOM):
            cursor.last_handover = (cursor.num_consumed, False)
            return True
    if not _hand_over(cursor, constraint.another(), NEVER, ALL):
        return False
    cursor.last_handover = (cursor.num_consumed, True)
    return True


def _hand_over(cursor: HandingOver, constraint: Renewable, remaining: int, share: float) -> bool:
    """Reads the text again in another constraint; False, with nothing changed, if that fills more than `share` of it
    or takes too much work."""
    moved, automaton = cursor.first(constraint, cursor.cohort), constraint.caches.automaton
    moved.patience, moved.last_handover = NO_MORE, cursor.last_handover
    automaton.allow(LAST_WORK)
    try:
        if not all(map(moved.advance, cursor.trail.last_tokens(cursor.num_consumed))) or not moved.is_within(remaining):
            return False
    except (ConstraintTooLarge, OutOfWork):
        return False
    finally:
        automaton.allow(ENDLESS)
    if automaton.is_filled(share):
        return False
    if not automaton.is_filled(ENOUGH_ROOM):
        moved.patience = EARLY
    automaton.allow(cursor.constraint.caches.automaton.give_up())
    cursor.become(moved)
    return True


def restart(cursor: HandingOver, token_ids: Sequence[int]) -> None:
    """Begins again and takes these tokens: for a cursor that an exception has left half changed. O(tokens).

    Raises:
        ConstraintTooLarge, ValueError: it cannot take them again; it cannot be used after that.
    """
    other = cursor.first(cursor.constraint, cursor.cohort)
    if not all(map(other.advance, token_ids)):
        raise ValueError(f"token {other.num_consumed} of {len(token_ids)} is forbidden")
    other.patience, other.last_handover = cursor.patience, cursor.last_handover
    cursor.become(other)
