"""Schemas of all keywords against the judge, on instances near the border: what is written, and what differs a little.

Random instances are mostly refused at the first member, so these are made from what the automaton itself writes:
every text must be valid, and every small change of it (a key less, an item more, another number) must be taken if
and only if the judge takes it. Key order and the spelling of numbers are ours: an instance counts as taken if any
order of its keys is. Patterns have no `\\w` or `\\d`: these are ASCII in JSON Schema (ECMA-262), not in the judge.
"""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phloem.fsm.json_schema import ExtraKeys, KeyOrder

from .strategies import (
    EXTRA_KEYS,
    FEW,
    KEY_ORDERS,
    MANY,
    Words,
    is_endless,
    keywords,
    keywords_of_a_kind,
    without_dependencies,
)
from .walks import accepts, check_instance, compiled, judge_of, verdict, walk

DRAFTS = (
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema#",
    "http://json-schema.org/draft-06/schema#",
)
leaves = st.sampled_from((True, True, True, False))
parts = st.recursive(leaves | keywords_of_a_kind(MANY)(leaves), keywords_of_a_kind(MANY), max_leaves=8)
few_parts = st.recursive(st.booleans() | keywords(FEW)(st.booleans()), keywords(FEW), max_leaves=8)


def document(body: Any, p: Any, q: Any, node: Any) -> Any:
    """A schema with two definitions, an embedded resource, anchors, and a dynamic anchor in each resource."""
    if isinstance(body, bool):
        return body
    with_anchor = {"$anchor": "anchor", **q} if isinstance(q, dict) else {"$anchor": "anchor"}
    with_node = {**node, "$dynamicAnchor": "node"} if isinstance(node, dict) else {"$dynamicAnchor": "node"}
    return {
        "$schema": DRAFTS[0],
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


def few_document(draft: str, body: Any, p: Any, q: Any) -> Any:
    """A schema of some draft with two definitions."""
    if isinstance(body, bool):
        return body
    if draft != DRAFTS[0]:
        body, p, q = (with_lists_of_items(part) for part in (body, p, q))
    if draft in DRAFTS[:2]:
        body, p, q = (without_dependencies(part) for part in (body, p, q))
    return {"$schema": draft, **body, "$defs": {"p": p, "q": q}}


def with_lists_of_items(schema: Any) -> Any:
    """`prefixItems` as it was written before 2020-12; without `unevaluated…`, which the judge of 2019-09 gets wrong."""
    if isinstance(schema, dict):
        renamed = {key: with_lists_of_items(value) for key, value in schema.items() if key[:5] != "uneva"}
        if "prefixItems" in renamed and isinstance(renamed["prefixItems"], list):
            renamed["items"] = renamed.pop("prefixItems")
        return renamed
    return [with_lists_of_items(item) for item in schema] if isinstance(schema, list) else schema


schemas = (
    st.builds(document, parts, parts, parts, parts)
    .map(without_dependencies)
    .filter(lambda schema: not is_endless(schema))
)
few_schemas = st.builds(few_document, st.sampled_from(DRAFTS), few_parts, few_parts, few_parts).filter(
    lambda schema: not is_endless(schema)
)


def changed(value: Any, generator: random.Random, words: Words) -> Any:
    """The value with one small change somewhere in it."""
    if isinstance(value, list) and (value or generator.random() < 0.5) and generator.random() < 0.7:
        items = list(value)
        kind = generator.randrange(4)
        if kind == 0 or not items:
            items.insert(generator.randint(0, len(items)), any_value(generator, words))
        elif kind == 1:
            del items[generator.randrange(len(items))]
        elif kind == 2:
            items.append(generator.choice(items))
        else:
            index = generator.randrange(len(items))
            items[index] = changed(items[index], generator, words)
        return items
    if isinstance(value, dict) and generator.random() < 0.8:
        members = dict(value)
        kind = generator.randrange(3)
        if kind == 0 or not members:
            members[generator.choice(words.names)] = any_value(generator, words)
        elif kind == 1:
            del members[generator.choice(list(members))]
        else:
            key = generator.choice(list(members))
            members[key] = changed(members[key], generator, words)
        return members
    if isinstance(value, str) and generator.random() < 0.5:
        place, left = generator.randint(0, len(value)), generator.randint(0, 1)
        return value[:place] + generator.choice(["", "a", "b", "é", "1", "\n"]) + value[place + left :]
    if type(value) in (int, float) and generator.random() < 0.5:
        return value + generator.choice([1, -1, 0.5, -value])
    return any_value(generator, words)


def any_value(generator: random.Random, words: Words) -> Any:
    choice = generator.randrange(6)
    if choice == 0:
        return [any_value(generator, words) for _ in range(generator.randrange(3))]
    if choice == 1:
        return {generator.choice(words.names): any_value(generator, words) for _ in range(generator.randrange(3))}
    return generator.choice(words.scalars)


def spelt(value: Any) -> Any:
    """The value with whole numbers as integers.

    Raises:
        OverflowError: a number would need an exponent, or more than the 15 digits that are written of a fraction.
    """
    if isinstance(value, float):
        if value.is_integer() and abs(value) < 1e15:
            return int(value)
        if "e" in repr(value) or len(repr(abs(value))) > 16:
            raise OverflowError
        return value
    if isinstance(value, list):
        return [spelt(item) for item in value]
    if isinstance(value, dict):
        return {key: spelt(item) for key, item in value.items()}
    return value


def check(schema: Any, words: Words, seed: int, key_order: KeyOrder, extra_keys: ExtraKeys) -> None:
    """Walks, judges, changes, and judges again."""
    automaton = compiled(schema, key_order, extra_keys)
    if automaton is None:
        return
    judge, generator = judge_of(schema), random.Random(seed)
    wider = compiled(schema, key_order) if extra_keys == "never" else None  # refused if unnamed keys cannot be counted
    values = [any_value(generator, words) for _ in range(8)]
    for _ in range(4 if automaton else 0):
        text = walk(automaton, generator, 60)
        value = json.loads(text)
        assert verdict(judge, value) is not False, f"written: {text}"
        assert wider is None or accepts(wider, text), text
        for _ in range(5):
            value = changed(value, generator, words)
            values.append(value)
    for value in values:
        try:
            instance = spelt(value)
        except OverflowError:
            continue
        check_instance(schema, automaton, instance, key_order, extra_keys, judge)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(schemas, st.integers(0, 2**32), KEY_ORDERS, EXTRA_KEYS)
def test_instances_near_the_border_are_judged_alike(
    schema: Any, seed: int, key_order: KeyOrder, extra_keys: ExtraKeys
) -> None:
    check(schema, MANY, seed, key_order, extra_keys)


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(few_schemas, st.integers(0, 2**32), KEY_ORDERS, EXTRA_KEYS)
def test_instances_of_few_words_are_judged_alike_in_every_draft(
    schema: Any, seed: int, key_order: KeyOrder, extra_keys: ExtraKeys
) -> None:
    check(schema, FEW, seed, key_order, extra_keys)
