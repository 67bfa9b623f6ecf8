"""`unevaluatedProperties` and `unevaluatedItems`: what is left once a branch says which schemas apply."""

from __future__ import annotations

from .algebra import ANYTHING, ARRAY, NEVER, OBJECT, ArrayFacet, Branch, Conjunction, Disjunction, Goal, ObjectFacet
from .resolve import DRAFT_2019, Site
from .sites import Sites, is_keyword

PROPERTIES, ITEMS = "unevaluatedProperties", "unevaluatedItems"


def is_evaluating(sites: Sites, site: Site) -> bool:
    """Whether a schema says something about what its other keywords have not evaluated."""
    schema = site.schema
    return (
        sites.evaluates
        and isinstance(schema, dict)
        and (PROPERTIES in schema or ITEMS in schema)
        and is_keyword(ITEMS, site.resource.draft)
    )


def rest_of(sites: Sites, site: Site) -> Goal:
    """The goal of such a schema without these keywords."""
    assert isinstance(site.schema, dict)
    return sites.derived(site, {name: value for name, value in site.schema.items() if name not in (PROPERTIES, ITEMS)})


def closed(sites: Sites, site: Site, branches: tuple[Branch, ...], conjunctions: dict[int, Conjunction]) -> Conjunction:
    """The conjunction of such a schema: the branches of `rest_of`, each closed.

    Args:
        conjunctions: by atom; those that are made up here are added.
    """
    schema = site.schema
    assert isinstance(schema, dict)
    keys, items = (
        sites.goal(schema.get(name, True), f"{site.pointer}/{name}", site.resource) for name in (PROPERTIES, ITEMS)
    )
    options: list[Conjunction] = []
    for branch in branches:
        objects, arrays = branch.objects, branch.arrays
        if branch.types & OBJECT and PROPERTIES in schema:
            objects += unevaluated_object(objects, keys, site.pointer)
        if branch.types & ARRAY and ITEMS in schema:
            arrays += unevaluated_array(sites, arrays, items, site, conjunctions)
        options.append(Conjunction(site.pointer, branch.types, branch.numbers, branch.strings, arrays, objects))
    return Conjunction(site.pointer, disjunctions=(Disjunction(tuple(options)),))


def unevaluated_object(facets: tuple[ObjectFacet, ...], goal: Goal, pointer: str) -> tuple[ObjectFacet, ...]:
    """The facet that gives `goal` to every key that no applied schema has evaluated."""
    evaluated = [facet for facet in facets if facet.evaluates]
    if any(facet.evaluates_rest for facet in evaluated):
        return ()
    names = {key: ANYTHING for facet in evaluated for key in facet.properties}
    patterns = {pattern: ANYTHING for facet in evaluated for pattern, _ in facet.patterns}
    return (ObjectFacet(pointer, names, tuple(patterns.items()), goal, evaluates_rest=True),)


def unevaluated_array(
    sites: Sites, facets: tuple[ArrayFacet, ...], goal: Goal, site: Site, conjunctions: dict[int, Conjunction]
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
        goal = either(sites, goals, f"{site.pointer}/{ITEMS}", conjunctions)
    return (ArrayFacet(site.pointer, (ANYTHING,) * prefix, goal, evaluates_rest=True),)


def either(sites: Sites, goals: list[Goal], pointer: str, conjunctions: dict[int, Conjunction]) -> Goal:
    """A goal that holds exactly when one of the goals does; its conjunction is added to `conjunctions`."""
    possible = list(dict.fromkeys(goal for goal in goals if goal != NEVER))
    if ANYTHING in possible:
        return ANYTHING
    if len(possible) < 2:
        return possible[0] if possible else NEVER
    goal = sites.synthetic({}, pointer)
    (atom,) = goal
    options = tuple(Conjunction(pointer, atoms=tuple(sorted(option))) for option in possible)
    conjunctions[atom] = Conjunction(pointer, disjunctions=(Disjunction(options),))
    return goal
