"""Types without any value are refused with the place and the reason; all others are not."""

from __future__ import annotations

import datetime as dt
import json
import re
from decimal import Decimal
from random import Random
from typing import Annotated, Any, Union

import pytest
from pydantic import BaseModel, Field, create_model

import phloem as ph
from phloem.errors import EmptyLanguage
from phloem.runtime.constrain.python_types.generator import NarrowSchema

from .walks import COMPILER, compiled, takes


class Link(BaseModel):
    link: Link


class Ping(BaseModel):
    pong: Annotated[list[Pong], Field(min_length=1)]


class Pong(BaseModel):
    ping: tuple[int, Ping] | Link


class Chain(BaseModel):
    next: Chain | None
    more: list[Link] = []


def within(kind: Any, **bounds: Any) -> Any:
    return Annotated[kind, Field(**bounds)]


def holder(kind: Any) -> Any:
    return create_model("Holder", d=(kind, ...))


DAY, NOON = dt.date(2024, 5, 1), dt.datetime(2024, 5, 1, 12)
HOUR = dt.timedelta(hours=1)
EMPTY: dict[str, tuple[Any, str, str]] = {
    "itself": (Link, "/$defs/Link/properties/link", "Link contains itself"),
    "below": (holder(list[int] | Link), "", ""),
    "required": (holder(tuple[int, Link]), "/$defs/Link/properties/link", "Link contains itself"),
    "one another": (Ping, "/$defs/Pong/properties/ping/anyOf/0/prefixItems/1", "Ping contains itself"),
    "may end": (Chain, "", ""),
    "date": (
        holder(within(dt.date, ge=DAY, le=DAY - 24 * HOUR)),
        "/properties/d",
        "at least 2024-05-01 and at most 2024-04-30",
    ),
    "one day": (holder(within(dt.date, ge=DAY, le=DAY)), "", ""),
    "between days": (
        holder(within(dt.date, gt=DAY, lt=DAY + 24 * HOUR)),
        "/properties/d",
        "above 2024-05-01 and below 2024-05-02",
    ),
    "time": (
        holder(within(dt.time, ge=dt.time(9), lt=dt.time(9))),
        "/properties/d",
        "at least 09:00:00 and below 09:00:00",
    ),
    "datetime": (holder(within(dt.datetime, gt=NOON, le=NOON - HOUR)), "/properties/d", "above 2024-05-01 12:00:00"),
    "timedelta": (
        holder(within(dt.timedelta, ge=2 * HOUR, le=HOUR)),
        "/properties/d",
        "at least 2:00:00 and at most 1:00:00",
    ),
    "decimal": (holder(within(Decimal, ge=5, le=4)), "/properties/d", "at least 5 and at most 4"),
    "open decimal": (holder(within(Decimal, gt=5, le=5)), "/properties/d", "above 5 and at most 5"),
    "one decimal": (holder(within(Decimal, ge=5, le=5)), "", ""),
    "some key": (
        holder(within(dict[within(int, ge=5, le=4), int], min_length=1)),  # type: ignore[misc]
        "/properties/d/propertyNames",
        "at least 5 and at most 4",
    ),
    "an option": (holder(within(dt.date, ge=DAY, lt=DAY) | None), "", ""),
}


@pytest.mark.parametrize(("kind", "pointer", "reason"), EMPTY.values(), ids=EMPTY)
def test_it_is_refused_with_its_place_and_the_reason_if_it_has_no_value(kind: Any, pointer: str, reason: str) -> None:
    if not reason:
        compiled(kind)
        return
    message = rf"^json_schema: .*{re.escape(reason)}.*; (let|change) .*\(in \w+, at {re.escape(pointer)}\)$"
    with pytest.raises(EmptyLanguage, match=message) as caught:
        ph.json_schema(kind)
    assert caught.value.pointer == pointer and caught.value.param == "json_schema"


def test_no_text_of_a_decimal_is_outside_of_bounds_that_exclude_each_other() -> None:
    constraint = compiled(within(Decimal, ge=5, le=4) | bool)
    assert takes(constraint, "true") and not any(takes(constraint, text) for text in ('"5.5"', '"4.0"', "5", "4.5"))


def random_kind(rng: Random, names: list[str], depth: int = 0) -> str:
    """An annotation."""
    shape = rng.randrange(9 if depth < 2 else 5)
    if shape < 4:
        return rng.choice(names)
    if shape == 4:
        return rng.choice(["int", "None", "Nothing"])
    inner = random_kind(rng, names, depth + 1)
    least = f"Field(min_length={rng.randint(0, 1)})"
    return [
        f"Union[{inner}, {random_kind(rng, names, depth + 1)}]",
        f"Annotated[list[{inner}], {least}]",
        f"Annotated[dict[str, {inner}], {least}]",
        f"tuple[int, {inner}]",
    ][shape - 5]


def test_the_compiler_of_the_schema_agrees() -> None:
    """Of types that refer to each other at random: one is refused if and only if its schema has no value."""
    rng, num_empty = Random(3), 0
    known = {"Union": Union, "Annotated": Annotated, "Field": Field, "Nothing": within(dt.date, ge=DAY, lt=DAY)}
    for turn in range(250):
        names = [f"T{turn}x{index}" for index in range(rng.randint(1, 4))]
        models: dict[str, Any] = {}
        for name in names:
            fields: dict[str, Any] = {
                f"f{place}": (random_kind(rng, names), ... if rng.random() < 0.7 else None)
                for place in range(rng.randint(1, 2))
            }
            models[name] = create_model(name, **fields)
        for model in models.values():
            model.model_rebuild(_types_namespace={**known, **models})
        source = json.dumps(models[names[0]].model_json_schema(schema_generator=NarrowSchema))
        try:
            COMPILER.json_schema(source)
        except EmptyLanguage:
            num_empty += 1
            with pytest.raises(EmptyLanguage, match=r"^json_schema: ") as caught:
                ph.json_schema(models[names[0]])
            at = json.loads(source)
            for key in caught.value.pointer.split("/")[1:]:
                at = at[int(key)] if isinstance(at, list) else at[key]
            assert "$ref" in at or "$comment" in at
        else:
            ph.json_schema(models[names[0]])
    assert 50 < num_empty < 200
