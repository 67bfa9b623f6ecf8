"""What the tests of JSON Schema share: a byte automaton per schema, acceptance, random walks, the judge."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import numpy as np
from jsonschema.validators import validator_for

from phloem.fsm.automaton import Automaton
from phloem.fsm.json_schema import ExtraKeys, KeyOrder, Whitespace, schema_to_grammar
from phloem.fsm.network import build_network
from phloem.fsm.vocabulary import Vocabulary

BYTES = Vocabulary([bytes((byte,)) for byte in range(256)] + [b""], [256])
SEPARATORS = {"compact": (",", ":"), "spaced": (", ", ": ")}


def automaton_of(
    schema: Any,
    whitespace: Whitespace = "compact",
    key_order: KeyOrder = "schema",
    extra_keys: ExtraKeys = "schema",
) -> Automaton:
    grammar = schema_to_grammar(schema, whitespace=whitespace, key_order=key_order, extra_keys=extra_keys)
    return Automaton(build_network(grammar), BYTES)


def written(value: Any, style: str = "compact") -> str:
    return json.dumps(value, separators=SEPARATORS[style], ensure_ascii=False)


def accepts(automaton: Automaton, text: str) -> bool:
    state = automaton.advance_bytes(automaton.start, text.encode())
    return bool(state) and automaton.is_accepting(state)


def walk(automaton: Automaton, generator: random.Random, num_free: int = 120) -> str:
    """A random text: live bytes at random, then the shortest way to an end."""
    state, text = automaton.start, bytearray()
    num_free = generator.randrange(4, num_free)
    while True:
        late = len(text) >= num_free
        if automaton.is_accepting(state) and (late or generator.random() < 0.3):
            return text.decode()
        live = np.flatnonzero(automaton.live_bytes(state)).tolist()
        if not live:
            assert automaton.is_accepting(state), f"stuck after {bytes(text)!r}"
            return text.decode()
        if late:
            byte = min(live, key=lambda b: automaton.min_bytes(automaton.advance_bytes(state, bytes((b,)))))
        else:
            plain = [b for b in live if 32 <= b < 127]
            byte = generator.choice(plain if plain and generator.random() < 0.9 else live)
        text.append(byte)
        state = automaton.advance_bytes(state, bytes((byte,)))


def judge_of(schema: Any) -> Any:
    """The validator of the schema's own draft; formats count as far as it checks them."""
    kind = validator_for(schema, default=jsonschema.Draft202012Validator)
    return kind(schema, format_checker=kind.FORMAT_CHECKER)
