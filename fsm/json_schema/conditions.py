"""Conditions on which keys an object has, as modes: what is required, forbidden, implied and excluded.

Conditions come as alternatives of clauses in conjunctive normal form. Most clauses are of three kinds, which an object
whose keys come in any order can keep up while it is written:

    a                 a is required                  (not a: a is forbidden)
    not a or b        a implies b
    not a or not b    a and b exclude each other

Every other clause is a choice and doubles (or more) the modes: `a or b` is "a" or "b without a". So is every clause of
two where the number of keys is bounded, since "can it still be completed" would then be a search. No two modes that
come from one alternative share an object.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...errors import ConstraintTooLarge
from ..record import record
from .algebra import Clause
from .texts import error_at

MAX_MODES = 256
MAX_IMPLIED = 1_000_000
REMEDY = 'ask for the order of the schema (key_order="schema"), or say fewer'
"""Against conditions that only keys in any order make too many."""

Residue = frozenset[frozenset[Clause]]
"""Alternatives that are still possible, each with the clauses that are still open. An empty one is fulfilled."""

Graph = dict[str, frozenset[str]]


@record
class Mode:
    """Objects that have all `required` keys, no `forbidden` one, and of the rest what the two relations allow.

    Attributes:
        implied: for a key, all keys that must be there with it; transitive.
        excluded: for a key, all keys that cannot be there with it or with what it implies; symmetric.
    """

    required: frozenset[str]
    forbidden: frozenset[str]
    implied: Graph
    excluded: Graph


def modes(alternatives: Residue, impossible: frozenset[str], counted: bool, pointer: str) -> list[Mode]:
    """All modes of some alternatives.

    Args:
        impossible: keys that no object can have.
        counted: whether only units may remain.

    Raises:
        ConstraintTooLarge: there are more than MAX_MODES.
    """
    found: list[Mode] = []
    fixed = dict.fromkeys(impossible, False)
    pending = [(frozenset(clauses), fixed) for clauses in alternatives]
    while pending:
        clauses, known = pending.pop()
        reduced = _propagate(clauses, known)
        if reduced is None:
            continue
        open_clauses, known = reduced
        choices = [clause for clause in open_clauses if counted or not _is_relation(clause)]
        clause = min(choices, key=_order, default=None)
        if clause is not None:
            assumed = known
            for key, present in sorted(clause):
                pending.append((open_clauses, {**assumed, key: present}))
                assumed = {**assumed, key: not present}
        else:
            implied, excluded, contradictory = _relations(open_clauses, pointer)
            if contradictory:
                pending.append((open_clauses, {**known, **dict.fromkeys(contradictory, False)}))
            else:
                required = frozenset(key for key, present in known.items() if present)
                found.append(Mode(required, frozenset(known) - required, implied, excluded))
        if len(found) + len(pending) > MAX_MODES:
            raise error_at(
                ConstraintTooLarge,
                pointer,
                f"the conditions on keys are more than {MAX_MODES} cases if keys may come in any order; {REMEDY}",
            )
    return found


def _order(clause: Clause) -> tuple[int, list[tuple[str, bool]]]:
    return len(clause), sorted(clause)


def _is_relation(clause: Clause) -> bool:
    """Whether the clause says that one key implies or excludes another."""
    if len(clause) != 2:
        return False
    (_, is_first), (_, is_second) = clause
    return not (is_first and is_second)


def _propagate(clauses: Iterable[Clause], known: dict[str, bool]) -> tuple[frozenset[Clause], dict[str, bool]] | None:
    """What is left of the clauses, none of them a unit, and all that is known then; None if they contradict."""
    known = dict(known)
    while True:
        left: set[Clause] = set()
        units: dict[str, bool] = {}
        for clause in clauses:
            is_fulfilled = False
            remaining = clause
            for key, present in clause:
                found = known.get(key)
                if found is present or (len(clause) > 1 and (key, not present) in clause):
                    is_fulfilled = True
                    break
                if found is not None:
                    remaining -= {(key, present)}
            if is_fulfilled:
                continue
            if not remaining:
                return None
            if len(remaining) == 1:
                ((key, present),) = remaining
                if units.setdefault(key, present) is not present:
                    return None
            else:
                left.add(remaining)
        if not units:
            return frozenset(left), known
        known.update(units)
        clauses = left


def _relations(clauses: Iterable[Clause], pointer: str) -> tuple[Graph, Graph, set[str]]:
    """The two relations, closed, and the keys that exclude themselves.

    Raises:
        ConstraintTooLarge: a key implies another one in more than MAX_IMPLIED ways.
    """
    onward: dict[str, set[str]] = {}
    apart: set[tuple[str, str]] = set()
    for clause in clauses:
        (first, is_first), (second, is_second) = clause
        if is_first:
            onward.setdefault(second, set()).add(first)
        elif is_second:
            onward.setdefault(first, set()).add(second)
        else:
            apart |= {(first, second), (second, first)}
    implied: dict[str, frozenset[str]] = {}
    num_implied = 0
    for key, others in _closed(onward):
        implied[key] = others
        num_implied += len(others)
        if num_implied > MAX_IMPLIED:
            message = f"the keys imply one another {MAX_IMPLIED} times or more; let fewer keys depend on one another"
            raise error_at(ConstraintTooLarge, pointer, message)
    implying: dict[str, set[str]] = {}
    for key, others in implied.items():
        for other in others:
            implying.setdefault(other, {other}).add(key)
    excluded: dict[str, set[str]] = {}
    for first, second in apart:
        for key in implying.get(first, {first}):
            excluded.setdefault(key, set()).update(implying.get(second, {second}))
    contradictory = {key for key, others in excluded.items() if key in others}
    return implied, {key: frozenset(others) for key, others in excluded.items()}, contradictory


def _closed(onward: dict[str, set[str]]) -> Iterator[tuple[str, frozenset[str]]]:
    """Each key with all that it implies, itself excluded. Sets of keys are the bits of whole numbers."""
    names = list(dict.fromkeys((*onward, *(name for others in onward.values() for name in others))))
    number = {name: index for index, name in enumerate(names)}
    steps = [sum(1 << number[name] for name in onward.get(key, ())) for key in names]
    closed: dict[int, int] = {}
    for key in onward:
        start = number[key]
        seen, pending = 1 << start, steps[start]
        while pending := pending & ~seen:
            lowest = pending & -pending
            index = lowest.bit_length() - 1
            if index in closed:
                seen |= lowest | closed[index]
            else:
                seen |= lowest
                pending |= steps[index]
        closed[start] = seen
        yield key, frozenset([name for name, bit in zip(names, f"{seen:b}"[::-1], strict=False) if bit == "1"]) - {key}
