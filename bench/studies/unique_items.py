"""`uniqueItems` over items of any kind: verdicts on random schemas and instances, and walks within tight budgets.

    python bench/studies/unique_items.py [--schemas N] [--seed N] [--walks N]

Of each schema random instances, half of them with an item written again in another way (other order of members,
`1.0` for `1`), are judged by `jsonschema` and by a cursor. A valid instance that is refused is a false reject only if
it is taken without `uniqueItems`: other keywords leave spellings out. Then texts are written at random, each within a
budget of up to 150 tokens more than the least; each has to end complete and valid, no mask may be empty before, and
what a mask without a budget allows can be taken.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from typing import Any

import jsonschema
import numpy as np

from phloem.errors import EmptyLanguage, PhloemError
from phloem.fsm import Compiler, Constraint, Vocabulary

WORDS = [
    b"true", b"null", b"true,", b"[]", b"{}", b"],[", b"},{", b'"a"', b'"a",', b'","', b'{"a":', b'":', b"1,1", b"10",
    b"true,true", b'"}', b"}]", b"]]", b",[", b', "', b", ", b'{"', b'"b":', b"false}", b"1.0", b"e0", b'"a"}',
]  # fmt: skip
TOKENS = [*(bytes((byte,)) for byte in range(256)), *WORDS, b""]
EOS = len(TOKENS) - 1


def some_value(rng: random.Random, depth: int = 0) -> Any:
    """A small value."""
    kind = rng.randrange(6 if depth < 2 else 4)
    if kind == 4:
        return [some_value(rng, depth + 1) for _ in range(rng.randrange(3))]
    if kind == 5:
        return {key: some_value(rng, depth + 1) for key in rng.sample("ab", rng.randrange(3))}
    return rng.choice([[None, True, False], [0, 1, 10, 1.5, -1], ["", "a", "ab"], [1, "a"]][kind])


def some_schema(rng: random.Random, depth: int = 0) -> Any:
    """A schema of items, or of what is in them."""
    kind = rng.randrange(10 if depth < 2 else 5)
    if kind == 0:
        return {"type": rng.choice(["boolean", "integer", "number", "string", "null"])}
    if kind == 1:
        return {"enum": [some_value(rng, 1) for _ in range(rng.randrange(1, 4))]}
    if kind == 2:
        return {"type": "integer", "minimum": 0} | ({"maximum": 11} if rng.random() < 0.5 else {})
    if kind == 3:
        return {"type": rng.sample(["boolean", "integer", "string", "null", "object", "array"], 2)}
    if kind in (5, 6):
        found: dict[str, Any] = {"type": "object", "properties": {}}
        for key in rng.sample("ab", rng.randrange(1, 3)):
            found["properties"][key] = some_schema(rng, depth + 1)
        if rng.random() < 0.6:
            found["additionalProperties"] = False
        if rng.random() < 0.5:
            found["required"] = [key for key in found["properties"] if rng.random() < 0.6]
        return found
    if kind == 7:
        return {"type": "array", "items": some_schema(rng, depth + 1), "maxItems": rng.randrange(1, 4)}
    if kind == 8:
        return some_list(rng, depth + 1)
    if kind == 4 and rng.random() < 0.3:
        return {"anyOf": [{"type": "string", "pattern": "^(a{9})*$"}, {"type": "null"}]}
    return {} if kind == 4 else {"anyOf": [some_schema(rng, depth + 1), some_schema(rng, depth + 1)]}


def some_list(rng: random.Random, depth: int = 0) -> Any:
    """A list whose items must differ."""
    found: dict[str, Any] = {"type": "array", "uniqueItems": True}
    if rng.random() < 0.8:
        found["items"] = some_schema(rng, depth + 1)
    if rng.random() < 0.25:
        found["prefixItems"] = [some_schema(rng, depth + 1) for _ in range(rng.randrange(1, 3))]
    if rng.random() < 0.2:
        found["maxItems"] = rng.randrange(1, 4)
    if rng.random() < 0.3:
        found["minItems"] = rng.randrange(1, 4)
    if rng.random() < 0.15:
        found["contains"] = some_schema(rng, depth + 1)
    return found


def without_unique(schema: Any) -> Any:
    """The schema without the keyword."""
    if isinstance(schema, dict):
        return {key: without_unique(value) for key, value in schema.items() if key != "uniqueItems"}
    return [without_unique(item) for item in schema] if isinstance(schema, list) else schema


def spelt(rng: random.Random, value: Any, depth: int = 0) -> str:
    """A value as text, in one of its spellings."""
    if isinstance(value, dict):
        keys = rng.sample(list(value), len(value))
        return "{" + ",".join(f"{json.dumps(key)}:{spelt(rng, value[key])}" for key in keys) + "}"
    if isinstance(value, list):
        return "[" + ",".join(spelt(rng, item) for item in value) + "]"
    if type(value) is int and rng.random() < 0.2:
        return f"{value}.0"
    return json.dumps(value)


def takes(constraint: Constraint, text: bytes) -> bool:
    """Whether a cursor takes a whole text, read in longest tokens."""
    cursor, position = constraint.cursor(), 0
    while position < len(text):
        end = next(e for e in range(min(len(text), position + 9), position, -1) if text[position:e] in IDS)
        if not cursor.advance(IDS[text[position:end]]):
            return False
        position = end
    return cursor.is_accepting


IDS = {token: index for index, token in reversed(list(enumerate(TOKENS[:-1])))}


def allowed(row: Any) -> list[int]:
    """The tokens of a row."""
    return [int(i) for i in np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))]


def walk(constraint: Constraint, rng: random.Random, spare: int) -> bytes:
    """A text within so many tokens more than the least; AssertionError if it comes to no end."""
    cursor, text = constraint.cursor(), b""
    for remaining in range(constraint.min_tokens() + spare, -1, -1):
        assert cursor.min_tokens_to_accept() <= remaining, text
        found = allowed(cursor.row_within(remaining))
        assert found, text
        free = allowed(cursor.row())
        assert set(found) <= set(free), text
        assert all(cursor.fork().advance(token_id) for token_id in free), text
        liked = [i for i in found if i != EOS and (i >= 256 or i in b'{}[]",:01.etrufalsnab ')]
        token_id = EOS if EOS in found and (not liked or rng.random() < 0.1) else rng.choice(liked or found)
        assert cursor.advance(token_id), (text, token_id)
        if token_id == EOS:
            return text
        text += TOKENS[token_id]
    raise AssertionError(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--schemas", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--walks", type=int, default=1, help="of each schema")
    options = parser.parse_args()
    compiler, counts = Compiler(Vocabulary(TOKENS, [EOS])), Counter[str]()
    for number in range(options.seed, options.seed + options.schemas):
        rng = random.Random(number)
        schema = some_list(rng)
        if rng.random() < 0.2:
            schema = {"anyOf": [schema, without_unique(some_list(rng))]}
        counts["schemas"] += 1
        validator = jsonschema.Draft202012Validator(schema)
        try:
            space = "compact" if rng.random() < 0.5 else "flexible"
            constraint = compiler.json_schema(schema, key_order="any", whitespace=space)
            loose = compiler.json_schema(without_unique(schema), key_order="any", whitespace=space)
        except EmptyLanguage:
            constraint = loose = None
        except PhloemError as error:
            counts[f"refused: {str(error).split(': ', 1)[-1][:60]}"] += 1
            continue
        for _ in range(40):
            instance = [some_value(rng) for _ in range(rng.randrange(5))]
            if instance and rng.random() < 0.5:
                instance.insert(rng.randrange(len(instance)), rng.choice(instance))
            text = spelt(rng, instance).encode()
            valid = bool(validator.is_valid(json.loads(text)))
            counts["instances, valid" if valid else "instances, invalid"] += 1
            if constraint is None or loose is None:
                counts["WRONG: empty"] += valid
                continue
            is_taken = takes(constraint, text)
            if is_taken != constraint.accepts(text):
                counts["WRONG: tokens and bytes disagree"] += 1
                print("tokens and bytes disagree", number, json.dumps(schema), text)
            is_left_out = b".0" in text  # an option without uniqueItems may not take `1.0` as an integer
            if is_taken != valid and (is_taken or (takes(loose, text) and not is_left_out)):
                counts["WRONG: verdicts"] += 1
                print("verdict", number, json.dumps(schema), text, valid)
        if constraint is None:
            continue
        for _ in range(options.walks):
            counts["walks"] += 1
            try:
                text = walk(constraint, rng, rng.choice((0, 1, 4, 9, 40, 150)))
                assert validator.is_valid(json.loads(text)), text
            except AssertionError as error:
                counts["WRONG: walks"] += 1
                print("walk", number, json.dumps(schema), error.args)
    for name, count in sorted(counts.items()):
        print(f"{count:8} {name}")


if __name__ == "__main__":
    main()
