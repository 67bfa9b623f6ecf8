"""Numbers for the subschemas of one text, so that goals can name them; synthetic subschemas included.

Every subschema that is met gets one number; atom 2 * number says that it holds, 2 * number + 1 that it does not.
A schema that says nothing is the goal ANYTHING, and one that only refers is the goal of what it refers to, so
that equal demands get equal goals.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from ...errors import InvalidSchema, UnsupportedSchema
from ..compile_time import NO_LIMIT, CompileTime
from ..resources import NO_RESOURCES, Resources
from .algebra import ANYTHING, NEVER, Goal
from .resolve import DRAFT_2019, DRAFT_2020, UNSPECIFIED, Resolver, Resource, Site, check_size
from .texts import error_at, escape, shown

FIRST_DRAFT = {
    "$ref": 4, "type": 4, "enum": 4, "allOf": 4, "anyOf": 4, "oneOf": 4, "not": 4,
    "minimum": 4, "maximum": 4, "exclusiveMinimum": 4, "exclusiveMaximum": 4, "multipleOf": 4,
    "minLength": 4, "maxLength": 4, "pattern": 4, "format": 4,
    "items": 4, "additionalItems": 4, "minItems": 4, "maxItems": 4, "uniqueItems": 4,
    "properties": 4, "required": 4, "additionalProperties": 4, "patternProperties": 4,
    "minProperties": 4, "maxProperties": 4, "dependencies": 4,
    "const": 6, "contains": 6, "propertyNames": 6, "if": 7,
    "dependentRequired": DRAFT_2019, "dependentSchemas": DRAFT_2019, "unevaluatedProperties": DRAFT_2019,
    "unevaluatedItems": DRAFT_2019, "minContains": DRAFT_2019, "maxContains": DRAFT_2019,
    "$recursiveRef": DRAFT_2019, "prefixItems": DRAFT_2020, "$dynamicRef": DRAFT_2020,
    "contentEncoding": 7, "contentMediaType": 7,
}  # fmt: skip
"""The keywords that demand something, and the draft they came with."""

LAST_DRAFT = {"additionalItems": DRAFT_2019, "$recursiveRef": DRAFT_2019, "contentEncoding": 7, "contentMediaType": 7}
"""The draft they went with; `content…` demands nothing from 2019-09 on. `dependencies` has stayed: later drafts split
it in two, but reserve the name for what it means, and many validators obey it under any draft
(see `reading.is_in_doubt`)."""

CONTENT = ("contentEncoding", "contentMediaType")
"""What a text holds: draft 7 lets validators check that, so it must be named; the drafts after it do not."""

KEYWORDS = frozenset(FIRST_DRAFT)
_ALL_BUT_TYPE = KEYWORDS - {"type"}


@dataclass(frozen=True, slots=True)
class Annotation:
    """A keyword that the schema has and that is not enforced, since it demands nothing."""

    pointer: str
    reason: str


class Sites:
    """The numbered subschemas of one text.

    Attributes:
        table: the subschemas by number.
        evaluates: whether the text has `unevaluated…`, so that it matters which options hold besides the first.
        names_of_types: what the goals of subschemas say that only name a type.
        in_doubt: whether a subschema was read that says less to some validators (`reading.is_in_doubt`).
        time: how long it may take to compile what they say.
    """

    __slots__ = (
        "_goals",
        "_numbers",
        "_synthetic",
        "_types",
        "annotations",
        "evaluates",
        "in_doubt",
        "names_of_types",
        "resolver",
        "table",
        "time",
    )

    def __init__(
        self,
        schema: dict[str, Any] | bool,
        annotations: list[Annotation] | None,
        *,
        resources: Resources = NO_RESOURCES,
        time: CompileTime = NO_LIMIT,
    ) -> None:
        """Raises ConstraintTooLarge if the text, or a document that is given with it, is too large or too deep."""
        self.time = time
        self.evaluates, is_dynamic = check_size(schema)
        for address, document in resources.items():
            evaluates, has_dynamic = check_size(document, f"{address}#")
            self.evaluates, is_dynamic = self.evaluates or evaluates, is_dynamic or has_dynamic
        self.in_doubt = False
        self.resolver = Resolver(schema, is_dynamic=is_dynamic, resources=resources)
        self.annotations = annotations
        self._synthetic = Resource("", True, "", DRAFT_2020)
        self.table: list[Site] = [Site(True, "", self._synthetic)]
        self._goals: list[Goal] = [ANYTHING]
        self._numbers: dict[tuple[int, int], int] = {}
        self._types: dict[str, Goal] = {}
        self.names_of_types: dict[Goal, str] = {}

    def root_goal(self) -> Goal:
        """The goal of the whole text."""
        root = self.resolver.root
        return self.goal(root.schema, "", root.resource)

    def goal(self, schema: object, pointer: str, resource: Resource) -> Goal:
        """The goal "valid under this subschema"."""
        if schema is True:
            return ANYTHING
        if schema is False:
            return NEVER
        if type(schema) is not dict:
            raise error_at(InvalidSchema, pointer, f"a schema must be an object or a boolean, not {shown(schema)}")
        key = (id(schema), id(resource))
        number = self._numbers.get(key)
        if number is not None:
            return self._goals[number]
        if _ALL_BUT_TYPE.isdisjoint(schema):
            if "type" not in schema:
                return ANYTHING
            if type(schema["type"]) is str:
                return self._plain(schema, pointer, resource)
        site = self.resolver.site(schema, pointer, resource)
        if "$ref" in schema:
            site = self._target(site)
            if site.schema is True:
                return ANYTHING
            if site.schema is False:
                return NEVER
            if KEYWORDS.isdisjoint(site.schema):
                return ANYTHING
            target = (id(site.schema), id(site.resource))
            number = self._numbers.get(target)
            if number is not None:
                self._numbers[key] = number
                return self._goals[number]
            self._numbers[target] = len(self.table)
        return self._numbered(site, key, (id(schema), id(site.resource)))

    def _numbered(self, site: Site, *keys: tuple[int, int]) -> Goal:
        """The goal of a subschema that gets a number now, and is known by some keys."""
        number = len(self.table)
        goal = frozenset((2 * number,))
        for key in keys:
            self._numbers[key] = number
        self.table.append(site)
        self._goals.append(goal)
        return goal

    def goals(self, named: dict[str, Any], pointer: str, resource: Resource) -> dict[str, Goal]:
        """The goals of subschemas by their keys; `pointer`: of all of them, with a slash after it."""
        found: dict[str, Goal] = {}
        types = self._types
        for key, schema in named.items():
            own = None
            if type(schema) is dict and "type" in schema and _ALL_BUT_TYPE.isdisjoint(schema):
                kind = schema["type"]
                own = types.get(kind) if type(kind) is str else None  # nearly always
            found[key] = self.goal(schema, pointer + escape(key), resource) if own is None else own
        return found

    def _plain(self, schema: dict[str, Any], pointer: str, resource: Resource) -> Goal:
        """The goal of a type and nothing else: one for all subschemas that say the same."""
        goal = self._types.get(schema["type"])
        if goal is None:
            goal = self._types[schema["type"]] = self._numbered(Site(schema, pointer, resource))
            self.names_of_types[goal] = schema["type"]
        return goal

    def synthetic(self, schema: dict[str, Any], pointer: str) -> Goal:
        """The goal of a subschema that stands for another keyword; its errors are reported at `pointer`."""
        return self._numbered(Site(schema, pointer, self._synthetic), (id(schema), id(self._synthetic)))

    def pointer(self, goal: Goal) -> str:
        """The JSON pointer of a goal: of the first of its subschemas; "" of ANYTHING."""
        return self.table[min(goal) >> 1].pointer if goal else ""

    def is_constant(self, site: Site) -> bool:
        """Whether the subschema stands for a constant: its members do not count as evaluated."""
        return site.resource is self._synthetic

    def derived(self, site: Site, schema: dict[str, Any]) -> Goal:
        """The goal of a variant of a subschema (some of its keywords) at the same place."""
        return self._numbered(Site(schema, site.pointer, site.resource), (id(schema), id(site.resource)))

    def reference(self, site: Site, name: str = "$ref") -> Goal:
        """The goal that the `$ref` of a subschema with other keywords leads to."""
        follow = self.resolver.follow if name == "$ref" else self.resolver.follow_dynamic
        target = follow(site, site.schema[name], name)  # type: ignore[index]  # it has one
        return self.goal(target.schema, target.pointer, target.resource)

    def _target(self, site: Site) -> Site:
        """Follows a subschema that is nothing but a `$ref`, and the next one, to one that is more.

        A reference that leads nowhere is left as it is: it is an error when it is read, if ever.
        """
        seen: set[int] = set()
        while type(site.schema) is dict and "$ref" in site.schema and only_refers(site):
            if id(site.schema) in seen:
                raise error_at(InvalidSchema, f"{site.pointer}/$ref", "the reference leads back to itself")
            seen.add(id(site.schema))
            try:
                site = self.resolver.follow(site, site.schema["$ref"])
            except (InvalidSchema, UnsupportedSchema):
                break
        return site

    def note(self, pointer: str, reason: str) -> None:
        """Reports a keyword that demands nothing."""
        if self.annotations is not None:
            self.annotations.append(Annotation(pointer, reason))


def only_refers(site: Site) -> bool:
    """Whether a subschema with `$ref` demands nothing else: up to draft 7 its siblings do not count."""
    if 0 < site.resource.draft <= 7:
        return True
    return len(KEYWORDS.intersection(site.schema)) == 1  # type: ignore[arg-type]  # it is a dict


def is_keyword(name: str, draft: int) -> bool:
    """Whether the keyword demands something in the draft; in an unspecified one all do, but for `CONTENT`."""
    if draft == UNSPECIFIED:
        return name not in CONTENT
    return FIRST_DRAFT[name] <= draft <= LAST_DRAFT.get(name, DRAFT_2020)


@functools.cache
def keywords_of(draft: int) -> frozenset[str]:
    """The keywords that the draft knows."""
    return frozenset(name for name in KEYWORDS if is_keyword(name, draft))


def negation(goal: Goal) -> tuple[int, ...]:
    """The atoms of which at least one must hold for the goal to fail."""
    return tuple(atom ^ 1 for atom in goal)
