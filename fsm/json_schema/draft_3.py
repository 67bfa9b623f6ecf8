"""Draft 3 is read as draft 4, after what only it says is said in the words of draft 4.

Drafts do not know the words of others, and what a draft does not know demands nothing: so words are replaced only where
`$schema` names draft 3, and those that came with draft 4 or later are left out there. Faults are told with the place in
the schema of draft 4. Cost: O(the schema).
"""

from __future__ import annotations

from typing import Any

_NAMES = frozenset(("properties", "patternProperties", "definitions", "dependencies"))  # keys there are no keywords
_VALUES = frozenset(("enum", "default"))
_LATER = frozenset(("allOf", "anyOf", "maxProperties", "minProperties", "multipleOf", "not", "oneOf"))


class _Made(dict[str, Any]):
    """A schema in the words of draft 4 around some of draft 3."""


def is_draft_3(schema: Any) -> bool:
    """Whether `$schema` names draft 3."""
    return type(schema) is dict and "draft-03" in str(schema.get("$schema"))


def as_draft_4(schema: Any) -> Any:
    """The schema in the words of draft 4; a copy, in which what was shared is shared."""
    copies: dict[tuple[int, bool], tuple[Any, Any]] = {}  # with what was copied, whose id stays its own then
    root = [schema]
    pending: list[tuple[Any, Any, bool]] = [(root, 0, False)]
    while pending:
        holder, key, is_map = pending.pop()
        value = holder[key]
        if type(value) not in (list, dict, _Made):
            continue
        known = copies.get((id(value), is_map), (None, None))[1]
        if known is None:
            is_said = is_map or type(value) is _Made
            known = list(value) if type(value) is list else dict(value) if is_said else _rewritten(value)
            copies[id(value), is_map] = value, known
            inner: Any = range(len(known)) if type(known) is list else known
            pending += [(known, name, not is_map and name in _NAMES) for name in inner if is_map or name not in _VALUES]
        holder[key] = known
    return root[0]


def _rewritten(schema: dict[str, Any]) -> dict[str, Any]:
    """One schema; those within it are as they were."""
    found = {name: value for name, value in schema.items() if name not in _LATER}
    if type(found.get("required")) is bool:
        del found["required"]  # said by the parent
    properties = found.get("properties")
    if type(properties) is dict:
        needed = [name for name, one in properties.items() if type(one) is dict and one.get("required") is True]
        if needed:
            found["required"] = needed
    if "divisibleBy" in found:
        found["multipleOf"] = found.pop("divisibleBy")
    dependencies = found.get("dependencies")
    if type(dependencies) is dict:
        found["dependencies"] = {key: [one] if type(one) is str else one for key, one in dependencies.items()}
    extended = found.pop("extends", [])
    demands = extended if type(extended) is list else [extended]
    if "disallow" in found:
        demands = [*demands, _Made({"not": _any_of(found.pop("disallow"))})]
    if found.get("type") == "any":
        del found["type"]
    elif type(found.get("type")) is list and any(type(one) is dict or one == "any" for one in found["type"]):
        demands = [*demands, _any_of(found.pop("type"))]
    if demands:
        found["allOf"] = demands
    return found


def _any_of(types: Any) -> _Made:
    """The schema of `type` or `disallow`: a type or a list of types and schemas."""
    options = types if type(types) is list else [types]
    return _Made({"anyOf": [{} if one == "any" else one if type(one) is dict else {"type": one} for one in options]})
