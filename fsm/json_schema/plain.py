"""Plain objects and arrays, which nearly all are: from the schema to what is written in one step.

::

    {"type": "object", "properties": {..}, "required": [..], "additionalProperties": ..}
    {"type": "array", "items": ..}
    {"enum": [{..}, [..], ..]}

A schema that says nothing else, and is not combined with others, is one branch of one shape. So `reading` and
`branching` have nothing to do, and would take five times as long for the same result; such schemas are recognised here.

Invariant: the grammar writes the same either way, of objects and arrays rule by rule. Constants with objects or arrays
among them are literals, which share their beginnings: ten thousand of them cost no more than as many strings.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

from ..record import record
from .algebra import ANYTHING, Goal
from .resolve import Site
from .sites import KEYWORDS, Sites, is_keyword
from .texts import is_writable

MAX_DEPTH = 100
"""Deepest nesting of a constant that is written at once, since json.dumps recurs."""

_NOT_OF_OBJECTS = KEYWORDS - {"type", "properties", "required", "additionalProperties"}
_NOT_OF_ARRAYS = KEYWORDS - {"type", "items"}


@record
class PlainObject:
    """The keys that are named and the goals of their values; the keys that must be there; the goal of all others.

    `is_open`: the schema says itself what the others are.
    """

    pointer: str
    properties: dict[str, Goal]
    required: list[str]
    additional: Goal
    is_open: bool


@record
class PlainArray:
    """The goal of all items."""

    items: Goal


@record
class PlainConstants:
    """All values of a list, some of them objects or arrays, none of them with two spellings."""

    values: list[Any]


def plain(sites: Sites, goal: Goal) -> PlainObject | PlainArray | PlainConstants | None:
    """What a goal asks for if it is that plain; else None, also where the schema has a fault."""
    if len(goal) != 1 or sites.evaluates:
        return None
    (atom,) = goal
    if atom & 1:
        return None
    site = sites.table[atom >> 1]
    schema: Any = site.schema
    if type(schema) is not dict or sites.is_constant(site):
        return None
    kind = schema.get("type")
    if "enum" in schema or "const" in schema:
        return _plain_constants(site, schema)
    if kind == "object":
        return _plain_object(sites, site, schema) if _NOT_OF_OBJECTS.isdisjoint(schema) else None
    if kind == "array" and type(schema.get("items")) is dict and _NOT_OF_ARRAYS.isdisjoint(schema):
        return PlainArray(sites.goal(schema["items"], f"{site.pointer}/items", site.resource))
    return None


def _plain_object(sites: Sites, site: Site, schema: dict[str, Any]) -> PlainObject | None:
    named, required = schema.get("properties"), schema.get("required", [])
    if type(named) is not dict or not named or type(required) is not list or not {str}.issuperset(map(type, required)):
        return None
    properties = sites.goals(named, f"{site.pointer}/properties/", site.resource)
    is_open = "additionalProperties" in schema
    additional = ANYTHING
    if is_open:
        additional = sites.goal(schema["additionalProperties"], f"{site.pointer}/additionalProperties", site.resource)
    return PlainObject(site.pointer, properties, required, additional, is_open)


def _plain_constants(site: Site, schema: dict[str, Any]) -> PlainConstants | None:
    keywords = KEYWORDS.intersection(schema)
    if keywords == {"enum"}:
        values = schema["enum"]
    elif keywords == {"const"} and is_keyword("const", site.resource.draft):
        values = [schema["const"]]
    else:
        return None
    if type(values) is not list or not any([type(value) is dict or type(value) is list for value in values]):
        return None
    return PlainConstants(values) if all(map(_has_one_spelling, values)) else None


def _has_one_spelling(value: object) -> bool:
    """Whether json.dumps writes the value, and nothing else does: 1.0 may also be 1, and not every text is UTF-8."""
    pending: list[object] = []
    below = [value]
    depth = 0
    while pending or below:
        if not pending:
            pending, below, depth = below, [], depth + 1
        item = pending.pop()
        if type(item) is dict or type(item) is list:
            if depth > MAX_DEPTH:
                return False
            below += item
            below += item.values() if type(item) is dict else ()
        elif type(item) is str:
            if not is_writable(item):
                return False
        elif type(item) is float:
            if not isfinite(item) or item.is_integer():
                return False
        elif item is not None and type(item) is not int and type(item) is not bool:
            return False
    return True
