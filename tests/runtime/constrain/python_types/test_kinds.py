"""What is written under a type is read as it, and what pydantic writes and reads again may be written."""

from __future__ import annotations

import json
from contextlib import suppress
from random import Random
from typing import Any, Union

import pydantic
import pytest
from pydantic import TypeAdapter, ValidationError

import phloem as ph
from phloem.errors import UnsupportedSchema

from .kinds import KEYS, VALUES
from .own_types import Pair, Still
from .values import Values
from .walks import compiled, takes, written

ALL = {**VALUES, **{f"key: {name}": kind for name, kind in KEYS.items()}}
BUDGETS = (8, 20, 60)


@pytest.mark.parametrize(("kind", "values"), ALL.values(), ids=ALL)
def test_what_is_written_is_read_and_what_is_read_may_be_written(kind: Any, values: Values) -> None:
    spec, rng, constraint, adapter = ph.json_schema(kind), Random(7), compiled(kind), TypeAdapter(kind)
    for round_ in range(9):
        spec.parse(written(constraint, rng, BUDGETS[round_ % len(BUDGETS)]))
    for _ in range(12):
        try:
            value = values(rng)
        except IndexError:
            return  # a type whose values are not written as they are read
        for text in texts_of(adapter, value):
            assert takes(constraint, text), text


def texts_of(adapter: TypeAdapter[Any], value: Any) -> list[str]:
    """JSON of a value as pydantic writes it and, if it is JSON itself, as it is; at least one text that is read."""
    texts = [adapter.dump_json(adapter.validate_python(value), by_alias=True).decode()]
    if isinstance(value, str | int | float | list):
        texts.append(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str))
    read = []
    for text in texts:
        try:
            adapter.validate_json(text)
        except ValidationError:  # a port that is out of place, a number that is none …
            continue
        read.append(text)
    assert read, texts
    return read


NO_KEYS: list[Any] = [tuple[int, int], tuple[str, ...], frozenset[int], Pair, Still, None, tuple[int, int] | None]


@pytest.mark.parametrize("seed", range(5))
def test_of_a_union_as_a_key_every_option_that_is_text_is_enforced(seed: int) -> None:
    """In any order, with options that are no text; what pydantic writes for each of the others may be written."""
    rng, num_refused = Random(seed), 0
    plain = [name for name in KEYS if name not in ("deep", "strict", "validated")]
    for _ in range(20):
        names = rng.sample(plain, rng.randint(0, 3))
        options = [KEYS[name][0].__args__[0] for name in names] + rng.sample(NO_KEYS, rng.randint(1, 2))
        rng.shuffle(options)
        kind = pydantic.create_model("Holder", f=(dict[Union[tuple(options)], int], ...))  # type: ignore[misc]  # noqa: UP007
        if not names:
            num_refused += 1
            with pytest.raises(UnsupportedSchema, match=r"keys of this type are no text") as caught:
                ph.json_schema(kind)
            assert caught.value.pointer == "/properties/f"
            continue
        spec, constraint = ph.json_schema(kind), compiled(kind)
        for budget in BUDGETS:
            spec.parse(written(constraint, rng, budget))
        for name in names:
            adapter, values = TypeAdapter(KEYS[name][0]), KEYS[name][1]
            with suppress(IndexError):  # a type whose values are not written as they are read
                for text in texts_of(adapter, values(rng)):
                    assert takes(constraint, f'{{"f":{text}}}'), (options, text)
    assert num_refused


def test_the_everyday_spellings_of_a_few_types() -> None:
    cases: dict[str, list[str]] = {
        "naive": ["2024-05-31T10:00:00", "2024-02-29T23:59", "2024-12-30T00:00:00.25"],
        "time": ["10:30", "10:30:00", "10:30:00Z", "10:30:00.5+02:00"],
        "span": ["PT0.5S", "-P1D", "P3W", "P1Y2M3DT4H5M6.789S", "PT90M"],
        "web": ["http://localhost:8000/", "http://192.168.0.1/x", "http://example.com:11434/", "https://u:p@a.de/é"],
        "price": ["19.99", "1000.00", "0"],
        "decimal at most": ["99.95", "-12", "0.5"],
        "named mail": ["Ada Lovelace <ada@example.com>", "Zoë O'Neil <zoe@example.com>"],
        "cron": ["0 0 1 1 *"],
    }
    refused = {
        "naive": ["0000-01-01T00:00:00", "2023-02-29T00:00:00", "2024-05-31T24:00:00"],
        "web": ["http://1.2.3/x", "http://a.de:65536/", "ftp://a.de/", "http://xn--a/"],
        "price": ["19.999", "1000.01", "-1"],
        "decimal at most": ["99.96", "100"],
    }
    for name, texts in cases.items():
        constraint = compiled(VALUES[name][0])
        assert [text for text in texts if not takes(constraint, json.dumps(text, ensure_ascii=False))] == []
        assert [text for text in refused.get(name, ()) if takes(constraint, json.dumps(text))] == []


def test_models_of_all_of_these_types() -> None:
    rng, names = Random(11), [*VALUES]
    for _ in range(8):
        model = random_model(rng, names)
        spec, constraint = ph.json_schema(model), compiled(model)
        for round_ in range(20):
            spec.parse(written(constraint, rng, constraint.min_tokens() + 30 * (round_ % 3)))


def random_model(rng: Random, names: list[str]) -> type[pydantic.BaseModel]:
    fields: dict[str, Any] = {}
    for place in range(rng.randint(2, 5)):
        kind = VALUES[rng.choice(names)][0]
        shape = rng.randrange(6)
        kind = [kind, kind, list[kind], dict[str, kind], kind | None, tuple[kind, int]][shape]
        if rng.random() < 0.2:
            key = KEYS[rng.choice([*KEYS])][0].__args__[0]
            kind = dict[key, kind]
        fields[f"f{place}"] = (kind, ...) if rng.random() < 0.6 else (kind, None)
    return pydantic.create_model("Random", **fields)
