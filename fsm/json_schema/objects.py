"""Objects: the branches of one goal that are objects, as an expression.

Branches that differ only in which keys are there (`required`, `dependentRequired`, the negation of `required`) are
one shape with conditions: clauses in conjunctive normal form. `schema_order` and `any_order` write shapes.

Named keys are taken out of the language of the others, so no named key can be written twice. The others are remembered
while a text is written (`Embed.is_key`), so none of them can, either. Where they are finitely many they are counted, or
named, so that nothing asks for one more when all are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ...errors import ConstraintTooLarge
from ..compile_time import CompileTime
from ..network.expression import Expression
from ..record import record
from .algebra import ANYTHING, NEVER, Goal, ObjectFacet
from .keys import goals_of_keys
from .others import MAX_BESIDE, NO_KEYS, OtherKeys, Others
from .plain import PlainObject
from .shape import Shape, units_of
from .texts import error_at, is_writable
from .variants import Constants, Variant, asked_atoms, clauses_of_variants, variants

Ids = tuple[int, ...]

MAX_ALTERNATIVES = 500
"""Most cases of one shape: what is open of them is carried along from key to key."""


@record
class ObjectWriter:
    """What objects need from the compiler: see `ArrayWriter`.

    Attributes:
        others: works out the keys not named.
        written: the objects of a shape; None if there are none.
        constants, is_impossible: see `Disjointness`.
        closes: whether objects that name keys or patterns of keys have no others unless a schema says so
            (`is_closed`).
        mixes: whether named keys and others may be written in any order.
    """

    value: Callable[[Goal], Expression | None]
    others: Others
    written: Callable[[Shape], Expression | None]
    constants: Constants
    is_impossible: Callable[[Goal], bool]
    closes: bool = False
    mixes: bool = False

    def objects(self, branches: list[tuple[ObjectFacet, ...]]) -> list[Expression]:
        """One expression per shape among the branches; none if no object at all is possible."""
        if len(branches) == 1 and len(branches[0]) == 1 and not branches[0][0].witnesses:  # nearly always
            shape = self._shape(branches, self.closes and is_closed(branches[0]))
            shapes: Iterable[Shape] = () if shape is None else (shape,)
        else:
            shapes = self._shapes(branches)
        found: list[Expression] = []
        for shape in shapes:
            expression = self.written(shape)
            if expression is not None:
                found.append(expression)
        return found

    def plain(self, plain: PlainObject) -> Expression | None:
        """The objects of a schema that says nothing else; None if there are none."""
        names = dict.fromkeys((*plain.properties, *plain.required))
        closed = self.closes and not plain.is_open
        others = NO_KEYS if closed else self.others.simple(plain.additional, frozenset(names))
        goal_of, additional, value = plain.properties.get, plain.additional, self.value
        members = [
            (key, value(goal_of(key, additional)) if is_writable(key) else None)
            for key in self.others.time.over(names, plain.pointer)
        ]
        shape = Shape(plain.pointer, members, others, [], 0, None, set(plain.required))
        return self.written(shape)

    # ---------------------------------------------------------------- from branches to shapes

    def _shapes(self, branches: list[tuple[ObjectFacet, ...]]) -> Iterator[Shape]:
        groups: dict[tuple[bool, Ids], dict[Ids, tuple[ObjectFacet, ...]]] = {}
        for branch in branches:
            for facets in self.others.settled(branch):
                core = tuple([id(facet) for facet in facets if not _only_clauses(facet)])
                alternatives = groups.setdefault((self.closes and is_closed(facets), core), {})
                alternatives[tuple(map(id, facets))] = facets
                if len(alternatives) > MAX_ALTERNATIVES:
                    message = f"more than {MAX_ALTERNATIVES} cases of which keys may stand together; say fewer"
                    raise error_at(ConstraintTooLarge, facets[0].pointer if facets else "", message)
        for (closed, _), alternatives in groups.items():
            shape = self._shape(list(alternatives.values()), closed)
            if shape is not None:
                yield shape

    def _shape(self, alternatives: list[tuple[ObjectFacet, ...]], closed: bool) -> Shape | None:
        first = alternatives[0]
        names = _named_keys(alternatives, self.others.time)
        matching = _matching_only(first, names) if closed else None
        if matching is not None:
            first, closed = (*first, matching), False
        only = first[0] if len(first) == 1 else None
        if closed and any([facet.witnesses for facet in first]):
            return None  # some key that the schema does not name would have to be there
        if only is not None:
            minimum, maximum, free_names = only.minimum, only.maximum, not only.names
        else:
            free_names = all(facet.names == ANYTHING for facet in first)
            minimum = max((facet.minimum for facet in first), default=0)
            maximum = min((facet.maximum for facet in first if facet.maximum is not None), default=None)
        if maximum is not None and maximum < minimum:
            return None
        pointer = first[0].pointer if first else ""
        others = (
            NO_KEYS if closed else self.others.of(first, frozenset(names), MAX_BESIDE if self.mixes and names else 0)
        )
        if others.listed:
            names.update(dict.fromkeys(others.listed))
        time = self.others.time
        time.check(pointer)
        asked = asked_atoms(first)
        if asked:
            return self._by_variant(alternatives, names, asked, others, minimum, maximum)
        units = units_of(alternatives, time)
        required = None if units is None else {key for key, said in units.items() if True in said}
        possible = {
            key
            for key in time.over(names, pointer)
            if is_writable(key) and (units is None or False not in units.get(key, ()))
        }
        time.check(pointer)
        members: list[tuple[str, Expression | None]] = []
        if only is not None and free_names and not only.patterns:  # nearly always
            goal_of, additional, value = only.properties.get, only.additional, self.value
            members = [
                (key, value(goal_of(key, additional)) if key in possible else None) for key in time.over(names, pointer)
            ]
        else:
            goals = goals_of_keys(first, names)
            for key in time.over(names, pointer):
                is_possible = key in possible and (free_names or self.others.is_name(first, key))
                members.append((key, self.value(goals(key)) if is_possible else None))
        return Shape(pointer, members, others, alternatives, minimum, maximum, required)

    def _by_variant(
        self,
        alternatives: list[tuple[ObjectFacet, ...]],
        names: dict[str, None],
        asked: dict[str, list[int]],
        others: OtherKeys,
        minimum: int,
        maximum: int | None,
    ) -> Shape:
        """The shape of objects with conditions on keys and their values: these are distinguished (`variants`)."""
        first = alternatives[0]
        pointer, goals, time = first[0].pointer, goals_of_keys(first, names), self.others.time
        variants_of_key = {
            key: variants(key, goals(key), asked.get(key, []), self.constants, self.is_impossible, pointer, time)
            for key in names
        }
        members: list[tuple[str, Expression | None]] = []
        key_of: dict[str, str] = {}
        for key, own in variants_of_key.items():
            time.check(pointer)
            is_possible = is_writable(key) and self.others.is_name(first, key)
            for variant in own or [Variant(key, NEVER, frozenset())]:
                members.append((variant.name, self.value(variant.goal) if is_possible else None))
                if variant.name != key:
                    key_of[variant.name] = key
        rewritten: list[tuple[ObjectFacet, ...]] = []
        for facets in time.over(alternatives, pointer):
            conditions = [condition for facet in facets for condition in facet.conditions]
            conditions += [
                frozenset([(key, 0, present) for key, present in clause])
                for facet in facets
                for clause in facet.clauses
            ]
            clauses = clauses_of_variants(conditions, variants_of_key, pointer, time)
            rewritten.append((ObjectFacet(pointer, {}, clauses=clauses, evaluates=False),))
        units = None if key_of else units_of(rewritten, time)
        required = None if units is None or any(False in said for said in units.values()) else set(units)
        return Shape(pointer, members, others, rewritten, minimum, maximum, required, key_of)


def _named_keys(alternatives: list[tuple[ObjectFacet, ...]], time: CompileTime) -> dict[str, None]:
    """All keys that some schema names, in the order in which they are written."""
    pointer = alternatives[0][0].pointer if alternatives[0] else ""
    names: dict[str, None] = {}
    for facet in alternatives[0]:
        if facet.evaluates:
            names.update(dict.fromkeys(facet.properties))
    for facets in alternatives:
        for facet in facets:
            for clause in time.over(facet.clauses, pointer):
                for key, _ in clause if len(clause) == 1 else sorted(clause):
                    names[key] = None
    for facet in alternatives[0]:
        names.update(dict.fromkeys(facet.properties))
    names.update(dict.fromkeys(asked_atoms(alternatives[0])))
    return names


def is_closed(facets: tuple[ObjectFacet, ...]) -> bool:
    """Whether schemas that apply to one object name keys, or patterns of keys, and none says what others may be.

    All that apply together are asked, so the branches of an `allOf` do not shut out each other's keys. What is there
    because of a negation asks for nothing of its own.
    """
    own = [facet for facet in facets if facet.evaluates]
    names_some = any(facet.properties or facet.patterns for facet in own)
    return names_some and not any(facet.evaluates_rest for facet in own)


def _matching_only(facets: tuple[ObjectFacet, ...], names: Iterable[str]) -> ObjectFacet | None:
    """What closes an object to all keys but those named and those that a pattern matches; None without patterns."""
    patterns = {pattern: ANYTHING for facet in facets if facet.evaluates for pattern, _ in facet.patterns}
    if not patterns:
        return None
    return ObjectFacet(
        facets[0].pointer, dict.fromkeys(names, ANYTHING), tuple(patterns.items()), NEVER, evaluates=False
    )


def _only_clauses(facet: ObjectFacet) -> bool:
    """Whether the facet says only which keys are there."""
    return (
        not facet.properties
        and not facet.patterns
        and facet.additional == ANYTHING
        and facet.names == ANYTHING
        and not facet.witnesses
        and not facet.minimum
        and facet.maximum is None
        and not facet.conditions
    )
