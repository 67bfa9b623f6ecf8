"""Reads one schema object into a `Part`: keyword by keyword, every value checked, nothing dropped.

Keywords of one type are gathered into tests (strings, numbers) and facets (arrays, objects); `allOf`, `$ref` and
`not` become atoms; `anyOf`, `oneOf`, `if`, `dependencies` become disjunctions of parts. Subschemas are given
numbers and not read. Keywords that the draft does not know, and formats that nobody defines, are annotations.
"""

from __future__ import annotations

import math
from typing import Any

from ...errors import ConstraintTooLarge, InvalidRegex, InvalidSchema, UnsupportedSchema
from .constants import constants, is_number
from .formats import is_format
from .numbers import step_problem
from .parts import (
    ANY_TYPE,
    ANYTHING,
    ARRAY,
    BOOLEAN,
    NEVER,
    NULL,
    NUMBER,
    OBJECT,
    STRING,
    ArrayFacet,
    Clause,
    Contains,
    Disjunction,
    Goal,
    ObjectFacet,
    Part,
    Test,
)
from .resolve import DRAFT_2020, Site, escape
from .sites import KEYWORDS, Sites, is_keyword, negation, shown
from .strings import pattern_language

TYPES = {
    "null": NULL, "boolean": BOOLEAN, "number": NUMBER, "integer": NUMBER, "string": STRING, "array": ARRAY,
    "object": OBJECT,
}  # fmt: skip

_NUMBER_KEYWORDS = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"))
_STRING_KEYWORDS = frozenset(("minLength", "maxLength", "pattern", "format"))
_ARRAY_KEYWORDS = frozenset(
    ("items", "prefixItems", "additionalItems", "minItems", "maxItems", "contains", "uniqueItems")
)
_OBJECT_KEYWORDS = frozenset(
    (
        "properties", "patternProperties", "additionalProperties", "required", "propertyNames",
        "minProperties", "maxProperties", "dependentRequired", "dependencies",
    )
)  # fmt: skip
_IN_PLACE_KEYWORDS = frozenset(
    (
        "$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas",
        "dependencies", "enum", "const",
    )
)  # fmt: skip


def read(sites: Sites, site: Site) -> Part:
    """The part that says what the schema object at `site` says.

    Raises:
        InvalidSchema: a keyword has a value that it cannot have.
        UnsupportedSchema: a keyword cannot be enforced.
    """
    schema = site.schema
    assert isinstance(schema, dict)
    draft = site.resource.draft
    keywords = KEYWORDS.intersection(schema)
    if "$ref" in keywords and 0 < draft <= 7:
        keywords = frozenset(("$ref",))
    if draft:
        keywords = _of_draft(sites, site, keywords, draft)
    reading = _Reading(sites, site, schema, keywords)
    types, numbers = reading.types() if "type" in keywords else (ANY_TYPE, ())
    if not keywords.isdisjoint(_NUMBER_KEYWORDS):
        numbers += reading.numbers()
    strings = () if keywords.isdisjoint(_STRING_KEYWORDS) else reading.strings()
    arrays = () if keywords.isdisjoint(_ARRAY_KEYWORDS) else reading.arrays()
    objects = () if keywords.isdisjoint(_OBJECT_KEYWORDS) else reading.objects()
    if not keywords.isdisjoint(_IN_PLACE_KEYWORDS):
        reading.in_place()
    return Part(
        site.pointer,
        types,
        numbers,
        strings,
        arrays,
        objects,
        tuple(reading.atoms),
        tuple(reading.disjunctions),
        reading.own_first(),
    )


def _of_draft(sites: Sites, site: Site, keywords: frozenset[str], draft: int) -> frozenset[str]:
    unknown = [name for name in keywords if not is_keyword(name, draft)]
    if not unknown:
        return keywords
    for name in unknown:
        sites.note(f"{site.pointer}/{name}", f"{name} is no keyword of the draft that $schema names")
    return keywords.difference(unknown)


class _Reading:
    """One schema object while it is read."""

    def __init__(self, sites: Sites, site: Site, schema: dict[str, Any], keywords: frozenset[str]) -> None:
        self.sites = sites
        self.site = site
        self.schema = schema
        self.pointer = site.pointer
        self.keywords = keywords
        self.evaluates = not sites.is_constant(site)
        self.atoms: list[int] = []
        self.disjunctions: list[Disjunction] = []

    def own_first(self) -> bool:
        """Whether `properties` stands before the schemas that may bring properties of their own."""
        if not (self.atoms or self.disjunctions) or "properties" not in self.keywords:
            return True
        for name in self.schema:
            if name == "properties":
                return True
            if name in ("allOf", "anyOf", "oneOf", "$ref"):
                return False
        return True

    # ---------------------------------------------------------------- checked values

    def bad(self, name: str, wanted: str) -> InvalidSchema:
        pointer = f"{self.pointer}/{name}"
        return InvalidSchema(f"{pointer}: must be {wanted}, not {shown(self.schema[name])}", pointer=pointer)

    def count(self, name: str, default: int) -> int:
        """A non-negative whole number."""
        if name not in self.keywords:
            return default
        value = self.schema[name]
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int or value < 0:
            raise self.bad(name, "a non-negative whole number")
        return value

    def maximum_count(self, name: str) -> int | None:
        return self.count(name, 0) if name in self.keywords else None

    def number(self, name: str) -> int | float:
        value = self.schema[name]
        if not is_number(value) or not math.isfinite(value):
            raise self.bad(name, "a finite number")
        found: int | float = value
        return found

    def names(self, value: object, pointer: str) -> list[str]:
        if type(value) is not list or not all(type(name) is str for name in value):
            raise InvalidSchema(f"{pointer}: must be a list of property names, not {shown(value)}", pointer=pointer)
        return value

    def goal(self, name: str) -> Goal:
        return self.sites.goal(self.schema[name], f"{self.pointer}/{name}", self.site.resource)

    def goals(self, name: str) -> list[Goal]:
        value = self.schema[name]
        if type(value) is not list or (not value and name != "items" and name != "prefixItems"):
            raise self.bad(name, "a list of at least one schema")
        goal, resource, pointer = self.sites.goal, self.site.resource, f"{self.pointer}/{name}/"
        return [goal(item, pointer + str(i), resource) for i, item in enumerate(value)]

    def goal_map(self, name: str) -> dict[str, Goal]:
        value = self.schema[name]
        if type(value) is not dict:
            raise self.bad(name, "an object of schemas")
        goal, resource, pointer = self.sites.goal, self.site.resource, f"{self.pointer}/{name}/"
        return {key: goal(item, pointer + escape(key), resource) for key, item in value.items()}

    def check_pattern(self, pattern: str, pointer: str) -> None:
        """Refuses a pattern that has no automaton, here where its place is known."""
        try:
            pattern_language(pattern)
        except InvalidRegex as error:
            raise UnsupportedSchema(f"{pointer}: {error}", pointer=pointer) from error
        except ConstraintTooLarge as error:
            raise ConstraintTooLarge(f"{pointer}: {error}", pointer=pointer) from error

    # ---------------------------------------------------------------- types and tests

    def types(self) -> tuple[int, tuple[Test, ...]]:
        names = self.schema["type"]
        if type(names) is str:
            mask = TYPES.get(names)
            if mask is not None:
                return mask, (("integer",),) if names == "integer" else ()
            names = [names]
        if type(names) is not list or not names:
            raise self.bad("type", "the name of a type or a list of names")
        mask = 0
        for index, name in enumerate(names):
            if type(name) is not str or name not in TYPES:
                place = f"{self.pointer}/type" + (f"/{index}" if type(self.schema["type"]) is list else "")
                raise InvalidSchema(
                    f"{place}: {shown(name)} is no type; the types are {', '.join(TYPES)}", pointer=place
                )
            mask |= TYPES[name]
        whole = "integer" in names and "number" not in names
        return mask, (("integer",),) if whole else ()

    def numbers(self) -> tuple[Test, ...]:
        tests: list[Test] = []
        for bound in ("minimum", "maximum"):
            name = f"exclusive{bound.capitalize()}"
            exclusive = self.schema[name] if name in self.keywords else None
            if bound in self.keywords:
                tests.append((f"exclusive-{bound}" if exclusive is True else bound, self.number(bound)))
            if exclusive is not None and type(exclusive) is not bool:
                tests.append((f"exclusive-{bound}", self.number(name)))
        if "multipleOf" in self.keywords:
            step = self.number("multipleOf")
            if step <= 0:
                raise self.bad("multipleOf", "a number greater than 0")
            problem = step_problem(step)
            if problem is not None:
                pointer = f"{self.pointer}/multipleOf"
                raise UnsupportedSchema(
                    f"{pointer}: {problem}; use a whole number or a binary fraction", pointer=pointer
                )
            tests.append(("multiple", step))
        return tuple(tests)

    def strings(self) -> tuple[Test, ...]:
        tests: list[Test] = []
        if "format" in self.keywords:
            name = self.schema["format"]
            if type(name) is not str:
                raise self.bad("format", "a string")
            if is_format(name):
                tests.append(("format", name))
            else:
                self.sites.note(f"{self.pointer}/format", f"{shown(name)} is no format that we know; not enforced")
        if "pattern" in self.keywords:
            pattern = self.schema["pattern"]
            if type(pattern) is not str:
                raise self.bad("pattern", "a string")
            self.check_pattern(pattern, f"{self.pointer}/pattern")
            tests.append(("pattern", pattern))
        minimum, maximum = self.count("minLength", 0), self.maximum_count("maxLength")
        if minimum or maximum is not None:
            tests.append(("length", minimum, maximum))
        return tuple(tests)

    # ---------------------------------------------------------------- arrays

    def arrays(self) -> tuple[ArrayFacet, ...]:
        schema, keywords = self.schema, self.keywords
        prefix: list[Goal] = []
        items = ANYTHING
        rest = False
        if "prefixItems" in keywords:
            prefix = self.goals("prefixItems")
        if "items" in keywords:
            if type(schema["items"]) is list and self.site.resource.draft != DRAFT_2020:
                prefix = self.goals("items")
                if "additionalItems" in keywords:
                    items, rest = self.goal("additionalItems"), True
            else:
                items, rest = self.goal("items"), True
        contains: tuple[Contains, ...] = ()
        if "contains" in keywords:
            at_least, at_most = self.count("minContains", 1), self.maximum_count("maxContains")
            contains = (Contains(self.goal("contains"), at_least, at_most),)
        unique = schema["uniqueItems"] if "uniqueItems" in keywords else False
        if type(unique) is not bool:
            raise self.bad("uniqueItems", "true or false")
        facet = ArrayFacet(
            self.pointer,
            tuple(prefix),
            items,
            self.count("minItems", 0),
            self.maximum_count("maxItems"),
            contains,
            unique,
            evaluates=self.evaluates,
            evaluates_rest=rest,
        )
        return (facet,)

    # ---------------------------------------------------------------- objects

    def objects(self) -> tuple[ObjectFacet, ...]:
        keywords = self.keywords
        clauses: list[Clause] = []
        if "required" in keywords:
            required = self.schema["required"]
            for name in self.names(required, f"{self.pointer}/required"):
                clauses.append(frozenset(((name, True),)))
        for keyword in ("dependentRequired", "dependencies"):
            if keyword in keywords:
                clauses += self.dependent_names(keyword)
        patterns = self.goal_map("patternProperties") if "patternProperties" in keywords else {}
        for pattern in patterns:
            self.check_pattern(pattern, f"{self.pointer}/patternProperties/{escape(pattern)}")
        additional = "additionalProperties" in keywords
        facet = ObjectFacet(
            self.pointer,
            self.goal_map("properties") if "properties" in keywords else {},
            tuple(patterns.items()),
            self.goal("additionalProperties") if additional else ANYTHING,
            tuple(clauses),
            self.goal("propertyNames") if "propertyNames" in keywords else ANYTHING,
            self.count("minProperties", 0),
            self.maximum_count("maxProperties"),
            evaluates=self.evaluates,
            evaluates_rest=additional,
        )
        return (facet,)

    def dependent_names(self, keyword: str) -> list[Clause]:
        """Clauses "no such key, or that other key too"."""
        value = self.schema[keyword]
        if type(value) is not dict:
            raise self.bad(keyword, "an object")
        clauses: list[Clause] = []
        for key, names in value.items():
            if keyword == "dependencies" and type(names) is str:
                names = [names]
            if type(names) is list:
                pointer = f"{self.pointer}/{keyword}/{escape(key)}"
                clauses += [
                    frozenset(((key, False), (name, True))) for name in self.names(names, pointer) if name != key
                ]
            elif keyword == "dependentRequired":
                raise self.bad(keyword, "an object of lists of property names")
        return clauses

    # ---------------------------------------------------------------- keywords that apply other schemas in place

    def in_place(self) -> None:
        schema = self.schema
        for name in schema:
            if name not in self.keywords:
                continue
            if name == "$ref":
                self.atoms += self.sites.reference(self.site)
            elif name == "allOf":
                for goal in self.goals(name):
                    self.atoms += goal
            elif name == "anyOf":
                self.any_of(self.goals(name))
            elif name == "oneOf":
                self.one_of(self.goals(name))
            elif name == "not":
                self.none_of(self.goal(name))
            elif name == "if":
                self.conditional()
            elif name in ("dependentSchemas", "dependencies"):
                self.dependent_schemas(name)
            elif name == "const":
                self.among([schema[name]], name)
            elif name == "enum":
                if type(schema[name]) is not list:
                    raise self.bad(name, "a list of values")
                self.among(schema[name], name)
            elif name in ("$dynamicRef", "$recursiveRef"):
                self.dynamic_reference(name)

    def among(self, values: list[Any], name: str) -> None:
        options = constants(self.sites, values, f"{self.pointer}/{name}")
        self.disjunctions.append(Disjunction(tuple(options)))

    def any_of(self, goals: list[Goal]) -> None:
        if ANYTHING in goals:
            return
        options = [self.option(goal) for goal in dict.fromkeys(goals) if goal != NEVER]
        self.disjunctions.append(Disjunction(tuple(options), inclusive=True))

    def one_of(self, goals: list[Goal]) -> None:
        """Each option, and none of the others; which of the others need saying is found out in branching."""
        possible = [goal for goal in goals if goal != NEVER]
        if len(possible) == 1:
            self.atoms += possible[0]
            return
        options = [self.option(goal) for goal in possible]
        self.disjunctions.append(Disjunction(tuple(options), exclusive=True))

    def none_of(self, goal: Goal) -> None:
        atoms = negation(goal)
        if len(atoms) == 1:
            self.atoms += atoms
        else:
            self.disjunctions.append(Disjunction(tuple(Part(self.pointer, atoms=(atom,)) for atom in atoms)))

    def conditional(self) -> None:
        condition = self.goal("if")
        then = self.goal("then") if "then" in self.schema else ANYTHING
        otherwise = self.goal("else") if "else" in self.schema else ANYTHING
        if then == otherwise == ANYTHING:
            return
        if condition == ANYTHING:
            self.atoms += then
            return
        refused = [self.option(otherwise, (atom,)) for atom in negation(condition)]
        self.disjunctions.append(Disjunction((self.option(condition | then), *refused)))

    def dependent_schemas(self, keyword: str) -> None:
        value = self.schema[keyword]
        if type(value) is not dict:
            raise self.bad(keyword, "an object")
        for key, schema in value.items():
            if keyword == "dependencies" and type(schema) is not dict and type(schema) is not bool:
                if type(schema) is not list and type(schema) is not str:
                    raise self.bad(keyword, "an object of schemas and lists of property names")
                continue
            pointer = f"{self.pointer}/{keyword}/{escape(key)}"
            goal = self.sites.goal(schema, pointer, self.site.resource)
            if goal == ANYTHING:
                continue
            absent = ObjectFacet(pointer, {}, clauses=(frozenset(((key, False),)),))
            present = ObjectFacet(pointer, {}, clauses=(frozenset(((key, True),)),))
            self.disjunctions.append(
                Disjunction(
                    (
                        Part(pointer, objects=(absent,)),
                        Part(pointer, OBJECT, objects=(present,), atoms=tuple(goal)),
                    )
                )
            )

    def dynamic_reference(self, name: str) -> None:
        pointer = f"{self.pointer}/{name}"
        raise UnsupportedSchema(f"{pointer}: dynamic references are not supported; use $ref", pointer=pointer)

    def option(self, goal: Goal, atoms: tuple[int, ...] = ()) -> Part:
        return Part(self.pointer, atoms=(*sorted(goal), *atoms))
