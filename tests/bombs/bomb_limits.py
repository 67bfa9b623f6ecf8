"""Inputs made to take long in places that are not timed: large ones of one kind each (see `bombs.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from bomb_texts import structural, triggered

MANY = 30_000


def chain(count: int) -> str:
    """Rules each of which calls the next one twice, or ends: there is no end of ways to read a text."""
    rules = "\n".join(f'r{n} ::= r{n + 1} r{n + 1} | "{n}"' for n in range(count))
    return f'root ::= r0\n{rules}\nr{count} ::= "z"'


def counted(count: int, **bounds: int) -> dict[str, Any]:
    """An array that contains `count` things, each of them between bounds."""
    return {"allOf": [{"contains": {"minimum": n}, **bounds} for n in range(count)]}


def limit_schemas() -> Iterator[tuple[str, Any]]:
    """Schemas."""
    yield "6 contains, 20 to 40 times", counted(6, minContains=20, maxContains=40)
    yield (
        "8 contains of constants, 20 to 40 times",
        {"allOf": [{"contains": {"const": n}, "minContains": 20, "maxContains": 40} for n in range(8)]},
    )
    yield "12 contains, up to 9 times", counted(12, maxContains=9)
    yield "2 contains, 1,000 times", counted(2, minContains=1000, maxContains=1001)
    keys = {f"property {n}": {"type": "integer"} for n in range(MANY)}
    patterns = {"^property [0-9]*$": True, "7": {"minimum": 7}, "x|9": {"maximum": 1000}}
    yield "patterns over 30,000 properties", {"properties": keys, "patternProperties": patterns}
    yield (
        "enum of 300,000 under 20 patterns",
        {"enum": [f"value {n}" for n in range(300_000)], "allOf": [{"pattern": f"^v.*{n}"} for n in range(20)]},
    )
    yield "a constant of 3,000,000 characters under a pattern", {"const": "ab" * 1_500_000, "pattern": "^(ab)*$"}
    yield (
        "a key of 1,000,000 characters under a pattern",
        {
            "properties": {"ab" * 500_000: {"type": "null"}},
            "patternProperties": {"^(ab)*$": True},
        },
    )
    nested: Any = {}
    for _ in range(100_000):
        nested = {"items": nested}
    yield "100,000 lists within each other", nested
    yield "200,000 required keys", {"required": [f"k{n}" for n in range(200_000)]}
    yield "not all of 50,000 keys", {"type": "object", "not": {"required": [f"k{n}" for n in range(50_000)]}}
    yield "not a constant of 30,000 items", {"not": {"const": list(range(30_000))}}
    yield "not oneOf of 10,000 required keys", {"not": {"oneOf": [{"required": [f"k{n}"]} for n in range(10_000)]}}
    apart = [{"not": {"properties": {f"k{n}": {"type": "integer"}}}} for n in range(5000)]
    yield "5,000 keys that are no integers, or z", {"oneOf": [{"allOf": apart}, {"required": ["z"]}]}
    yield "a key that requires 400,000", {"dependentRequired": {"a": [f"{n}" for n in range(400_000)]}}
    letters = [chr(0x3000 + n) for n in range(40_000)]
    yield "40,000 keys of one letter each", {"properties": dict.fromkeys(letters, True), "required": letters}
    yield (
        "2,800 keys of one letter each with a period of 19,000",
        {"properties": dict.fromkeys(letters[:2800], True), "patternProperties": {"^(.{19000})*$": {"minimum": 1}}},
    )
    pairs = [{"not": {"enum": [letters[k + n] + letters[k + n * 7 % 2000] for n in range(2000)]}} for k in (0, 9000)]
    yield "not two enums of 2,000 pairs of letters", {"type": "string", "allOf": pairs}
    yield from crossed_keys()
    yield "a pattern of 3,000,000 characters", {"pattern": "^" + "ab" * 1_500_000}
    yield "an enum of 400,000 numbers", {"enum": list(range(400_000))}
    yield "oneOf of 100,000 constants", {"oneOf": [{"const": n} for n in range(100_000)]}
    yield (
        "200,000 unused definitions",
        {
            "type": "null",
            "$defs": {f"d{n}": {"$id": f"http://example.com/{n}", "type": "string"} for n in range(200_000)},
        },
    )


def crossed_keys() -> Iterator[tuple[str, Any]]:
    """Patterns of keys crossed with conditions on all keys."""
    for count in (8, 14):
        patterns = {f"^{chr(97 + n)}.*{chr(110 + n % 13)}": {"minimum": n} for n in range(count)}
        conditions = [
            {"if": {"propertyNames": {"pattern": f"^.{{{n}}}[a-m]"}}, "then": {"minProperties": n}}
            for n in range(count)
        ]
        yield (
            f"{count} patternProperties crossed with conditions on propertyNames",
            {"type": "object", "patternProperties": patterns, "allOf": conditions},
        )
        conditions = [
            {
                "if": {"propertyNames": {"maxLength": n + 3}},
                "then": {"required": [f"k{n}"]},
                "else": {"propertyNames": {"pattern": f"[{chr(97 + n)}x]"}},
            }
            for n in range(count)
        ]
        yield (
            f"{count} patternProperties crossed with lengths and patterns of propertyNames",
            {"type": "object", "patternProperties": patterns, "allOf": conditions},
        )


def limit_patterns() -> Iterator[tuple[str, str]]:
    """Regular expressions."""
    many = "".join(chr(n) for n in range(0x4E00, 0x4E00 + 20_000, 2))
    yield "a class of 10,000 characters, in any case", f"(?i)[{many}]{{1,300}}[^{many}]*"
    yield "100 classes of 10,000 characters", "".join(f"[{many}{chr(n)}]" for n in range(0x20000, 0x20064))
    yield "1,000,000 alternatives", "|".join(f"{n}" for n in range(500_000))
    yield "3,000,000 letters in any case", "(?i)" + "aß" * 1_500_000
    yield "1,000,000 groups", "(a)" * 1_000_000
    yield "3,000,000 comments", "(?x)" + "#\n" * 1_500_000 + "a"
    yield "200,000 escapes of Unicode", r"\p{L}" * 200_000
    yield "look-aheads at 20,000 places", "(?:(?=a)a|b)" * 20_000


def limit_grammars() -> Iterator[tuple[str, str]]:
    """Grammars."""
    yield "3,000 doublings that may end", chain(3000)
    yield "100,000 doublings that may end", chain(100_000)
    yield "3,000,000 characters of comment", "# nothing\n" * 300_000 + 'root ::= "a"'
    yield "one rule of 300,000 calls", "root ::= " + "a " * 300_000 + '\na ::= "a"'
    yield "one rule of 300,000 alternatives", "root ::= " + "a | " * 300_000 + '"b"\na ::= "a"'
    yield "one rule of 300,000 classes", "root ::= " + " ".join(f"[a-z{chr(0x400 + n % 999)}]" for n in range(300_000))
    yield "a class of 3,000,000 characters", "root ::= [" + "ab" * 1_500_000 + "]"
    yield "one rule of 300,000 optional letters", "root ::= " + '"a"? ' * 300_000
    yield (
        "a cycle of 20,000 rules",
        ("root ::= r0\n" + "\n".join(f'r{n} ::= r{(n + 1) % 20_000} "x" | "{n}"' for n in range(20_000))),
    )
    yield (
        "a cycle of 9,000 rules that never end",
        "root ::= r0\n" + "\n".join(f'r{n} ::= "a" r{(n + 1) % 9000}' for n in range(9000)),
    )
    yield "Lark, a pattern of 3,000,000 characters", "start: A\nA: /" + "ab" * 1_500_000 + "/"
    yield (
        "20,000 rules that begin with themselves",
        (
            "root ::= "
            + " | ".join(f"r{n}" for n in range(20_000))
            + "\n"
            + "\n".join(f'r{n} ::= r{n} "x" | "{n}"' for n in range(20_000))
        ),
    )
    yield (
        "20,000 rules that may be empty",
        ("root ::= r0\n" + "\n".join(f'r{n} ::= r{n + 1}* | ""' for n in range(20_000)) + '\nr20000 ::= "z"'),
    )
    yield (
        "Lark, 20,000 terminals",
        (
            "start: ("
            + " | ".join(f"T{n}" for n in range(20_000))
            + ")*\n"
            + "\n".join(f'T{n}: "t{n}"' for n in range(20_000))
        ),
    )
    yield (
        "Lark, 20,000 rules",
        ("start: r0\n" + "\n".join(f'r{n}: r{n + 1} r{n + 1} | "{n}"' for n in range(20_000)) + '\nr20000: "z"'),
    )
    yield "Lark, one rule of 300,000 literals", "start: " + " | ".join(f'"{n}"' for n in range(300_000))
    yield "Lark, a terminal of 300,000 literals", "start: A\nA: " + " | ".join(f'"{n}"' for n in range(300_000))
    yield "Lark, a name 300,000 times", "start: " + "A " * 300_000 + '\nA: /[a-z]+/\n%ignore " "'
    yield (
        "Lark, 2,000 ignored",
        ("start: A*\nA: /[a-z]+/\n" + "\n".join(f"%ignore /[{chr(0x100 + n)} ]+{n}/" for n in range(2000))),
    )


def limit_tags() -> Iterator[tuple[str, Any]]:
    """Tags."""
    for count, begin in ((20_000, "<{n}>"), (3_000, "<same{n}>"), (2_000, "a" * 500 + "{n}")):
        tags = [{"begin": begin.format(n=n), "content": {"type": "any_text"}, "end": "</f>"} for n in range(count)]
        yield f"{count} triggers such as {begin[:9]}", triggered([tag["begin"] for tag in tags], tags)
    yield "20,000 excluded texts", structural(type="any_text", excludes=[f"word {n}" for n in range(20_000)])
    literals = [{"type": "const_string", "value": "ab"}] * 100_000
    yield "100,000 literals in a sequence", structural(type="sequence", elements=literals)


def limit_choices() -> Iterator[tuple[str, list[str]]]:
    """Choices."""
    yield "500,000", [f"{n}" for n in range(500_000)]
    shuffled = [f"{n}" for n in range(500_000)]
    Random(0).shuffle(shuffled)
    yield "500,000 in no order", shuffled
    yield "250,000 in no order", shuffled[:250_000]
    yield "4,000,000 times nothing", [""] * 4_000_000
    yield "300,000 that begin alike", ["a" * 10 + f"{n:x}" for n in range(300_000)]
    yield "2,000 of 2,000 characters", ["ab" * 1000 + f"{n}" for n in range(2000)]
