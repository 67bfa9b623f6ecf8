"""InPlace: which schemas a schema applies to the value itself, and that none comes back to where it began."""

from __future__ import annotations

from ...errors import InvalidSchema
from ..network.walks import strong_components
from .algebra import Conjunction
from .reading import read
from .sites import Sites
from .texts import error_at
from .unevaluated import is_evaluating


class InPlace:
    """What was found out of the schemas of one text.

    Args:
        conjunctions: of the schemas that were read, by atom; those that are read here are added.
    """

    __slots__ = ("_conjunctions", "_endful", "_sites")

    def __init__(self, sites: Sites, conjunctions: dict[int, Conjunction]) -> None:
        self._sites = sites
        self._conjunctions = conjunctions
        self._endful: set[int] = set()  # atoms from which none leads back

    def refuse_endless(self, atom: int) -> None:
        """Refuses a schema that applies itself in place: validating against it would never end.

        Raises:
            InvalidSchema: it does.
        """
        edges: dict[int, dict[int, None]] = {}
        pending = [atom]
        while pending:
            one = pending.pop()
            if one not in edges and one not in self._endful:
                edges[one] = {other & ~1: None for other in self._applied(one)}
                pending += edges[one]
        for component in self._sites.time.over(strong_components(edges, self._sites.time)):
            if len(component) > 1 or component[0] in edges[component[0]]:
                pointer = self._sites.table[min(component) >> 1].pointer
                raise error_at(InvalidSchema, pointer, "the schema applies itself to the same value, without end")
        self._endful.update(edges)

    def _applied(self, atom: int) -> list[int]:
        """The atoms that a schema applies to the value itself."""
        conjunction = self._conjunctions.get(atom)
        if conjunction is None:
            site = self._sites.table[atom >> 1]
            if not isinstance(site.schema, dict):
                return []
            self._sites.time.check(site.pointer)
            conjunction = read(self._sites, site).narrowed()
            if not is_evaluating(self._sites, site):
                self._conjunctions[atom] = conjunction
        atoms = list(conjunction.atoms)
        pending = [option for disjunction in conjunction.disjunctions for option in disjunction.options]
        while pending:
            option = pending.pop()
            atoms += option.atoms
            pending += [other for disjunction in option.disjunctions for other in disjunction.options]
        return atoms
