"""Random schemas against the judge: what is written is valid, what is valid can be written, what is invalid cannot.

Keys may have to come in another order than an instance has them, so an instance counts as writable if any order
of its keys is (there are few keys).
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import islice, permutations, product
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phloem.errors import ConstraintTooLarge, EmptyLanguage, InvalidSchema, UnsupportedSchema

from .walks import accepts, automaton_of, judge_of, walk, written

MAX_ORDERS = 300  # instances with more orders of keys are passed over
NAMES = ("a", "b", "c")
KEYS = (*NAMES, "ab", "x")
STRINGS = ("", "a", "ab", "ba", "abc", "é", "\t")
NUMBERS = (0, 1, 2, 3, 4, 5, 6, 10, -1, -3, 0.5, 2.5, -0.5)
SCALARS = (None, True, False, *STRINGS, *NUMBERS)
PATTERNS = ("a", "^a", "b$", "^(ab|ba)$", "^[^b]*$", "^.?$")

scalars = st.sampled_from(SCALARS)
small = st.integers(0, 3)


def keywords(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A schema of a few keywords over subschemas `inner`."""
    schemas = st.lists(inner, min_size=1, max_size=3)
    names = st.lists(st.sampled_from(NAMES), max_size=2, unique=True)
    pairs: dict[str, st.SearchStrategy[Any]] = {
        "type": st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
        | st.lists(st.sampled_from(["null", "integer", "string", "array", "object"]), min_size=1, max_size=3),
        "enum": st.lists(scalars | st.just([1]) | st.just({"a": 1}), min_size=1, max_size=4),
        "const": scalars | st.just({"a": 1, "b": []}),
        "minLength": small,
        "maxLength": small,
        "pattern": st.sampled_from(PATTERNS),
        "minimum": st.sampled_from([-1, 0, 1, 2, 2.5]),
        "maximum": st.sampled_from([0, 1, 3, 5, 2.5]),
        "exclusiveMinimum": st.sampled_from([-1, 0, 1, 0.5]),
        "exclusiveMaximum": st.sampled_from([0, 2, 5, 2.5]),
        "multipleOf": st.sampled_from([1, 2, 3, 0.5]),
        "items": inner,
        "prefixItems": schemas,
        "minItems": small,
        "maxItems": small,
        "contains": inner,
        "properties": st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
        "required": names,
        "additionalProperties": inner,
        "patternProperties": st.dictionaries(st.sampled_from(PATTERNS), inner, max_size=2),
        "propertyNames": inner,
        "minProperties": st.integers(0, 1),
        "maxProperties": small,
        "dependentRequired": st.dictionaries(st.sampled_from(NAMES), names, max_size=2),
        "dependentSchemas": st.dictionaries(st.sampled_from(NAMES), inner, max_size=1),
        "allOf": schemas,
        "anyOf": schemas,
        "oneOf": schemas,
        "not": inner,
        "if": inner,
        "then": inner,
        "else": inner,
        "unevaluatedProperties": inner,
        "unevaluatedItems": inner,
        "$ref": st.sampled_from(["#/$defs/p", "#/$defs/q"]),
        # of earlier drafts
        "additionalItems": inner,
        "dependencies": st.dictionaries(st.sampled_from(NAMES), inner | names, max_size=2),
    }
    pair = st.sampled_from(sorted(pairs)).flatmap(lambda name: st.tuples(st.just(name), pairs[name]))
    return st.lists(pair, min_size=1, max_size=4).map(dict)


DRAFTS = (
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema#",
    "http://json-schema.org/draft-06/schema#",
)

parts = st.recursive(st.booleans() | keywords(st.booleans()), keywords, max_leaves=8)


def documents() -> st.SearchStrategy[Any]:
    """Whole schemas: a draft, two definitions that may refer to each other, and a body."""

    def document(draft: str, body: Any, p: Any, q: Any) -> Any:
        if isinstance(body, bool):
            return body
        if draft != DRAFTS[0]:
            body, p, q = (_with_lists_of_items(part) for part in (body, p, q))
        return {"$schema": draft, **body, "$defs": {"p": p, "q": q}}

    return st.builds(document, st.sampled_from(DRAFTS), parts, parts, parts)


def _with_lists_of_items(schema: Any) -> Any:
    """`prefixItems` as it was written before 2020-12; without `unevaluated…`, which the judge of 2019-09 gets wrong."""
    if isinstance(schema, dict):
        renamed = {key: _with_lists_of_items(value) for key, value in schema.items() if key[:5] != "uneva"}
        if "prefixItems" in renamed and isinstance(renamed["prefixItems"], list):
            renamed["items"] = renamed.pop("prefixItems")
        return renamed
    return [_with_lists_of_items(item) for item in schema] if isinstance(schema, list) else schema


schemas = documents().filter(lambda schema: not runs_in_circles(schema))
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=6,
)


def orders(value: Any) -> Iterator[Any]:
    """The value with the keys of its objects in every order."""
    if isinstance(value, list):
        for items in product(*(list(islice(orders(item), MAX_ORDERS)) for item in value)):
            yield list(items)
    elif isinstance(value, dict):
        for keys in permutations(value):
            for items in product(*(list(islice(orders(value[key]), MAX_ORDERS)) for key in keys)):
                yield dict(zip(keys, items, strict=True))
    else:
        yield value


def compiled(schema: Any) -> Any:
    """The automaton; None if the schema is refused, False if it is said to have no valid instance."""
    try:
        return automaton_of(schema)
    except (UnsupportedSchema, ConstraintTooLarge):
        return None
    except InvalidSchema as error:
        assert "itself" in str(error)  # a definition that applies itself in place
        return None
    except EmptyLanguage:
        return False


def verdict(judge: Any, instance: Any) -> bool | None:
    """What the judge says; None where it stumbles (over `items: false` in 2019-09)."""
    try:
        return bool(judge.is_valid(instance))
    except TypeError:
        return None


def runs_in_circles(schema: Any) -> bool:
    """Whether a definition applies itself to the same value, be it by a keyword that is idle: the judge never ends."""
    if isinstance(schema, bool):
        return False
    below = {name: applied(schema["$defs"][name]) for name in ("p", "q")}
    return "p" in below["p"] or "q" in below["q"] or ("q" in below["p"] and "p" in below["q"])


def applied(schema: Any) -> set[str]:
    """The definitions that a schema applies to the value itself."""
    found: set[str] = set()
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "$ref":
                found.add(value[-1])
            elif key in ("allOf", "anyOf", "oneOf"):
                found = found.union(*map(applied, value))
            elif key in ("not", "if", "then", "else"):
                found |= applied(value)
            elif key in ("dependentSchemas", "dependencies"):
                found = found.union(*map(applied, value.values()))
    return found


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(schemas, st.lists(values, min_size=8, max_size=8))
def test_exactly_the_valid_instances_can_be_written(schema: Any, instances: list[Any]) -> None:
    automaton = compiled(schema)
    if automaton is None:
        return
    judge = judge_of(schema)
    for instance in instances:
        texts = [written(order) for order in islice(orders(instance), MAX_ORDERS)]
        if len(texts) == MAX_ORDERS:
            continue
        valid = verdict(judge, instance)
        if valid:
            assert automaton and any(accepts(automaton, text) for text in texts), f"refused: {texts[0]}"
        elif automaton and valid is False:
            assert not any(accepts(automaton, text) for text in texts), f"accepted: {texts[0]}"


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(schemas, st.integers(0, 2**32))
def test_whatever_is_written_is_valid(schema: Any, seed: int) -> None:
    automaton = compiled(schema)
    if not automaton:
        return
    judge = judge_of(schema)
    generator = random.Random(seed)
    for _ in range(5):
        text = walk(automaton, generator, 60)
        assert verdict(judge, json.loads(text)) is not False, text
