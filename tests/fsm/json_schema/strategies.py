"""Random schemas for hypothesis: every keyword, over a few words that collide often.

`FEW` are words for instances drawn at random (with more words, hardly one would be valid), `MANY` for instances
made from what an automaton writes: keys that need escapes, characters beyond ASCII, formats, anchors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

Schemas = st.SearchStrategy[Any]

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
KEY_ORDERS = st.sampled_from(("schema", "any"))
EXTRA_KEYS = st.sampled_from(("schema", "schema", "never"))

small = st.integers(0, 3)


@dataclass(frozen=True, slots=True)
class Words:
    """What the keywords speak of.

    Attributes:
        references: by keyword, what it may refer to; `document` of the tests that use it has these places.
    """

    names: tuple[str, ...]
    scalars: tuple[Any, ...]
    patterns: tuple[str, ...]
    bounds: tuple[float, ...]
    factors: tuple[float, ...]
    formats: tuple[str, ...] = ()
    references: dict[str, tuple[str, ...]] = field(default_factory=dict)


FEW = Words(
    names=("a", "b", "c"),
    scalars=(None, True, False, "", "a", "ab", "ba", "abc", "é", "\t", 0, 1, 2, 3, 4, 5, 6, 10, -1, -3, 0.5, 2.5, -0.5),
    patterns=("a", "^a", "b$", "^(ab|ba)$", "^[^b]*$", "^.?$"),
    bounds=(-1, 0, 1, 2, 2.5, 3, 5, 0.5),
    factors=(1, 2, 3, 0.5),
    references={"$ref": ("#/$defs/p", "#/$defs/q")},
)
MANY = Words(
    names=("a", "b", "c", "", 'q"', "x/~y", "é"),
    scalars=(
        *(None, True, False, "", "a", "ab", "ba", "abc", "é", "\t", '"', "\\", "𝄞", "\x7f", "2020-02-29", "1.2.3.4"),
        *(0, 1, 2, 3, 4, 6, 10, -1, -3, 0.5, 2.5, -0.5, 1e3, 0.1, 1234567890123, 100, 99),
    ),
    patterns=(
        *("a", "^a", "b$", "^(ab|ba)$", "^[^b]*$", "^.?$", "[0-9]"),
        *("^\\u0061|é.?$", "^(?!a)", "(?<!b)c|𝄞", "a{2,3}$", "^\\w+$"),
    ),
    bounds=(-1, 0, 1, 2, 2.5, 0.1, 3, 5, 10, 100, -0.5),
    factors=(1, 2, 3, 7, 0.5, 10),
    formats=("date", "ipv4", "email", "uuid", "no-such-format"),
    references={
        "$ref": ("#/$defs/p", "#/$defs/q", "#anchor", "http://example.com/other"),
        "$dynamicRef": ("#node", "other#node", "#anchor"),
    },
)

DEFINITIONS = {
    "#/$defs/p": "p",
    "#/$defs/q": "q",
    "#anchor": "q",
    "http://example.com/other": "other",
    "#node": "node",
    "other#node": "node",
}
"""The definition that a reference of `FEW` or `MANY` leads to."""


def keywords(words: Words) -> Callable[[Schemas], Schemas]:
    """Up to four keywords of any kind, over subschemas."""
    return lambda inner: _some({key: value for group in _groups(words, inner).values() for key, value in group.items()})


def keywords_of_a_kind(words: Words) -> Callable[[Schemas], Schemas]:
    """Up to four keywords of one type, with that type or without, and up to two that apply to any."""

    def schemas(inner: Schemas) -> Schemas:
        of_type = _groups(words, inner)
        general = _some(of_type.pop("any"), 2)

        def typed(kind: str) -> Schemas:
            body = _some(of_type[kind])
            return body | body.map(lambda found: {"type": kind, **found})

        one = st.sampled_from(sorted(of_type)).flatmap(typed)
        return one | general | st.builds(lambda first, second: {**first, **second}, one, general)

    return schemas


def without_dependencies(schema: Any) -> Any:
    """Without what the judge does not know from draft 2019-09 on; see `test_optional_keywords`."""
    if isinstance(schema, dict):
        return {key: without_dependencies(value) for key, value in schema.items() if key != "dependencies"}
    return [without_dependencies(item) for item in schema] if isinstance(schema, list) else schema


def _some(pairs: dict[str, Schemas], most: int = 4) -> Schemas:
    pair = st.sampled_from(sorted(pairs)).flatmap(lambda name: st.tuples(st.just(name), pairs[name]))
    return st.lists(pair, min_size=1, max_size=most).map(dict)


def _groups(words: Words, inner: Schemas) -> dict[str, dict[str, Schemas]]:
    """Keywords that mean something together, over subschemas `inner`."""
    schemas = st.lists(inner, min_size=1, max_size=3)
    name, bounds, patterns = map(st.sampled_from, (words.names, words.bounds, words.patterns))
    names = st.lists(name, max_size=2, unique=True)
    constants = st.recursive(
        st.sampled_from(words.scalars),
        lambda below: st.lists(below, max_size=2) | st.dictionaries(name, below, max_size=2),
        max_leaves=4,
    )
    return {
        "string": {
            "minLength": small,
            "maxLength": small,
            "pattern": patterns,
            **({"format": st.sampled_from(words.formats)} if words.formats else {}),
        },
        "number": {
            "minimum": bounds,
            "maximum": bounds,
            "exclusiveMinimum": bounds,
            "exclusiveMaximum": bounds,
            "multipleOf": st.sampled_from(words.factors),
        },
        "array": {
            "items": inner,
            "prefixItems": schemas,
            "additionalItems": inner,
            "minItems": small,
            "maxItems": small,
            "contains": inner,
            "minContains": st.integers(0, 2),
            "maxContains": small,
            "uniqueItems": st.booleans(),
            "unevaluatedItems": inner,
        },
        "object": {
            "properties": st.dictionaries(name, inner, max_size=3),
            "required": names,
            "additionalProperties": inner,
            "patternProperties": st.dictionaries(patterns, inner, max_size=2),
            "propertyNames": inner,
            "minProperties": st.integers(0, 2),
            "maxProperties": small,
            "dependentRequired": st.dictionaries(name, names, max_size=2),
            "dependentSchemas": st.dictionaries(name, inner, max_size=1),
            "dependencies": st.dictionaries(name, inner | names, max_size=2),
            "unevaluatedProperties": inner,
        },
        "any": {
            "enum": st.lists(constants, min_size=1, max_size=4),
            "const": constants,
            "allOf": schemas,
            "anyOf": schemas,
            "oneOf": schemas,
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
            "type": st.sampled_from(TYPES) | st.lists(st.sampled_from(TYPES), min_size=1, max_size=3, unique=True),
            **{keyword: st.sampled_from(targets) for keyword, targets in words.references.items()},
        },
    }


def is_endless(schema: Any) -> bool:
    """Whether a definition may apply itself to the same value, be it by an idle keyword: the judge might never end."""
    if isinstance(schema, bool):
        return False
    edges = {name: _applied(part) for name, part in schema["$defs"].items()}
    for _ in edges:
        for name, below in edges.items():
            edges[name] = below.union(*(edges[other] for other in below))
    return any(name in below for name, below in edges.items())


def _applied(schema: Any) -> set[str]:
    """The definitions that a schema applies to the value itself."""
    found: set[str] = set()
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key in ("$ref", "$dynamicRef"):
                found.add(DEFINITIONS[value])
            elif key in ("allOf", "anyOf", "oneOf"):
                found = found.union(*map(_applied, value))
            elif key in ("not", "if", "then", "else"):
                found |= _applied(value)
            elif key in ("dependentSchemas", "dependencies"):
                found = found.union(*map(_applied, value.values()))
    return found
