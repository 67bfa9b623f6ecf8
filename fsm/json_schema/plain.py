"""Plain objects and arrays, which nearly all are: from the schema to what is written in one step.

::

    {"type": "object", "properties": {..}, "required": [..], "additionalProperties": ..}
    {"type": "array", "items": ..}

A schema that says nothing else, and is not combined with others, is one branch of one shape. So there is nothing to be
found out by `reading` and `branching`, which would make the same of it in five times as long; they are told apart here.

Invariant: the grammar is the same either way, rule by rule.
"""

from __future__ import annotations

from typing import Any

from ..record import record
from .parts import ANYTHING, Goal
from .resolve import Site
from .sites import KEYWORDS, Sites

_OF_OBJECTS = frozenset(("type", "properties", "required", "additionalProperties"))
_OF_ARRAYS = frozenset(("type", "items"))


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


def plain(sites: Sites, goal: Goal) -> PlainObject | PlainArray | None:
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
    if kind == "object":
        return _plain_object(sites, site, schema) if KEYWORDS.intersection(schema) <= _OF_OBJECTS else None
    if kind == "array" and type(schema.get("items")) is dict and KEYWORDS.intersection(schema) == _OF_ARRAYS:
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
