"""Where a subschema stands, and what its `$ref` means: `$id`, `$anchor`, JSON pointers and drafts.

A `Site` is a subschema together with its place in the text and the resource whose base URI its references are
relative to. Resources are embedded documents: the root, and every subschema with an `$id` (`id` up to draft 4). The
documents that the caller gives (`resources.py`) and the metaschemas of the specification are known
as well; their pointers begin with their URI and `#`. Nothing is ever fetched: any other reference that leaves the text
is refused.

What `$dynamicRef` and `$recursiveRef` mean depends on the way to them, so the way is a part of the resource: its
scope says for every dynamic anchor which resource was the first to bring it. The same subschema reached on two such
ways is two sites, compiled apart; in a text without dynamic anchors every scope is empty.

It knows nothing of what keywords mean, except which of them hold subschemas (to find `$id` and `$anchor`).
Cost: references of the form `#/…` cost their length; the first other reference indexes the whole text once, and all
documents that were given.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from ...errors import ConstraintTooLarge, InvalidSchema, UnsupportedSchema
from ..record import record
from ..resources import NO_RESOURCES, Resources
from .draft_3 import as_draft_4, is_draft_3
from .texts import error_at, escape, index_of

Schema = dict[str, Any] | bool

UNSPECIFIED, DRAFT_4, DRAFT_6, DRAFT_7, DRAFT_2019, DRAFT_2020 = 0, 4, 6, 7, 2019, 2020

MAX_DEPTH = 4_000
"""Deepest nesting of a schema's text that is read (objects and arrays within each other)."""
MAX_VALUES = 2_000_000
"""Most objects and arrays in a schema's text."""
MAX_SCOPES = 1_000
"""Most resources, counted once for every way to them that dynamic references distinguish."""

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
_EVALUATING = ("unevaluatedProperties", "unevaluatedItems")
_DYNAMIC = ("$dynamicRef", "$recursiveRef", "$dynamicAnchor", "$recursiveAnchor")
_ONLY_STRINGS = {str}
_HOLD_MORE = {dict, list}
_HOLD_MAP = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")


Scope = tuple[tuple[str, str], ...]
"""Which resource, by URI, was the first on the way to bring a dynamic anchor; `$recursiveAnchor` is the anchor ""."""


@record
class Resource:
    """A schema document: the root, or a subschema with an `$id` of its own; and the scope it was entered with."""

    uri: str
    schema: Schema
    pointer: str
    draft: int
    scope: Scope = ()


@record
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
    """Makes sites and follows references within one schema text, into given documents and metaschemas."""

    __slots__ = ("_anchors", "_dynamic", "_given", "_index", "_resources", "_scoped", "root")

    def __init__(self, schema: Schema, *, is_dynamic: bool, resources: Resources = NO_RESOURCES) -> None:
        draft = draft_of(schema, UNSPECIFIED)
        if is_draft_3(schema):
            schema = as_draft_4(schema)
        uri = _without_fragment(_identifier(schema, draft))
        self.root = Site(schema, "", Resource(uri, schema, "", draft))
        self._given = resources
        self._resources: dict[int, Resource] = {}
        self._index: dict[str, Resource] | None = None
        self._anchors: dict[tuple[str, str], Site] = {}
        self._dynamic: dict[str, list[str]] = {}  # dynamic anchors by the URI of their resource
        self._scoped: dict[tuple[int, Scope], Resource] = {}
        if is_dynamic:
            self._resource("")
            self.root = replace(self.root, resource=self._within(self.root.resource, ()))

    def site(self, schema: Schema, pointer: str, parent: Resource) -> Site:
        """The site of a subschema found under `parent`."""
        if type(schema) is dict and ("$id" in schema or "id" in schema):
            entered = self._entered(schema, pointer, parent)
            if entered is not parent:
                parent = self._within(entered, parent.scope)
        return Site(schema, pointer, parent)

    def _within(self, resource: Resource, scope: Scope) -> Resource:
        """The resource as it is when entered with a scope: its own dynamic anchors come after those."""
        if not self._dynamic:
            return resource
        known = {name for name, _ in scope}
        scope += tuple((name, resource.uri) for name in self._dynamic.get(resource.uri, ()) if name not in known)
        key = (id(resource.schema), scope)
        found = self._scoped.get(key)
        if found is None:
            if len(self._scoped) >= MAX_SCOPES:
                message = f"more than {MAX_SCOPES} ways to schemas with dynamic anchors; use $ref"
                raise error_at(ConstraintTooLarge, resource.pointer, message)
            found = self._scoped[key] = replace(resource, scope=scope)
        return found

    def _entered(self, schema: Schema, pointer: str, parent: Resource) -> Resource:
        """The resource that `schema` opens, without a scope, or `parent` if it opens none."""
        known = self._resources.get(id(schema))
        if known is not None:
            return known
        identifier = _identifier(schema, parent.draft)
        if not identifier or identifier.startswith("#") or schema is parent.schema:
            return parent
        if is_draft_3(schema) and not is_draft_3(parent.schema):
            message = "draft 3 within another draft is not read; give it in `resources`, under its address"
            raise error_at(UnsupportedSchema, f"{pointer}/$schema", message)
        uri = _without_fragment(_joined(parent.uri, identifier, pointer))
        resource = Resource(uri, schema, pointer, draft_of(schema, parent.draft))
        self._resources[id(schema)] = resource
        return resource

    def follow(self, site: Site, reference: object, keyword: str = "$ref") -> Site:
        """The site that the `$ref` (or another keyword) at `site` means.

        Raises:
            InvalidSchema: it is not a string, or leads nowhere.
            UnsupportedSchema: it leads out of the text, to no document that is given and no metaschema.
        """
        place = f"{site.pointer}/{keyword}"
        if not isinstance(reference, str):
            raise error_at(InvalidSchema, place, f"a reference must be a string, not {reference!r}")
        if reference == "#" or reference.startswith("#/"):
            return self._walk(site.resource, site.resource.scope, reference[1:], reference, place)
        target, fragment = urldefrag(_joined(site.resource.uri, reference, place))
        resource = self._resource(target)
        if resource is None:
            raise error_at(
                UnsupportedSchema,
                place,
                f"{reference!r} leads out of the schema, and nothing is fetched; "
                f"give the document {target!r} in resources, or put the schema under $defs",
            )
        if not fragment or fragment.startswith("/"):
            return self._walk(resource, site.resource.scope, fragment, reference, place)
        found = self._anchors.get((resource.uri, unquote(fragment)))
        if found is None:
            raise error_at(InvalidSchema, place, f"there is no anchor {reference!r} in the schema")
        return replace(found, resource=self._within(found.resource, site.resource.scope))

    def follow_dynamic(self, site: Site, reference: object, keyword: str) -> Site:
        """The site that the `$dynamicRef` or `$recursiveRef` at `site` means.

        That is the place that a `$ref` would mean; but if this is a dynamic anchor, then the anchor of that name in
        the resource that was entered first of all that have one. Errors are those of `follow`.
        """
        found = self.follow(site, reference, keyword)
        if type(found.schema) is not dict or not isinstance(reference, str):
            return found
        if keyword == "$recursiveRef":
            name, is_anchor = "", found.schema.get("$recursiveAnchor") is True
        else:
            name = unquote(urldefrag(reference)[1])
            is_anchor = found.schema.get("$dynamicAnchor") == name
        uri = dict(site.resource.scope).get(name) if is_anchor else None
        outermost = None if uri is None else self._anchors.get((uri, name))
        if outermost is None:
            return found
        return replace(outermost, resource=self._within(outermost.resource, site.resource.scope))

    def _walk(self, resource: Resource, scope: Scope, fragment: str, reference: str, place: str) -> Site:
        """The site at a JSON pointer relative to a resource, come to from within `scope`."""
        schema: Any = resource.schema
        pointer = resource.pointer
        tokens = fragment.split("/")[1:]
        for token in tokens:
            if "%" in token:
                token = unquote(token)
            token = token.replace("~1", "/").replace("~0", "~")
            if type(schema) is dict and token in schema:
                schema = schema[token]
            elif type(schema) is list and (index := index_of(token)) is not None and index < len(schema):
                schema = schema[index]
            else:
                raise error_at(InvalidSchema, place, f"{reference!r} leads nowhere: there is no {token!r}")
            pointer = f"{pointer}/{escape(token)}"
            if type(schema) is dict and ("$id" in schema or "id" in schema):
                resource = self._entered(schema, pointer, resource)
        if type(schema) is not dict and type(schema) is not bool:
            raise error_at(InvalidSchema, place, f"{reference!r} leads to something that is no schema")
        return Site(schema, pointer, self._within(resource, scope))

    def _resource(self, uri: str) -> Resource | None:
        if self._index is None:
            self._index = {}
            self._add(self._index, self.root)
            for address, given in self._given.items():
                site = self._document(address, given)
                self._index.setdefault(address, site.resource)
                self._add(self._index, site)
        if uri not in self._index:
            document = metaschema(uri)
            if document is not None:
                self._add(self._index, self._document(uri, document))
        return self._index.get(uri)

    def _document(self, address: str, document: Schema) -> Site:
        """A document that is given under an address; of its own draft, or else that of the root."""
        draft = draft_of(document, self.root.resource.draft)
        if is_draft_3(document):
            document = as_draft_4(document)
        uri = _without_fragment(_joined(address, _identifier(document, draft), f"{address}#"))
        return Site(document, f"{address}#", Resource(uri, document, f"{address}#", draft))

    def _add(self, index: dict[str, Resource], document: Site) -> None:
        """Finds every resource and anchor of a document."""
        index.setdefault(document.resource.uri, document.resource)
        pending = [document]
        while pending:
            site = pending.pop()
            schema, resource = site.schema, site.resource
            if type(schema) is not dict:
                continue
            if resource.schema is schema:
                index.setdefault(resource.uri, resource)
            dynamic = schema.get("$dynamicAnchor")
            if schema.get("$recursiveAnchor") is True and schema is resource.schema:
                dynamic = ""
                self._anchors.setdefault((resource.uri, ""), site)
            if isinstance(dynamic, str):
                self._dynamic.setdefault(resource.uri, []).append(dynamic)
            for name in _anchors(schema):
                self._anchors.setdefault((resource.uri, name), site)
            for child, path in children(schema):
                place = f"{site.pointer}/{path}"
                opens = type(child) is dict and ("$id" in child or "id" in child)
                pending.append(Site(child, place, self._entered(child, place, resource) if opens else resource))


def metaschema(uri: str) -> dict[str, Any] | None:
    """The document that the specification publishes under a URI without fragment; None if there is none.

    Those of the package `jsonschema-specifications`, which holds them as data. It is shared: not to be written to.
    """
    if "//json-schema.org/" not in uri:
        return None
    from jsonschema_specifications import REGISTRY  # reads some twenty files, which few schemas ever need

    resource = REGISTRY.get(uri)
    return None if resource is None else resource.contents


def check_size(schema: object, base: str = "") -> tuple[bool, bool]:
    """Refuses a text that is nested too deeply, too large, or that contains itself, without recursion.

    Returns whether `unevaluated…`, and whether references that depend on the way to them (or anchors of such) occur.
    `base`: what pointers into the text begin with.

    Raises:
        ConstraintTooLarge: deeper than `MAX_DEPTH`, or more than `MAX_VALUES`.
    """
    level: list[Any] = [schema] if type(schema) is dict else []
    num_values = 0
    keys: set[object] = set()
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for item in level:
            if type(item) is dict:
                keys.update(item)
                below += item.values()
            else:
                below += item
        level = [item for item in below if type(item) in _HOLD_MORE]
        if not level:
            if keys and set(map(type, keys)) != _ONLY_STRINGS:
                raise InvalidSchema("the schema has an object with a key that is no string")
            return not keys.isdisjoint(_EVALUATING), not keys.isdisjoint(_DYNAMIC)
        num_values += len(level)
        if num_values > MAX_VALUES:
            raise ConstraintTooLarge(f"the schema has more than {MAX_VALUES} objects and arrays; make it smaller")
    message = f"the schema is nested deeper than {MAX_DEPTH} levels; flatten it with $ref"
    raise error_at(ConstraintTooLarge, base + _way_down(schema), message)


def _way_down(schema: object) -> str:
    """The pointer of something that is `MAX_DEPTH` levels deep in what is deeper."""
    levels: list[list[tuple[int, str, Any]]] = [[(0, "", schema)]]  # the place of what holds it in the level above
    for _ in range(MAX_DEPTH):
        below: list[tuple[int, str, Any]] = []
        for index, (_, _, item) in enumerate(levels[-1]):
            parts = item.items() if type(item) is dict else enumerate(item)
            below += [(index, escape(str(key)), value) for key, value in parts if type(value) in _HOLD_MORE]
        levels.append(below)
    index, tokens = 0, []
    for level in reversed(levels):
        index, token, _ = level[index]
        tokens.append(token)
    return "/".join(reversed(tokens))


def _identifier(schema: Schema, draft: int) -> str:
    if not isinstance(schema, dict):
        return ""
    identifier = schema.get("$id")
    if identifier is None and draft in (UNSPECIFIED, DRAFT_4):
        identifier = schema.get("id")
    if "$ref" in schema and draft in (DRAFT_4, DRAFT_6, DRAFT_7):
        return ""
    return identifier if isinstance(identifier, str) else ""


def _without_fragment(uri: str) -> str:
    return urldefrag(uri)[0] if "#" in uri else uri


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


def children(schema: dict[str, Any]) -> list[tuple[Schema, str]]:
    """The subschemas that stand in a schema, in the order of the text, with the way from it to each."""
    found: list[tuple[Any, str]] = []
    for name, value in schema.items():
        if type(value) is list:
            found += [(item, f"{name}/{i}") for i, item in enumerate(value)] if name in _HOLD_LIST else []
        elif name in _HOLD_SCHEMA:
            found.append((value, name))
        elif name in _HOLD_MAP and isinstance(value, dict):
            found += [(item, f"{name}/{escape(key)}") for key, item in value.items()]
    return [(child, path) for child, path in found if isinstance(child, (dict, bool))]
