"""Schemas of numbers, constants and strings made to hurt (see `bombs.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def values() -> Iterator[tuple[str, Any]]:
    """Numbers and constants beyond measure."""
    steps = [0.07, 0.11, 0.13, 0.17, 0.19]
    yield "allOf of coprime decimal steps", {"allOf": [{"multipleOf": step} for step in steps]}
    yield (
        "allOf of coprime decimal steps and bounds",
        {"allOf": [{"multipleOf": step, "minimum": -1e6 + step, "maximum": 1e9} for step in steps[:3]]},
    )
    yield "not multipleOf, 20 times", {"type": "integer", "allOf": [{"not": {"multipleOf": n}} for n in range(2, 22)]}
    yield "oneOf of 12 multipleOf", {"type": "integer", "oneOf": [{"multipleOf": n} for n in range(2, 14)]}
    yield "multipleOf 1e-15 and bounds of 1e15", {"multipleOf": 1e-15, "minimum": -1e15, "maximum": 1e15}
    yield "multipleOf of 60 digits", {"type": "integer", "multipleOf": 10**60 + 7}
    yield "bounds of 10,000 digits", {"type": "integer", "minimum": 10**9999, "maximum": 10**10_000}
    yield (
        "100 bounds of 300 digits",
        {"anyOf": [{"type": "integer", "minimum": 7**n, "maximum": 7**n + n} for n in range(250, 350)]},
    )
    yield "minimum 1e-320, maximum 1e-300", {"minimum": 1e-320, "maximum": 1e-300}
    nested: Any = 0
    for n in range(5000):
        nested = [nested] if n % 2 else {"k": nested}
    yield "a constant of 5,000 levels", {"const": nested}
    wide = [[[[a, b], [b, {"c": c}]] for c in range(10)] for a in range(30) for b in range(30)]
    yield "an enum of 900 nested arrays", {"enum": wide}
    yield "an enum of 300 arrays of 300", {"enum": [list(range(n, n + 300)) for n in range(300)]}
    yield "an enum of 100 objects of 200 keys", {"enum": [{f"k{m}": [m, n] for m in range(200)} for n in range(100)]}
    yield "not a constant of 2,000 members", {"not": {"const": {f"k{n}": n for n in range(2000)}}}
    yield "not an enum of 2,000 arrays", {"type": "array", "not": {"enum": [[n, n + 1] for n in range(2000)]}}
    yield "not an enum of 300 objects", {"type": "object", "not": {"enum": [{"a": n, "b": n} for n in range(300)]}}
    yield "20 enums of 5,000 joined", {"allOf": [{"enum": list(range(n, 5000 + n))} for n in range(20)]}
    yield "20 constants of 100,000 characters", {"enum": [f"{n}" * 100_000 for n in range(10, 30)]}
    yield "constants of every character", {"enum": [chr(n) * 3 for n in range(32, 0x11000) if not 0xD800 <= n < 0xE000]}


def texts() -> Iterator[tuple[str, Any]]:
    """Strings under lengths, formats and patterns together."""
    yield "maxLength 1e9 under a pattern", {"type": "string", "pattern": "^(ab|ba)*$", "maxLength": 10**9}
    yield "minLength 200,000 under a pattern", {"type": "string", "pattern": "^(abc|de)*$", "minLength": 200_000}
    yield (
        "30 patterns of distant letters",
        {
            "type": "string",
            "allOf": [{"pattern": f"{chr(97 + n % 26)}.{{{n}}}{chr(97 + n * 7 % 26)}"} for n in range(30)],
        },
    )
    formats = ["uri", "iri", "email", "idn-email", "hostname", "uri-template", "json-pointer", "uri-reference"]
    yield "all formats at once", {"type": "string", "allOf": [{"format": name} for name in formats]}
    yield (
        "formats, patterns and lengths, oneOf",
        {
            "oneOf": [
                {"type": "string", "format": name, "pattern": f"[{chr(97 + n)}-z]{{{n + 3}}}", "maxLength": 300 + n}
                for n, name in enumerate(formats)
            ]
        },
    )
    yield (
        "not not pattern, with counts",
        {
            "type": "string",
            "not": {"anyOf": [{"pattern": f"^.{{{7 * n},{7 * n + 5}}}$"} for n in range(40)]},
        },
    )
    yield "format regex under patterns", {"format": "regex", "pattern": r"^(?:\(.*\)|\[.*\])+$", "maxLength": 500}
    yield "idn-hostname under a pattern", {"format": "idn-hostname", "pattern": r"^[^.]{5,20}\.[\p{L}]+$"}
    folding = r"^(?i:[\p{L}ß]{1,40}|straße|[^\p{Lu}]{3})$"
    yield "patterns in any case", {"type": "string", "allOf": [{"pattern": folding}, {"pattern": "(?i)ſ|K|Å"}]}
    yield (
        "300 properties of different heavy patterns",
        {"properties": {f"k{n}": {"type": "string", "pattern": f"^(?=.*a.{{8}}){n}.*b.{{7}}$"} for n in range(300)}},
    )
    yield (
        "1,000 properties of different patterns",
        {"properties": {f"k{n}": {"type": "string", "pattern": rf"^\w{{{n % 60},{n}}}-{n}\d*$"} for n in range(1000)}},
    )
    yield (
        "50 enums under look-arounds",
        {
            "anyOf": [
                {"enum": [f"v{n * m}" for m in range(500)], "pattern": f"(?<![{n % 10}])[0-9](?!{n})"}
                for n in range(50)
            ]
        },
    )
