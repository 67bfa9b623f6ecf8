"""Schemas whose conditions on keys and their values are made to be many, wide or deep (see `bombs.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

FORMATS = ("date", "time", "date-time", "email", "hostname", "ipv4", "ipv6", "uri", "uuid", "iri", "regex", "duration")


def condition(key: str, value: Any, then: Any) -> dict[str, Any]:
    """If the key is there with such a value, then that."""
    return {"if": {"properties": {key: value}, "required": [key]}, "then": then}


def open_keys(*names: str, value: Any = True) -> dict[str, Any]:
    """Properties of these names."""
    return dict.fromkeys(names, value)


def condition_schemas() -> Iterator[tuple[str, Any]]:
    """Schemas."""
    yield from _webs()
    yield from _kinds_of_values()
    yield from _nested()


def _webs() -> Iterator[tuple[str, Any]]:
    for count, wide in ((60, 59), (200, 1)):
        names = [f"k{n}" for n in range(count)]
        many = [
            condition(name, {"const": 1}, {"required": [names[(n * 13 + 1 + more) % count] for more in range(wide)]})
            for n, name in enumerate(names)
        ]
        yield f"web of {count} conditions on {wide} keys each", {"properties": open_keys(*names), "allOf": many}
    for count in (300, 1900):
        many = [condition("kind", {"const": f"v{n}"}, {"required": [f"k{n}"]}) for n in range(count)]
        keys = {"kind": {"type": "string"}, **open_keys(*(f"k{n}" for n in range(count)))}
        yield f"{count} kinds with a key each", {"properties": keys, "allOf": many}
    causes, effects = [f"c{n}" for n in range(14)], [f"d{n}" for n in range(14)]
    many = [
        condition(cause, {"const": 1}, {"required": [effect]}) for cause, effect in zip(causes, effects, strict=True)
    ]
    yield "14 conditions before 14 consequences", {"properties": open_keys(*causes, *effects), "allOf": many}
    many = [
        condition(cause, {"const": value}, {"properties": {effect: {"const": 3 * value % 20}}})
        for cause, effect in zip(causes, effects, strict=True)
        for value in range(5)
    ]
    numbers = {"enum": list(range(20))}
    yield (
        "14 keys of 5 conditions before 14 keys",
        {"properties": open_keys(*causes, *effects, value=numbers), "allOf": many},
    )
    names = [f"k{n}" for n in range(40)]
    pairs = [
        {"anyOf": [{"properties": {name: {"const": n % 7}}, "required": [name]} for n, name in enumerate((one, other))]}
        for index, one in enumerate(names)
        for other in names[:index]
    ]
    yield "one of two values, 780 times", {"properties": open_keys(*names), "allOf": pairs}
    many = [condition(f"k{n}", {"const": 1}, {"required": [f"k{n + 1}"]}) for n in range(10_000)]
    yield "chain of 10,000 conditions", {"allOf": many}
    many = [condition(f"k{n % 3}", {"const": n}, {"required": ["q"]}) for n in range(40_000)]
    yield "40,000 conditions on 3 keys", {"allOf": many}
    yield "20,000 conditions on 3 keys", {"allOf": many[:20_000]}


def _kinds_of_values() -> Iterator[tuple[str, Any]]:
    words = [f"value {n}" for n in range(1900)]
    yield (
        "conditions on parts of enums of 1,900",
        {
            "properties": {f"k{n}": {"enum": words} for n in range(20)},
            "allOf": [
                condition(
                    f"k{n}", {"enum": words[step::7]}, {"properties": {f"k{(n + 1) % 20}": {"enum": words[step::5]}}}
                )
                for n in range(20)
                for step in range(5)
            ],
        },
    )
    kinds: dict[str, list[Any]] = {
        "patterns": [{"pattern": f"^.*{letter}.*$"} for letter in "abcdefghijk"],
        "ranges": [{"minimum": 3 * n, "maximum": 5 * n + 7} for n in range(100)],
        "lengths": [{"minLength": n, "maxLength": n + 37} for n in range(60)],
        "multiples": [{"multipleOf": n} for n in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31)],
        "formats": [{"format": name} for name in FORMATS],
        "members": [{"properties": {"x": {"const": n}}, "required": ["x"]} for n in range(8)],
    }
    for kind, values in kinds.items():
        many = [
            condition(f"k{n}", value, {"required": [f"k{(n + index) % 8}"]})
            for n in range(8)
            for index, value in enumerate(values)
        ]
        yield f"conditions on {kind}", {"properties": open_keys(*(f"k{n}" for n in range(8))), "allOf": many}


def _nested() -> Iterator[tuple[str, Any]]:
    for count in (15, 300):
        nested: dict[str, Any] = {"required": ["z"]}
        for n in range(count):
            nested = {**condition(f"k{n}", {"const": n}, nested), "else": {"required": [f"e{n}"]}}
        yield f"{count} conditions within each other", nested
        if count == 15:
            many = [{"anyOf": [nested, {"required": [f"q{n}"]}]} for n in range(50)]
            yield "50 times 15 conditions within each other", {"allOf": many}
    for count in (60, 300):
        schemas = {
            f"k{n}": {"properties": {f"k{(7 * n + 1) % count}": {"const": n}}, "required": [f"k{(3 * n + 1) % count}"]}
            for n in range(count)
        }
        yield f"web of {count} dependentSchemas", {"dependentSchemas": schemas}
        ifs = {f"k{n}": condition(f"k{(n + 3) % count}", {"const": 1}, schemas[f"k{n}"]) for n in range(count)}
        yield f"web of {count} dependentSchemas with conditions", {"dependentSchemas": ifs}
