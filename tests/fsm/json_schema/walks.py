"""What the tests of JSON Schema share: a constraint over bytes per schema, acceptance, random walks, the judge."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Iterator
from itertools import islice, permutations, product
from typing import Any

import jsonschema
import numpy as np
from jsonschema.validators import validator_for

from phloem.errors import ConstraintTooLarge, EmptyLanguage, InvalidSchema, UnsupportedSchema
from phloem.fsm import Compiler, Constraint, Vocabulary
from phloem.fsm.json_schema import ExtraKeys, KeyOrder, Whitespace, schema_to_grammar

BYTES = Vocabulary([bytes((byte,)) for byte in range(256)] + [b""], [256])
COMPILER = Compiler(BYTES)
SEPARATORS = {"compact": (",", ":"), "spaced": (", ", ": ")}
MAX_ORDERS = 300
"""Instances with this many orders of keys are skipped."""


def constraint_of(
    schema: Any,
    whitespace: Whitespace = "compact",
    key_order: KeyOrder = "schema",
    extra_keys: ExtraKeys = "schema",
) -> Constraint:
    grammar = schema_to_grammar(schema, whitespace=whitespace, key_order=key_order, extra_keys=extra_keys)
    return COMPILER.from_grammar(grammar)


def compiled(schema: Any, key_order: KeyOrder = "schema", extra_keys: ExtraKeys = "schema") -> Any:
    """The constraint; None if the schema is refused, False if it is said to have no valid instance."""
    try:
        return constraint_of(schema, key_order=key_order, extra_keys=extra_keys)
    except (UnsupportedSchema, ConstraintTooLarge):
        return None
    except InvalidSchema as error:
        assert "itself" in str(error)  # a definition that applies itself in place
        return None
    except EmptyLanguage:
        return False


def written(value: Any, style: str = "compact") -> str:
    return json.dumps(value, separators=SEPARATORS[style], ensure_ascii=False)


def accepts(constraint: Constraint, text: str) -> bool:
    cursor = constraint.cursor()
    is_taken = all(cursor.advance(byte) for byte in text.encode()) and cursor.is_accepting
    assert constraint.accepts(text.encode()) == is_taken
    return is_taken


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


def walk(constraint: Constraint, generator: random.Random, num_free: int = 120) -> str:
    """A random text: live bytes at random, then the shortest way to an end."""
    cursor, text = constraint.cursor(), bytearray()
    automaton = constraint.automaton
    num_free = generator.randrange(4, num_free)
    while True:
        late = len(text) >= num_free
        if cursor.is_accepting and (late or generator.random() < 0.3):
            return text.decode()
        live = np.flatnonzero(np.unpackbits(cursor.row().view(np.uint8), bitorder="little")[:256]).tolist()
        if not live:
            assert cursor.is_accepting, f"stuck after {bytes(text)!r}"
            return text.decode()
        if late:
            byte = min(live, key=lambda b: automaton.min_bytes(automaton.advance_bytes(cursor.state, bytes((b,)))))
        else:
            plain = [b for b in live if 32 <= b < 127]
            byte = generator.choice(plain if plain and generator.random() < 0.9 else live)
        text.append(byte)
        assert cursor.advance(byte)


def judge_of(schema: Any) -> Any:
    """The validator of the schema's own draft; formats count as far as it checks them."""
    kind = validator_for(schema, default=jsonschema.Draft202012Validator)
    return kind(schema, format_checker=kind.FORMAT_CHECKER)


def verdict(judge: Any, instance: Any) -> bool | None:
    """What the judge says; None where it stumbles (over `items: false` in 2019-09).

    Nor is it asked about strings that end with a line feed: Python's `$` matches before it, JSON Schema's does not.
    """
    if '\\n"' in json.dumps(instance):
        return None
    try:
        return bool(judge.is_valid(instance))
    except TypeError:
        return None


def num_judged_alike(
    schema: Any,
    instances: Iterable[Any],
    key_order: KeyOrder = "schema",
    extra_keys: ExtraKeys = "schema",
    judge: Any = None,
) -> int | None:
    """Asserts that each instance can be written as it is if and only if the judge takes it.

    Returns how many can; None if the schema is refused.
    """
    constraint, judge, count = compiled(schema, key_order, extra_keys), judge or judge_of(schema), 0
    if constraint is None:
        return None
    for instance in instances:
        taken = bool(constraint) and constraint.accepts(written(instance).encode())
        assert taken == judge.is_valid(instance), (schema, instance)
        count += taken
    return count


def check_instance(
    schema: Any, automaton: Any, instance: Any, key_order: KeyOrder, extra_keys: ExtraKeys, judge: Any
) -> None:
    """Asserts that an instance can be written if and only if the judge takes it, as far as that is promised.

    With keys in the order of the schema some order of its keys must be writable, with keys in any order all of them.
    Without keys that no schema names, objects may be left out.
    """
    texts = [written(order) for order in islice(orders(instance), MAX_ORDERS)]
    if len(texts) == MAX_ORDERS:
        return
    valid = verdict(judge, instance)
    if valid is None:
        return
    taken = (bool(automaton) and accepts(automaton, text) for text in texts)
    if not valid:
        assert not any(taken), f"accepted: {texts[0]}"
    elif _readers_differ(schema, texts[0]):
        return
    elif '"format"' not in json.dumps(schema) and (extra_keys == "schema" or not has_object(instance)):
        enough = all if key_order == "any" and not _leaves_orders_out(schema) else any
        assert enough(taken), f"refused: {texts[0]}"


def _readers_differ(schema: Any, text: str) -> bool:
    """Whether it may be one of the values of which Python and ECMA-262 say different things (`\\w` and é)."""
    return not text.isascii() and re.search(r"\\\\[wWdDsSbB]", json.dumps(schema)) is not None


def has_object(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(map(has_object, value)))


def _leaves_orders_out(schema: Any) -> bool:
    """Whether some key that is not named might be demanded: no other unnamed key may follow it."""
    return any(f'"{word}"' in json.dumps(schema) for word in ("not", "if", "oneOf"))
