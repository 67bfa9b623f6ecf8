"""Plain objects and arrays: the short way to a grammar leads to the same grammar."""

from __future__ import annotations

import json
from itertools import permutations, product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.errors import ConstraintError
from phloem.fsm import Compiler
from phloem.fsm.columns import K_SET
from phloem.fsm.json_schema import ExtraKeys, KeyOrder, schema_to_grammar
from phloem.fsm.network.network import Network, build_network
from phloem.fsm.text.text_table import TextTable

from ..vocabularies import BYTES

KEYS = st.sampled_from(["a", "b", "ab", "a/b", "~", "é", "\ud800"])
LEAVES = st.sampled_from(
    [True, False, {}, {"type": "string"}, {"type": "integer"}, {"enum": ["x", 1]}, {"$ref": "#"}, {"maxLength": 3}]
)


def objects(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(KEYS, values, min_size=1, max_size=4)},
        optional={"required": st.lists(KEYS, max_size=3), "additionalProperties": values},
    )


def arrays(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({"type": st.just("array"), "items": values})


SCHEMAS = st.recursive(LEAVES, lambda inner: objects(inner) | arrays(inner), max_leaves=8).flatmap(
    lambda inner: objects(st.just(inner) | LEAVES)
)


def the_long_way(schema: Any) -> Any:
    """The same schema with keywords that demand nothing, so that it is not plain any more."""
    if not isinstance(schema, dict):
        return schema
    kept = dict(schema)
    if schema.get("type") == "object":
        kept["properties"] = {key: the_long_way(value) for key, value in schema["properties"].items()}
        kept["minProperties"] = 0
    if schema.get("type") == "array":
        kept["items"] = the_long_way(schema["items"])
        kept["minItems"] = 0
    if "additionalProperties" in schema:
        kept["additionalProperties"] = the_long_way(schema["additionalProperties"])
    return kept


def network(schema: Any, key_order: KeyOrder, extra_keys: ExtraKeys) -> Network | type[ConstraintError]:
    try:
        return build_network(schema_to_grammar(schema, key_order=key_order, extra_keys=extra_keys))
    except ConstraintError as error:
        return type(error)


@settings(deadline=None)
@given(SCHEMAS, st.sampled_from(["schema", "any"]), st.sampled_from(["schema", "never"]))
def test_the_short_way_leads_to_the_same_network(schema: Any, key_order: KeyOrder, extra_keys: ExtraKeys) -> None:
    apart = json.loads(json.dumps(schema))  # what is one object in a schema is read once
    short, long = (network(each, key_order, extra_keys) for each in (apart, the_long_way(apart)))
    if not isinstance(short, Network) or not isinstance(long, Network):
        assert short is long
        return
    assert laid(short) == laid(long) and list(short.entries) == list(long.entries)
    assert [facts(text) for text in short.texts] == [facts(text) for text in long.texts]


def laid(network: Network) -> tuple[Any, ...]:
    """All arrays of a network."""
    core = network.laid
    arrays = (core.kinds, core.args, core.nexts, core.costs, core.options, core.entries, core.set_bytes)
    sets = [core.members(number) for number in core.args[core.kinds == K_SET].tolist()]
    return [array.tolist() for array in arrays], core.loops, core.shortest, core.num_bytes, sets


def facts(text: TextTable) -> tuple[Any, ...]:
    """What two tables of one language have in common."""
    bounds = text.counted and (text.counted.minimum, text.counted.maximum)
    return text.num_nodes, text.num_states, text.core.start, text.min_bytes, text.max_bytes, bounds


CONSTANTS = st.recursive(
    st.sampled_from([None, True, 1, 2.5, "", "é"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b", "é"]), inner, max_size=3),
    max_leaves=5,
)


def orders(value: Any) -> list[str]:
    """All ways to write a value, its keys in any order."""
    if isinstance(value, list):
        return [f"[{','.join(items)}]" for items in product(*map(orders, value))]
    if isinstance(value, dict):
        members = [[f"{json.dumps(k, ensure_ascii=False)}:{text}" for text in orders(v)] for k, v in value.items()]
        return [f"{{{','.join(each)}}}" for order in permutations(members) for each in product(*order)]
    return [json.dumps(value, ensure_ascii=False)]


@settings(deadline=None)
@given(st.lists(CONSTANTS, min_size=1, max_size=3), CONSTANTS)
def test_constants_are_written_in_every_order_of_their_keys(values: list[Any], other: Any) -> None:
    automaton = Compiler(BYTES).json_schema({"enum": values}, key_order="any").automaton
    allowed = {text for value in values for text in orders(value)}
    for text in allowed | set(orders(other)) | set(orders([other])) | set(orders({"a": other, "b": 1})):
        end = automaton.advance_bytes(automaton.start, text.encode())
        assert bool(end and automaton.is_accepting(end)) == (text in allowed), text
