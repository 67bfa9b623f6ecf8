"""Shapes: objects that differ at most in which keys are there."""

from __future__ import annotations

from ..expression import Expression
from ..record import record
from .conditions import Residue
from .others import OtherKeys
from .parts import ObjectFacet


@record
class Shape:
    """Objects that differ at most in which keys are there.

    Attributes:
        members: (key, value) in the order of the schema; value None: the key cannot be there.
        others: keys not named.
        alternatives: the facets of each alternative; they differ in their clauses only.
        minimum_pointer: the keyword that asks for `minimum` keys.
    """

    pointer: str
    members: list[tuple[str, Expression | None]]
    others: OtherKeys
    alternatives: list[tuple[ObjectFacet, ...]]
    minimum: int
    maximum: int | None
    minimum_pointer: str

    @property
    def clauses(self) -> Residue:
        """The clauses of each alternative."""
        return frozenset(
            frozenset(clause for facet in facets for clause in facet.clauses) for facets in self.alternatives
        )

    def required(self) -> set[str] | None:
        """The required keys, if the clauses say nothing else."""
        if len(self.alternatives) > 1 and len(self.clauses) > 1:
            return None
        required: set[str] = set()
        for facet in self.alternatives[0]:
            for clause in facet.clauses:
                if len(clause) != 1:
                    return None
                ((key, present),) = clause
                if not present:
                    return None
                required.add(key)
        return required
