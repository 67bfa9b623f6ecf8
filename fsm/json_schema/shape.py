"""Shapes: objects that differ at most in which keys are there."""

from __future__ import annotations

from dataclasses import field
from typing import TypeAlias

from ..compile_time import CompileTime
from ..network.expression import Expression
from ..record import record
from .algebra import ObjectFacet
from .conditions import Residue
from .others import OtherKeys

Members: TypeAlias = list[tuple[str, "Expression | None"]]


@record
class Shape:
    """Objects that differ at most in which keys are there.

    Attributes:
        members: (key, value) in the order of the schema; value None: the key cannot be there.
        others: keys not named.
        alternatives: the facets of each alternative; they differ in their clauses only.
        required: the keys that must be there if the clauses say nothing else, else None.
        key_of: where the values of a key are distinguished (`variants`), its members have names of their own, and stand
            side by side: the key of each.
    """

    pointer: str
    members: Members
    others: OtherKeys
    alternatives: list[tuple[ObjectFacet, ...]]
    minimum: int
    maximum: int | None
    required: set[str] | None
    key_of: dict[str, str] = field(default_factory=dict)

    @property
    def groups(self) -> list[tuple[str, Members]]:
        """The keys in the order of the schema, each with its members."""
        if not self.key_of:
            return [(name, [(name, value)]) for name, value in self.members]
        found: dict[str, Members] = {}
        for name, value in self.members:
            found.setdefault(self.key_of.get(name, name), []).append((name, value))
        return list(found.items())

    @property
    def counts_others(self) -> bool:
        """Whether it matters which of the keys that are not named can have a value: they may come to an end."""
        others = self.others
        return others.choices is not None or others.count is not None or len(others.cells) > 1

    @property
    def clauses(self) -> Residue:
        """The clauses of each alternative."""
        return clauses_of(self.alternatives)


def clauses_of(alternatives: list[tuple[ObjectFacet, ...]]) -> Residue:
    """The clauses of each alternative."""
    return frozenset(frozenset(clause for facet in facets for clause in facet.clauses) for facets in alternatives)


def units_of(alternatives: list[tuple[ObjectFacet, ...]], time: CompileTime) -> dict[str, set[bool]] | None:
    """The keys that must be there (True) or cannot be (False), if the clauses of the alternatives say nothing else."""
    if len(alternatives) > 1 and len(clauses_of(alternatives)) > 1:
        return None
    units: dict[str, set[bool]] = {}
    for facet in alternatives[0]:
        for clause in time.over(facet.clauses, facet.pointer):
            if len(clause) != 1:
                return None
            ((key, present),) = clause
            units.setdefault(key, set()).add(present)
    return units
