"""Random schemas against the judge: what is written is valid, what is valid can be written, what is invalid cannot.

How keys are ordered, and whether there are keys that no schema names, is drawn as well; `check_instance` says what
is promised then.
"""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phloem.fsm.json_schema import ExtraKeys, KeyOrder

from .strategies import EXTRA_KEYS, FEW, KEY_ORDERS, is_endless, keywords, without_dependencies
from .walks import accepts, check_instance, compiled, judge_of, verdict, walk

KEYS = (*FEW.names, "ab", "x")
DRAFTS = (
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema#",
    "http://json-schema.org/draft-06/schema#",
)

parts = st.recursive(st.booleans() | keywords(FEW)(st.booleans()), keywords(FEW), max_leaves=8)


def documents() -> st.SearchStrategy[Any]:
    """Whole schemas: a draft, two definitions that may refer to each other, and a body."""

    def document(draft: str, body: Any, p: Any, q: Any) -> Any:
        if isinstance(body, bool):
            return body
        if draft != DRAFTS[0]:
            body, p, q = (_with_lists_of_items(part) for part in (body, p, q))
        if draft in DRAFTS[:2]:
            body, p, q = (without_dependencies(part) for part in (body, p, q))
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


schemas = documents().filter(lambda schema: not is_endless(schema))
values = st.recursive(
    st.sampled_from(FEW.scalars),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(schemas, KEY_ORDERS, EXTRA_KEYS, st.lists(values, min_size=8, max_size=8))
def test_exactly_the_valid_instances_can_be_written(
    schema: Any, key_order: KeyOrder, extra_keys: ExtraKeys, instances: list[Any]
) -> None:
    automaton = compiled(schema, key_order, extra_keys)
    if automaton is None:
        return
    judge = judge_of(schema)
    for instance in instances:
        check_instance(schema, automaton, instance, key_order, extra_keys, judge)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(schemas, KEY_ORDERS, EXTRA_KEYS, st.integers(0, 2**32))
def test_whatever_is_written_is_valid(schema: Any, key_order: KeyOrder, extra_keys: ExtraKeys, seed: int) -> None:
    automaton = compiled(schema, key_order, extra_keys)
    if not automaton:
        return
    judge = judge_of(schema)
    wider = compiled(schema, key_order) if extra_keys == "never" else None
    generator = random.Random(seed)
    for _ in range(5):
        text = walk(automaton, generator, 60)
        assert verdict(judge, json.loads(text)) is not False, text
        assert wider is None or accepts(wider, text), text
