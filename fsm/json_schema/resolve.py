"""Where a subschema stands, and what its `$ref` means: `$id`, `$anchor`, JSON pointers and drafts.

A `Site` is a subschema together with its place in the text and the resource whose base URI its references are
relative to. Resources are embedded documents: the root, and every subschema with an `$id` (`id` up to draft 4).
Nothing is ever fetched: a reference that leaves the text is refused.

It knows nothing of what keywords mean, except which of them hold subschemas (to find `$id` and `$anchor`).
Cost: references of the form `#/…` cost their length; the first other reference indexes the whole text once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from ...errors import ConstraintTooLarge, InvalidSchema, UnsupportedSchema
from .texts import error_at, escape

Schema = dict[str, Any] | bool

UNSPECIFIED, DRAFT_4, DRAFT_6, DRAFT_7, DRAFT_2019, DRAFT_2020 = 0, 4, 6, 7, 2019, 2020

MAX_DEPTH = 4_000
"""Deepest nesting of a schema's text that is read (objects and arrays within each other)."""
MAX_VALUES = 2_000_000
"""Most objects and arrays in a schema's text."""

_DRAFTS = {
    "draft-03": DRAFT_4,
    "draft-04": DRAFT_4,
    "draft-06": DRAFT_6,
    "draft-07": DRAFT_7,
    "2019-09": DRAFT_2019,
    "2020-12": DRAFT_2020,
}

_HOLD_SCHEMA = (
    "additionalItems", "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames",
    "then", "unevaluatedItems", "unevaluatedProperties", "contentSchema",
)  # fmt: skip
_HOLD_LIST = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_HOLD_MAP = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")


@dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """A schema document: the root, or a subschema with an `$id` of its own."""

    uri: str
    schema: Schema
    pointer: str
    draft: int


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """A subschema, its JSON pointer in the whole text, and the resource it belongs to."""

    schema: Schema
    pointer: str
    resource: Resource


def draft_of(schema: Schema, default: int) -> int:
    """The draft that `$schema` names; `default` if it is absent or unknown."""
    if isinstance(schema, dict):
        name = schema.get("$schema")
        if isinstance(name, str):
            for part, draft in _DRAFTS.items():
                if part in name:
                    return draft
    return default


class Resolver:
    """Makes sites and follows references within one schema text."""

    __slots__ = ("_anchors", "_dynamic", "_index", "_resources", "root")

    def __init__(self, schema: Schema) -> None:
        draft = draft_of(schema, UNSPECIFIED)
        uri = urldefrag(_identifier(schema, draft))[0]
        self.root = Site(schema, "", Resource(uri, schema, "", draft))
        self._resources: dict[int, Resource] = {}
        self._index: dict[str, Resource] | None = None
        self._anchors: dict[tuple[str, str], Site] = {}
        self._dynamic: Counter[str] = Counter()

    def site(self, schema: Schema, pointer: str, parent: Resource) -> Site:
        """The site of a subschema found under `parent`."""
        if type(schema) is dict and ("$id" in schema or "id" in schema):
            parent = self._entered(schema, pointer, parent)
        return Site(schema, pointer, parent)

    def _entered(self, schema: Schema, pointer: str, parent: Resource) -> Resource:
        """The resource that `schema` opens, or `parent` if it opens none."""
        known = self._resources.get(id(schema))
        if known is not None:
            return known
        identifier = _identifier(schema, parent.draft)
        if not identifier or identifier.startswith("#") or schema is parent.schema:
            return parent
        uri = urldefrag(_joined(parent.uri, identifier, pointer))[0]
        resource = Resource(uri, schema, pointer, draft_of(schema, parent.draft))
        self._resources[id(schema)] = resource
        return resource

    def follow(self, site: Site, reference: object, keyword: str = "$ref") -> Site:
        """The site that the `$ref` (or another keyword) at `site` means.

        Raises:
            InvalidSchema: it is not a string, or leads nowhere.
            UnsupportedSchema: it leads out of the text.
        """
        place = f"{site.pointer}/{keyword}"
        if not isinstance(reference, str):
            raise error_at(InvalidSchema, place, f"a reference must be a string, not {reference!r}")
        if reference == "#" or reference.startswith("#/"):
            return self._walk(site.resource, reference[1:], reference, place)
        target, fragment = urldefrag(_joined(site.resource.uri, reference, place))
        resource = self._resource(target)
        if resource is None:
            raise error_at(
                UnsupportedSchema,
                place,
                f"{reference!r} leads out of the schema, and nothing is fetched; put the referenced schema under $defs",
            )
        if not fragment or fragment.startswith("/"):
            return self._walk(resource, fragment, reference, place)
        found = self._anchors.get((resource.uri, unquote(fragment)))
        if found is None:
            raise error_at(InvalidSchema, place, f"there is no anchor {reference!r} in the schema")
        return found

    def is_static(self, reference: object) -> bool:
        """Whether a dynamic reference can only mean one place: at most one dynamic anchor has its name."""
        self._resource("")
        name = reference.split("#")[-1] if isinstance(reference, str) else ""
        return self._dynamic[name] <= 1

    def _walk(self, resource: Resource, fragment: str, reference: str, place: str) -> Site:
        """The site at a JSON pointer relative to a resource."""
        schema: Any = resource.schema
        pointer = resource.pointer
        tokens = fragment.split("/")[1:]
        for index, token in enumerate(tokens):
            if "%" in token:
                token = unquote(token)
            token = token.replace("~1", "/").replace("~0", "~")
            if type(schema) is dict and token in schema:
                schema = schema[token]
            elif type(schema) is list and token.isdigit() and int(token) < len(schema):
                schema = schema[int(token)]
            else:
                raise error_at(InvalidSchema, place, f"{reference!r} leads nowhere ({token!r})")
            pointer = f"{pointer}/{escape(token)}"
            if type(schema) is dict and index + 1 < len(tokens) and ("$id" in schema or "id" in schema):
                resource = self._entered(schema, pointer, resource)
        if type(schema) is not dict and type(schema) is not bool:
            raise error_at(InvalidSchema, place, f"{reference!r} leads to something that is no schema")
        return self.site(schema, pointer, resource)

    def _resource(self, uri: str) -> Resource | None:
        if self._index is None:
            self._index = {}
            self._build_index()
        return self._index.get(uri)

    def _build_index(self) -> None:
        """Finds every resource and anchor of the text."""
        assert self._index is not None
        self._index.setdefault(self.root.resource.uri, self.root.resource)
        pending = [self.root]
        while pending:
            site = pending.pop()
            schema, resource = site.schema, site.resource
            if type(schema) is not dict:
                continue
            if resource.schema is schema:
                self._index.setdefault(resource.uri, resource)
            if isinstance(schema.get("$dynamicAnchor"), str):
                self._dynamic[schema["$dynamicAnchor"]] += 1
            if schema.get("$recursiveAnchor") is True:
                self._dynamic[""] += 1
            for name in _anchors(schema):
                self._anchors.setdefault((resource.uri, name), site)
            for child, path in _children(schema):
                pending.append(self.site(child, f"{site.pointer}/{path}", resource))


def check_size(schema: object) -> bool:
    """Refuses a text that is nested too deeply, too large, or that contains itself, without recursion.

    Returns whether `unevaluated…` occurs in it.

    Raises:
        ConstraintTooLarge: deeper than `MAX_DEPTH`, or more than `MAX_VALUES`.
    """
    level = [schema]
    num_values = 0
    evaluates = False
    for _ in range(MAX_DEPTH):
        below: list[object] = []
        for item in level:
            if type(item) is dict:
                if not all(type(key) is str for key in item):
                    raise InvalidSchema("the schema has an object with a key that is no string")
                below += item.values()
                evaluates = evaluates or "unevaluatedProperties" in item or "unevaluatedItems" in item
            elif type(item) is list:
                below += item
        level = [item for item in below if type(item) is dict or type(item) is list]
        if not level:
            return evaluates
        num_values += len(level)
        if num_values > MAX_VALUES:
            raise ConstraintTooLarge(f"the schema has more than {MAX_VALUES} objects and arrays; make it smaller")
    raise ConstraintTooLarge(f"the schema is nested deeper than {MAX_DEPTH} levels; flatten it with $ref")


def _identifier(schema: Schema, draft: int) -> str:
    if not isinstance(schema, dict):
        return ""
    identifier = schema.get("$id")
    if identifier is None and draft in (UNSPECIFIED, DRAFT_4):
        identifier = schema.get("id")
    if "$ref" in schema and draft in (DRAFT_4, DRAFT_6, DRAFT_7):
        return ""
    return identifier if isinstance(identifier, str) else ""


def _joined(base: str, reference: str, place: str) -> str:
    """`urljoin` that also joins on urn: and other bases it does not know."""
    try:
        if reference.startswith("#"):
            return urldefrag(base)[0] + reference
        return urljoin(base, reference)
    except ValueError as error:
        raise error_at(InvalidSchema, place, f"{reference!r} is no URI reference") from error


def _anchors(schema: dict[str, Any]) -> list[str]:
    found = [schema[k] for k in ("$anchor", "$dynamicAnchor") if isinstance(schema.get(k), str)]
    for key in ("$id", "id"):
        identifier = schema.get(key)
        if isinstance(identifier, str) and "#" in identifier:
            found.append(identifier.split("#", 1)[1])
    return [name for name in found if name]


def _children(schema: dict[str, Any]) -> list[tuple[Schema, str]]:
    found: list[tuple[Schema, str]] = []
    for key in _HOLD_SCHEMA:
        child = schema.get(key)
        if isinstance(child, dict):
            found.append((child, key))
    for key in _HOLD_LIST:
        children = schema.get(key)
        if isinstance(children, list):
            found += [(c, f"{key}/{i}") for i, c in enumerate(children) if isinstance(c, dict)]
    for key in _HOLD_MAP:
        named = schema.get(key)
        if isinstance(named, dict):
            found += [(c, f"{key}/{escape(n)}") for n, c in named.items() if isinstance(c, dict)]
    return found
