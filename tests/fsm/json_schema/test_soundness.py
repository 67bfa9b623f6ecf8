"""Schemas of all keywords against the judge, on instances near the border: what is written, and what differs a little.

Random instances are mostly refused at the first member, so these are made from what the automaton itself writes:
every text must be valid, and every small change of it (a key less, an item more, another number) must be taken if
and only if the judge takes it. Key order and the spelling of numbers are ours: an instance counts as taken if any
order of its keys is. Patterns have no `\\w` or `\\d`: these are ASCII in JSON Schema (ECMA-262), not in the judge.
"""

from __future__ import annotations

import json
import random
from itertools import islice
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .test_fuzz import MAX_ORDERS, compiled, orders, verdict
from .walks import accepts, judge_of, walk, written

NAMES = ("a", "b", "c", "", 'q"', "x/~y", "é")
STRINGS = ("", "a", "ab", "ba", "abc", "é", "\t", '"', "\\", "𝄞", "\x7f", "2020-02-29", "1.2.3.4")
NUMBERS = (0, 1, 2, 3, 4, 6, 10, -1, -3, 0.5, 2.5, -0.5, 1e3, 0.1, 1234567890123, 100, 99)
PATTERNS = ("a", "^a", "b$", "^(ab|ba)$", "^[^b]*$", "^.?$", "[0-9]", "^\\u0061|é.?$", "^(?!a)", "(?<!b)c|𝄞", "a{2,3}$")
FORMATS = ("date", "ipv4", "email", "uuid", "no-such-format")
TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")

SCALARS = (None, True, False, *STRINGS, *NUMBERS)

scalars = st.sampled_from(SCALARS)
small = st.integers(0, 3)
bounds = st.sampled_from((-1, 0, 1, 2, 2.5, 0.1, 3, 5, 10, 100, -0.5))
constants = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=2),
    max_leaves=4,
)


def groups(inner: st.SearchStrategy[Any]) -> dict[str, dict[str, st.SearchStrategy[Any]]]:
    """Keywords that mean something together, over subschemas `inner`."""
    schemas = st.lists(inner, min_size=1, max_size=3)
    names = st.lists(st.sampled_from(NAMES), max_size=2, unique=True)
    return {
        "string": {
            "minLength": small,
            "maxLength": small,
            "pattern": st.sampled_from(PATTERNS),
            "format": st.sampled_from(FORMATS),
        },
        "number": {
            "minimum": bounds,
            "maximum": bounds,
            "exclusiveMinimum": bounds,
            "exclusiveMaximum": bounds,
            "multipleOf": st.sampled_from([1, 2, 3, 7, 0.5, 10]),
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
            "properties": st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
            "required": names,
            "additionalProperties": inner,
            "patternProperties": st.dictionaries(st.sampled_from(PATTERNS), inner, max_size=2),
            "propertyNames": inner,
            "minProperties": st.integers(0, 2),
            "maxProperties": small,
            "dependentRequired": st.dictionaries(st.sampled_from(NAMES), names, max_size=2),
            "dependentSchemas": st.dictionaries(st.sampled_from(NAMES), inner, max_size=1),
            "dependencies": st.dictionaries(st.sampled_from(NAMES), inner | names, max_size=2),
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
            "$ref": st.sampled_from(["#/$defs/p", "#/$defs/q", "#anchor", "http://example.com/other"]),
            "$dynamicRef": st.sampled_from(["#node", "other#node", "#anchor"]),
            "type": st.sampled_from(TYPES) | st.lists(st.sampled_from(TYPES), min_size=1, max_size=3, unique=True),
        },
    }


def keywords(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Up to four keywords of one type, with that type or without, and up to two that apply to any."""
    of_type = groups(inner)
    general = of_type.pop("any")

    def some(pairs: dict[str, st.SearchStrategy[Any]], most: int) -> st.SearchStrategy[dict[str, Any]]:
        pair = st.sampled_from(sorted(pairs)).flatmap(lambda name: st.tuples(st.just(name), pairs[name]))
        return st.lists(pair, min_size=1, max_size=most).map(dict)

    def typed(kind: str) -> st.SearchStrategy[dict[str, Any]]:
        body = some(of_type[kind], 4)
        return body | body.map(lambda found: {"type": kind, **found})

    one = st.sampled_from(sorted(of_type)).flatmap(typed)
    return one | some(general, 2) | st.builds(lambda first, second: {**first, **second}, one, some(general, 2))


leaves = st.sampled_from((True, True, True, False))
parts = st.recursive(leaves | keywords(leaves), keywords, max_leaves=8)


def document(body: Any, p: Any, q: Any, node: Any) -> Any:
    """A schema with two definitions, an embedded resource, anchors, and a dynamic anchor in each resource."""
    if isinstance(body, bool):
        return body
    with_anchor = {"$anchor": "anchor", **q} if isinstance(q, dict) else {"$anchor": "anchor"}
    with_node = {**node, "$dynamicAnchor": "node"} if isinstance(node, dict) else {"$dynamicAnchor": "node"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "http://example.com/main",
        **body,
        "$defs": {
            "p": p,
            "q": with_anchor,
            "node": with_node,
            "other": {
                "$id": "other",
                "$defs": {
                    "p": {"$dynamicAnchor": "node", "type": ["null", "array"], "items": {"$dynamicRef": "#node"}},
                    "q": {"$anchor": "anchor"},
                },
                **(p if isinstance(p, dict) else {}),
            },
        },
    }


TARGETS = {
    "#/$defs/p": ("p",),
    "#/$defs/q": ("q",),
    "#anchor": ("q",),
    "http://example.com/other": ("other",),
    "#node": ("node",),
    "other#node": ("node",),
}


def is_endless(schema: Any) -> bool:
    """Whether a definition may apply itself to the same value, be it by an idle keyword: the judge might never end."""
    if isinstance(schema, bool):
        return False
    edges = {name: applied(part) for name, part in schema["$defs"].items()}
    for _ in edges:
        for name, below in edges.items():
            edges[name] = below.union(*(edges[other] for other in below))
    return any(name in below for name, below in edges.items())


def applied(schema: Any) -> set[str]:
    """The definitions that a schema applies to the value itself."""
    found: set[str] = set()
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key in ("$ref", "$dynamicRef"):
                found.update(TARGETS[value])
            elif key in ("allOf", "anyOf", "oneOf"):
                found = found.union(*map(applied, value))
            elif key in ("not", "if", "then", "else"):
                found |= applied(value)
            elif key in ("dependentSchemas", "dependencies"):
                found = found.union(*map(applied, value.values()))
    return found


schemas = st.builds(document, parts, parts, parts, parts).filter(lambda schema: not is_endless(schema))


def changed(value: Any, generator: random.Random) -> Any:
    """The value with one small change somewhere in it."""
    if isinstance(value, list) and (value or generator.random() < 0.5) and generator.random() < 0.7:
        items = list(value)
        kind = generator.randrange(4)
        if kind == 0 or not items:
            items.insert(generator.randint(0, len(items)), any_value(generator))
        elif kind == 1:
            del items[generator.randrange(len(items))]
        elif kind == 2:
            items.append(generator.choice(items))
        else:
            index = generator.randrange(len(items))
            items[index] = changed(items[index], generator)
        return items
    if isinstance(value, dict) and generator.random() < 0.8:
        members = dict(value)
        kind = generator.randrange(3)
        if kind == 0 or not members:
            members[generator.choice(NAMES)] = any_value(generator)
        elif kind == 1:
            del members[generator.choice(list(members))]
        else:
            key = generator.choice(list(members))
            members[key] = changed(members[key], generator)
        return members
    if isinstance(value, str) and generator.random() < 0.5:
        place, left = generator.randint(0, len(value)), generator.randint(0, 1)
        return value[:place] + generator.choice(["", "a", "b", "é", "1", "\n"]) + value[place + left :]
    if type(value) in (int, float) and generator.random() < 0.5:
        return value + generator.choice([1, -1, 0.5, -value])
    return any_value(generator)


def any_value(generator: random.Random) -> Any:
    choice = generator.randrange(6)
    if choice == 0:
        return [generator.choice(SCALARS) for _ in range(generator.randrange(3))]
    if choice == 1:
        return {generator.choice(NAMES): generator.choice(SCALARS) for _ in range(generator.randrange(3))}
    return generator.choice(SCALARS)


def spelt(value: Any) -> Any:
    """The value with whole numbers as integers; None if a number would need an exponent."""
    if isinstance(value, float):
        if value.is_integer() and abs(value) < 1e15:
            return int(value)
        if "e" in repr(value):
            raise OverflowError
        return value
    if isinstance(value, list):
        return [spelt(item) for item in value]
    if isinstance(value, dict):
        return {key: spelt(item) for key, item in value.items()}
    return value


def check(schema: Any, seed: int, num_walks: int = 4, num_changes: int = 5) -> None:
    """Walks, judges, changes, and judges again."""
    automaton = compiled(schema)
    if automaton is None:
        return
    judge = judge_of(schema)
    is_loose = '"format"' in json.dumps(schema)  # the judge lets more pass than a format says
    generator = random.Random(seed)
    values = [any_value(generator) for _ in range(8)]
    for _ in range(num_walks if automaton else 0):
        text = walk(automaton, generator, 60)
        value = json.loads(text)
        assert verdict(judge, value) is not False, f"written: {text}"
        for _ in range(num_changes):
            value = changed(value, generator)
            values.append(value)
    for value in values:
        try:
            instance = spelt(value)
        except OverflowError:
            continue
        texts = [written(order) for order in islice(orders(instance), MAX_ORDERS)]
        if len(texts) == MAX_ORDERS:
            continue
        valid = verdict(judge, instance)
        if valid:
            assert is_loose or (automaton and any(accepts(automaton, text) for text in texts)), f"refused: {texts[0]}"
        elif automaton and valid is False:
            assert not any(accepts(automaton, text) for text in texts), f"accepted: {texts[0]}"


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(schemas, st.integers(0, 2**32))
def test_instances_near_the_border_are_judged_alike(schema: Any, seed: int) -> None:
    check(schema, seed)
