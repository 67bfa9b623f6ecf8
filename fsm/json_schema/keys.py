"""Object keys: which goal a key has, which keys must or must not be there, and the language of all other keys.

Where validators differ on whether a pattern is found in a key (`regex_syntax`), the key is in *doubt*. Its value must
fulfil what is asked either way, and it neither proves that some key is matched nor that some key is not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence

from ..compile_time import NO_LIMIT, CompileTime
from ..remembered import remembered
from ..text.dfa import Dfa, any_text
from .algebra import ANYTHING, NEVER, Clause, Goal, Keys, ObjectFacet
from .key_trie import any_text_except
from .strings import pattern_language

FEW_FACETS = 4


@remembered(4096)
def _matched(pattern: str, keys: tuple[str, ...], for_all: bool) -> frozenset[str]:
    """The keys in which the pattern is found by all validators, or by some: many take hardly longer than one."""
    return frozenset(pattern_language(pattern, for_all=for_all).among(keys))


def is_matched(pattern: str, key: str) -> bool:
    """Whether the pattern is found in the key by all validators."""
    return key in _matched(pattern, (key,), True)


def may_match(pattern: str, key: str) -> bool:
    """Whether the pattern is found in the key by some validator."""
    return key in _matched(pattern, (key,), False)


def goal_of_key(
    facets: Iterable[ObjectFacet], key: str, matched_by: Callable[[str, bool], frozenset[str]] | None = None
) -> Goal:
    """What the value of a key must fulfil under all facets; `matched_by`: `_matched`, of this key and others."""
    goal: Goal = frozenset()
    if matched_by is None:

        def matched_by(pattern: str, for_all: bool) -> frozenset[str]:
            return _matched(pattern, (key,), for_all)

    for facet in facets:
        own = facet.properties.get(key)
        if own is not None:
            goal |= own
        known = own is not None
        for pattern, matched in facet.patterns:
            if key in matched_by(pattern, False):
                goal |= matched
                known = known or key in matched_by(pattern, True)
        if not known:
            goal |= facet.additional
    return settled(goal)


def goals_of_keys(facets: Sequence[ObjectFacet], keys: Iterable[str]) -> Callable[[str], Goal]:
    """`goal_of_key` for these keys of the same facets: each looks only at those that say something about it."""
    names = tuple(keys)

    @functools.cache  # to look for many keys among those that were looked up before takes as long as they are many
    def matched_by(pattern: str, for_all: bool) -> frozenset[str]:
        return _matched(pattern, names, for_all)

    if len(facets) <= FEW_FACETS:
        return lambda key: goal_of_key(facets, key, matched_by)
    naming: dict[str, list[ObjectFacet]] = {}
    general: list[ObjectFacet] = []
    for facet in facets:
        if facet.patterns or facet.additional:
            general.append(facet)
        else:
            for key in facet.properties:
                naming.setdefault(key, []).append(facet)
    return lambda key: goal_of_key((*general, *naming.get(key, ())), key, matched_by)


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


def is_in(keys: Keys, key: str) -> bool:
    """Whether the key certainly belongs to the set, its goal aside."""
    return (
        key not in keys.excluded
        and all(is_matched(pattern, key) for pattern in keys.matched)
        and not any(may_match(pattern, key) for pattern in keys.unmatched)
    )


def names_only(facet: ObjectFacet) -> bool:
    """Whether the facet speaks of named keys alone, conditions “some key …” aside."""
    return (
        not facet.patterns
        and facet.additional == ANYTHING
        and facet.names == ANYTHING
        and not facet.minimum
        and facet.maximum is None
    )


def _units(clauses: Iterable[Clause]) -> list[tuple[str, bool]]:
    return [literal for clause in clauses if len(clause) == 1 for literal in clause]


@remembered(1024)
def key_language(
    excluded: frozenset[str],
    matched: tuple[str, ...],
    unmatched: tuple[str, ...],
    compile_time: CompileTime = NO_LIMIT,
) -> Dfa:
    """The keys not in `excluded` that match all of `matched` and none of `unmatched`, for all validators."""
    language = any_text_except(excluded, compile_time) if excluded else any_text()
    for pattern in matched:
        compile_time.check_here()
        language = language.intersect(pattern_language(pattern, compile_time=compile_time))
    for pattern in unmatched:
        compile_time.check_here()
        language = language.difference(pattern_language(pattern, for_all=False, compile_time=compile_time))
    return language
