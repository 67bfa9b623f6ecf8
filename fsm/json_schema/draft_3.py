"""Draft 3 is read as draft 4, after what only it says is said in the words of draft 4.

Later drafts do not know those words, and what a draft does not know demands nothing: so they are replaced only where
`$schema` names draft 3. Faults are told with the place in the schema of draft 4. Cost: O(the schema).
"""

from __future__ import annotations

from typing import Any

_NAMES = frozenset(("properties", "patternProperties", "definitions", "dependencies"))  # keys there are no keywords
_VALUES = frozenset(("enum", "default"))


def is_draft_3(schema: Any) -> bool:
    """Whether `$schema` names draft 3."""
    return type(schema) is dict and "draft-03" in str(schema.get("$schema"))


def as_draft_4(schema: Any) -> Any:
    """The schema in the words of draft 4; a copy, in which what was shared is shared. What is so already stays."""
    copies: dict[tuple[int, bool], tuple[Any, Any]] = {}  # with what was copied, whose id stays its own then
    root = [schema]
    pending: list[tuple[Any, Any, bool]] = [(root, 0, False)]
    while pending:
        holder, key, is_map = pending.pop()
        value = holder[key]
        if type(value) not in (list, dict):
            continue
        known = copies.get((id(value), is_map), (None, None))[1]
        if known is None:
            known = list(value) if type(value) is list else dict(value) if is_map else _rewritten(value)
            copies[id(value), is_map] = value, known
            inner: Any = range(len(known)) if type(known) is list else known
            pending += [(known, name, not is_map and name in _NAMES) for name in inner if is_map or name not in _VALUES]
        holder[key] = known
    return root[0]


def _rewritten(schema: dict[str, Any]) -> dict[str, Any]:
    """One schema; those within it are as they were."""
    found = dict(schema)
    if type(found.get("required")) is bool:
        del found["required"]  # said by the parent
    properties = found.get("properties")
    if type(properties) is dict:
        needed = [name for name, one in properties.items() if type(one) is dict and _is_needed(one)]
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
        demands = [*demands, {"not": _any_of(found.pop("disallow"))}]
    if found.get("type") == "any":
        del found["type"]
    elif type(found.get("type")) is list and any(type(one) is dict or one == "any" for one in found["type"]):
        demands = [*demands, _any_of(found.pop("type"))]
    given = found.get("allOf", [])  # of draft 4; what is no list is told as a fault later
    if demands and type(given) is list:
        found["allOf"] = [*given, *demands]
    return found


def _is_needed(one: dict[str, Any]) -> bool:
    return one.get("required") is True and "$ref" not in one  # beside which nothing counts


def _any_of(types: Any) -> dict[str, Any]:
    """The schema of `type` or `disallow`: a type or a list of types and schemas."""
    options = types if type(types) is list else [types]
    return {"anyOf": [{} if one == "any" else one if type(one) is dict else {"type": one} for one in options]}
