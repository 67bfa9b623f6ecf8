"""`unevaluatedProperties` and `unevaluatedItems`: what is left once a branch says which schemas apply."""

from __future__ import annotations

from collections.abc import Callable

from .parts import ANYTHING, ArrayFacet, Goal, ObjectFacet
from .resolve import DRAFT_2019, Site


def unevaluated_object(facets: tuple[ObjectFacet, ...], goal: Goal, pointer: str) -> tuple[ObjectFacet, ...]:
    """The facet that gives `goal` to every key that no applied schema has evaluated."""
    evaluated = [facet for facet in facets if facet.evaluates]
    if any(facet.evaluates_rest for facet in evaluated):
        return ()
    names = {key: ANYTHING for facet in evaluated for key in facet.properties}
    patterns = {pattern: ANYTHING for facet in evaluated for pattern, _ in facet.patterns}
    return (ObjectFacet(pointer, names, tuple(patterns.items()), goal, evaluates_rest=True),)


def unevaluated_array(
    facets: tuple[ArrayFacet, ...], goal: Goal, site: Site, either: Callable[[list[Goal], str], Goal]
) -> tuple[ArrayFacet, ...]:
    """The facet that gives `goal` to every item that no applied schema has evaluated.

    From draft 2020-12 on, items that fulfil a `contains` are evaluated too: they need that or `goal`.
    """
    evaluated = [facet for facet in facets if facet.evaluates]
    if any(facet.evaluates_rest for facet in evaluated):
        return ()
    prefix = max((len(facet.prefix) for facet in evaluated), default=0)
    if site.resource.draft != DRAFT_2019:
        goals = [goal, *(contains.goal for facet in evaluated for contains in facet.contains)]
        goal = either(goals, f"{site.pointer}/unevaluatedItems")
    return (ArrayFacet(site.pointer, (ANYTHING,) * prefix, goal, evaluates_rest=True),)
