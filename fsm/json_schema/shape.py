"""Shapes: objects that differ at most in which keys are there."""

from __future__ import annotations

from ..expression import Expression
from ..record import record
from .conditions import Residue
from .others import OtherKeys


@record
class Shape:
    """Objects that differ at most in which keys are there.

    Attributes:
        members: (key, value) in the order of the schema; value None: the key cannot be there.
        others: keys not named.
        alternatives: clauses of each alternative.
    """

    pointer: str
    members: list[tuple[str, Expression | None]]
    others: OtherKeys
    alternatives: Residue
    minimum: int
    maximum: int | None


def only_required(shape: Shape) -> set[str] | None:
    """The required keys, if the clauses say nothing else."""
    if len(shape.alternatives) != 1:
        return None
    (clauses,) = shape.alternatives
    required: set[str] = set()
    for clause in clauses:
        if len(clause) != 1:
            return None
        ((key, present),) = clause
        if not present:
            return None
        required.add(key)
    return required
