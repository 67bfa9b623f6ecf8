"""Object keys: which goal a key has, which keys must or must not be there, and the language of all other keys."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence

from ..text.dfa import Dfa
from .key_trie import any_text_except
from .parts import NEVER, Clause, Goal, ObjectFacet
from .strings import ANY_STRING, pattern_language

FEW_FACETS = 4


@functools.lru_cache(maxsize=4096)
def is_matched(pattern: str, key: str) -> bool:
    """Whether the pattern is found in the key."""
    return pattern_language(pattern).accepts(key)


def goal_of_key(facets: Iterable[ObjectFacet], key: str) -> Goal:
    """What the value of a key must fulfil under all facets."""
    goal: Goal = frozenset()
    for facet in facets:
        own = facet.properties.get(key)
        if own is not None:
            goal |= own
        known = own is not None
        for pattern, matched in facet.patterns:
            if is_matched(pattern, key):
                goal |= matched
                known = True
        if not known:
            goal |= facet.additional
    return settled(goal)


def goals_of_keys(facets: Sequence[ObjectFacet]) -> Callable[[str], Goal]:
    """`goal_of_key` for many keys of the same facets: each looks only at those that say something about it."""
    if len(facets) <= FEW_FACETS:
        return lambda key: goal_of_key(facets, key)
    naming: dict[str, list[ObjectFacet]] = {}
    general: list[ObjectFacet] = []
    for facet in facets:
        if facet.patterns or facet.additional:
            general.append(facet)
        else:
            for key in facet.properties:
                naming.setdefault(key, []).append(facet)
    return lambda key: goal_of_key((*general, *naming.get(key, ())), key)


def settled(goal: Goal) -> Goal:
    """The goal, or NEVER if it contradicts itself at first sight."""
    if 1 in goal or (len(goal) > 1 and any(atom ^ 1 in goal for atom in goal)):
        return NEVER
    return goal


def required_keys(facets: Iterable[ObjectFacet]) -> set[str]:
    """Keys that must be there."""
    return {key for facet in facets for key, present in _units(facet.clauses) if present}


def forbidden_keys(facets: Iterable[ObjectFacet]) -> set[str]:
    """Keys that a clause forbids (keys whose goal is NEVER are not meant)."""
    return {key for facet in facets for key, present in _units(facet.clauses) if not present}


def _units(clauses: Iterable[Clause]) -> list[tuple[str, bool]]:
    return [literal for clause in clauses if len(clause) == 1 for literal in clause]


@functools.lru_cache(maxsize=1024)
def key_language(excluded: frozenset[str], matched: tuple[str, ...], unmatched: tuple[str, ...]) -> Dfa:
    """The keys not in `excluded` that are matched by all of `matched` and by none of `unmatched`."""
    language = any_text_except(excluded) if excluded else ANY_STRING
    for pattern in matched:
        language = language.intersect(pattern_language(pattern))
    for pattern in unmatched:
        language = language.difference(pattern_language(pattern))
    return language
