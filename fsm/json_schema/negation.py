"""What it means that a conjunction does not hold: the other half of the algebra.

De Morgan, keyword by keyword: the negation of a conjunction is a list of options; the tests on strings
and numbers are negated as a whole (a regular language has a complement), so that scalars never split into options.
"""

from __future__ import annotations

from functools import partial
from typing import cast

from ...errors import ConstraintTooLarge, UnsupportedSchema
from ..compile_time import CompileTime
from .algebra import (
    ANY_TYPE,
    ANYTHING,
    ARRAY,
    NEVER,
    NUMBER,
    OBJECT,
    STRING,
    ArrayFacet,
    Conjunction,
    Contains,
    Disjunction,
    Goal,
    Keys,
    ObjectFacet,
    Test,
)
from .keys import required_keys
from .texts import error_at

MAX_REFUSED_ITEMS = 2_000
"""Most items one by one that are negated: each is a case, and names all items before it."""


def negated(conjunction: Conjunction, time: CompileTime) -> list[Conjunction]:
    """Conjunctions of which at least one holds exactly when `conjunction` does not.

    Raises:
        ConstraintTooLarge: it says what more than `MAX_REFUSED_ITEMS` items of an array are, or the time is over.
    """
    options: list[Conjunction] = []
    types = ANY_TYPE & ~conjunction.types
    numbers: tuple[Test, ...] = ()
    strings: tuple[Test, ...] = ()
    if conjunction.types & NUMBER and conjunction.numbers:
        types |= NUMBER
        numbers = _none_of(conjunction.numbers)
    if conjunction.types & STRING and conjunction.strings:
        types |= STRING
        strings = _none_of(conjunction.strings)
    if types:
        options.append(Conjunction(conjunction.pointer, types, numbers, strings))
    if conjunction.types & ARRAY:
        for array in conjunction.arrays:
            options += [Conjunction(conjunction.pointer, ARRAY, arrays=(facet,)) for facet in _negated_array(array)]
    if conjunction.types & OBJECT:
        for facet in conjunction.objects:
            options += [Conjunction(conjunction.pointer, OBJECT, objects=(other,)) for other in _negated_object(facet)]
    options += [Conjunction(conjunction.pointer, atoms=(atom ^ 1,)) for atom in conjunction.atoms]
    for disjunction in conjunction.disjunctions:
        options += _negated_disjunction(conjunction.pointer, disjunction, time)
    return options


def _none_of(tests: tuple[Test, ...]) -> tuple[Test, ...]:
    """Tests that a value passes exactly if it does not pass all of these."""
    if len(tests) == 1 and tests[0][0] == "not":
        return cast("tuple[Test, ...]", tests[0][1])
    return (("not", tests),)


def refusals(goal: Goal) -> list[Goal]:
    """Goals of which at least one holds exactly when `goal` does not."""
    if goal == NEVER:
        return [ANYTHING]
    return [frozenset((atom ^ 1,)) for atom in goal]


def _negated_disjunction(pointer: str, disjunction: Disjunction, time: CompileTime) -> list[Conjunction]:
    none = tuple(Disjunction(tuple(negated(option, time))) for option in time.over(disjunction.options, pointer))
    options = [Conjunction(pointer, disjunctions=none)]
    if disjunction.exclusive:
        for index, first in enumerate(disjunction.options):
            time.check(pointer)
            for second in disjunction.options[:index]:
                options.append(Conjunction(pointer, atoms=(*first.atoms, *second.atoms)))
    return options


def _negated_array(facet: ArrayFacet) -> list[ArrayFacet]:
    other = partial(ArrayFacet, facet.pointer, evaluates=False)
    options: list[ArrayFacet] = []
    if facet.minimum > 0:
        options.append(other(maximum=facet.minimum - 1))
    if facet.maximum is not None:
        options.append(other(minimum=facet.maximum + 1))
    if len(facet.prefix) > MAX_REFUSED_ITEMS:
        message = f"an array of {len(facet.prefix)} items one by one is too long to be excluded; at most"
        raise error_at(ConstraintTooLarge, facet.pointer, f"{message} {MAX_REFUSED_ITEMS} are")
    for index, goal in enumerate(facet.prefix):
        for refusal in refusals(goal):
            options.append(other(prefix=(*(ANYTHING,) * index, refusal), minimum=index + 1))
    for refusal in refusals(facet.items):
        options.append(other(contains=(Contains(refusal, 1, None, len(facet.prefix)),)))
    for contains in facet.contains:
        if contains.minimum > 0:
            fewer = Contains(contains.goal, 0, contains.minimum - 1, contains.first)
            options.append(other(contains=(fewer,)))
        if contains.maximum is not None:
            more = Contains(contains.goal, contains.maximum + 1, None, contains.first)
            options.append(other(contains=(more,)))
    if facet.unique:
        options.append(other(repeated=True))
    if facet.repeated:
        options.append(other(unique=True))
    return options


def _negated_object(facet: ObjectFacet) -> list[ObjectFacet]:
    """Facets of which at least one holds exactly when this one does not.

    That a required key is missing or has another value is one facet, not two: what forbids its value says nothing of
    objects without it. So a `oneOf` of objects with a key of their own each is worth no cases.
    """
    pointer = facet.pointer
    options: list[ObjectFacet] = []
    required = required_keys((facet,))
    for key, goal in facet.properties.items():
        for index, refusal in enumerate(refusals(goal)):
            present = () if index == 0 and key in required else (frozenset(((key, True),)),)
            options.append(ObjectFacet(pointer, {key: refusal}, clauses=present, evaluates=False))
    for clause in facet.clauses:
        if len(clause) == 1 and any(present and facet.properties.get(key) for key, present in clause):
            continue
        flipped = tuple(frozenset(((key, not present),)) for key, present in sorted(clause))
        options.append(ObjectFacet(pointer, {}, clauses=flipped, evaluates=False))
    witnesses: list[tuple[Keys, Goal]] = []
    for pattern, goal in facet.patterns:
        witnesses += [(Keys(matched=(pattern,)), refusal) for refusal in refusals(goal)]
    rest = Keys(frozenset(facet.properties), tuple(pattern for pattern, _ in facet.patterns))
    witnesses += [(rest, refusal) for refusal in refusals(facet.additional)]
    witnesses += [(Keys(goal=refusal), ANYTHING) for refusal in refusals(facet.names)]
    options += [ObjectFacet(pointer, {}, witnesses=(witness,), evaluates=False) for witness in witnesses]
    if facet.witnesses:
        raise error_at(
            UnsupportedSchema,
            pointer,
            "the negation of unevaluatedProperties over a negation is not supported; say it directly",
        )
    if facet.minimum > 0:
        options.append(ObjectFacet(pointer, {}, maximum=facet.minimum - 1, evaluates=False))
    if facet.maximum is not None:
        options.append(ObjectFacet(pointer, {}, minimum=facet.maximum + 1, evaluates=False))
    return options
