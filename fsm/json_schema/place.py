"""Place: where in a JSON value a text stops, and which subschemas apply there.

For texts that a constraint has accepted so far, which are the beginning of some JSON value; for other texts the result
means nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ...errors import ConstraintError
from .keys import may_match
from .resolve import Site
from .sites import Sites
from .texts import escape

MAX_DEPTH = 64
BLANKS = " \t\r\n"
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
Path = tuple["str | int", ...]


class Stop(Enum):
    """What was being written."""

    VALUE = "value"  # a string, number or word has begun, or some value is due
    KEY = "key"  # a key has begun or is due
    AFTER = "after"  # a value is complete
    COLON = "colon"  # a key is complete


@dataclass(frozen=True, slots=True)
class Place:
    """Where a text stops.

    Attributes:
        path: keys and indices to the value (or, for keys, to the object).
        stop: what was being written.
        begin: where the value or key begins; the length of the text if it has not.
        container: where the innermost object or array begins, -1 outside of all.
        written: the keys of the innermost object so far.
        is_object: whether the innermost container is an object.
    """

    path: Path
    stop: Stop
    begin: int
    container: int
    written: tuple[str, ...]
    is_object: bool

    @property
    def pointer(self) -> str:
        """The path as a JSON pointer."""
        return "".join(f"/{escape(str(step))}" for step in self.path)


@dataclass(slots=True)
class _Frame:
    begin: int
    is_object: bool
    keys: list[str]
    index: int = 0
    wants_key: bool = True


def place_of(text: str) -> Place:
    """Where the text stops."""
    frames: list[_Frame] = []
    stop, begin, index = Stop.VALUE, 0, 0
    while index < len(text):
        c = text[index]
        top = frames[-1] if frames else None
        if c in BLANKS:
            index += 1
            if stop is not Stop.AFTER and begin == index - 1:
                begin = index
            continue
        if c == '"':
            end = string_end(text, index)
            if end < 0:
                return _place(frames, stop, index)
            if top is not None and top.is_object and top.wants_key:
                top.keys.append(_read(text[index:end]))
                top.wants_key, stop = False, Stop.COLON
            else:
                stop = Stop.AFTER
            index = begin = end
        elif c in "{[":
            frames.append(_Frame(index, c == "{", []))
            index += 1
            stop, begin = Stop.KEY if c == "{" else Stop.VALUE, index
        elif c in "}]" and top is not None:
            frames.pop()
            index += 1
            stop, begin = Stop.AFTER, index
        elif c == "," and top is not None:
            index += 1
            top.index, top.wants_key = top.index + 1, True
            stop, begin = Stop.KEY if top.is_object else Stop.VALUE, index
        elif c == ":":
            index += 1
            stop, begin = Stop.VALUE, index
        else:
            end = index
            while end < len(text) and text[end] not in ",]}" + BLANKS:
                end += 1
            if end == len(text):
                return _place(frames, Stop.VALUE, index)
            index, stop, begin = end, Stop.AFTER, end
    return _place(frames, stop, begin)


def _place(frames: list[_Frame], stop: Stop, begin: int) -> Place:
    path: list[str | int] = []
    for depth, frame in enumerate(frames):
        if depth + 1 == len(frames) and stop in (Stop.KEY, Stop.AFTER, Stop.COLON):
            break
        path.append((frame.keys[-1] if frame.keys else "") if frame.is_object else frame.index)
    top = frames[-1] if frames else None
    written = tuple(top.keys) if top is not None and top.is_object else ()
    is_object = top is not None and top.is_object
    return Place(tuple(path), stop, begin, top.begin if top is not None else -1, written, is_object)


def string_end(text: str, begin: int) -> int:
    """Where the string that begins there has ended; -1 if it has not."""
    index = begin + 1
    while index < len(text):
        if text[index] == '"':
            return index + 1
        index += 2 if text[index] == "\\" else 1
    return -1


def _read(text: str) -> str:
    try:
        return str(json.loads(text))
    except ValueError:
        return text[1:-1]


def sites_at(sites: Sites, path: Path) -> list[Site]:
    """The subschemas that may apply to the instance at a path, before those that they apply in place."""
    found = [sites.resolver.root]
    for step in path:
        found = [below for site in found for here in in_place(sites, site) for below in _children(sites, here, step)]
        found = list({(id(site.schema), site.pointer): site for site in found}.values())
    return found


def in_place(sites: Sites, site: Site, depth: int = 0, seen: set[tuple[int, str]] | None = None) -> Iterator[Site]:
    """The subschema and those that it applies to the same value, each once; of alternatives, all."""
    seen = set() if seen is None else seen
    if (id(site.schema), site.pointer) in seen:
        return
    seen.add((id(site.schema), site.pointer))
    yield site
    schema: Any = site.schema
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return
    for target in referred(sites, site):
        yield from in_place(sites, target, depth + 1, seen)
    for name in ("allOf", "anyOf", "oneOf"):
        for option in options(sites, site, name):
            yield from in_place(sites, option, depth + 1, seen)
    for name in ("then", "else"):
        if "if" in schema and isinstance(schema.get(name), dict):
            yield from in_place(sites, below(sites, site, name), depth + 1, seen)
    if isinstance(schema.get("dependentSchemas"), dict):
        for key in schema["dependentSchemas"]:
            yield from in_place(sites, below(sites, site, "dependentSchemas", key), depth + 1, seen)


def referred(sites: Sites, site: Site, names: tuple[str, ...] = REFERENCES) -> list[Site]:
    """What the references of a subschema lead to."""
    schema: Any = site.schema
    found: list[Site] = []
    for name in names:
        if name in schema:
            try:
                found.append(sites.resolver.follow(site, schema[name], name))
            except ConstraintError:
                continue
    return found


def options(sites: Sites, site: Site, name: str) -> list[Site]:
    """The members of `allOf`, `anyOf` or `oneOf`."""
    schema: Any = site.schema
    value = schema.get(name)
    return [below(sites, site, name, index) for index in range(len(value))] if isinstance(value, list) else []


def below(sites: Sites, site: Site, *steps: str | int) -> Site:
    """The subschema at some steps below another one."""
    schema: Any = site.schema
    pointer = site.pointer
    for step in steps:
        schema, pointer = schema[step], f"{pointer}/{escape(str(step))}"
    return sites.resolver.site(schema, pointer, site.resource)


def _children(sites: Sites, site: Site, step: str | int) -> Iterator[Site]:
    """The subschemas for one member or item."""
    schema: Any = site.schema
    if not isinstance(schema, dict):
        return
    if isinstance(step, int):
        for name in ("prefixItems", "items"):
            value = schema.get(name)
            if isinstance(value, list) and step < len(value):
                yield below(sites, site, name, step)
                return
        name = "additionalItems" if isinstance(schema.get("items"), list) else "items"
        if isinstance(schema.get(name), (dict, bool)):
            yield below(sites, site, name)
        return
    is_known = False
    if step in schema.get("properties", {}):
        is_known = True
        yield below(sites, site, "properties", step)
    for pattern in schema.get("patternProperties", {}):
        if may_match(pattern, step):
            is_known = True
            yield below(sites, site, "patternProperties", pattern)
    if not is_known and isinstance(schema.get("additionalProperties"), (dict, bool)):
        yield below(sites, site, "additionalProperties")
