"""Any JSON at all, as a grammar; and what "white space" means in JSON constraints.

    compact    {"a":[1,2],"b":null}            json.dumps(separators=(",", ":"))
    spaced     {"a": [1, 2], "b": null}        json.dumps()
    flexible   one space, or a line break with up to 16 blanks, wherever JSON allows white space; never more

Strings are spelt as json.dumps(ensure_ascii=False) does. No object has a key twice (`Embed.is_key`).
"""

from __future__ import annotations

import functools
from typing import Literal as OneOf

from .network.expression import (
    Alternation,
    Embed,
    Expression,
    Grammar,
    Literal,
    Repeat,
    Rule,
    Sequence,
    alternation,
    literal,
)
from .regex.regex import regex_to_dfa
from .text.dfa import Dfa, any_text
from .text.json_strings import JsonStrings

Whitespace = OneOf["compact", "spaced", "flexible"]
KeyOrder = OneOf["schema", "any"]
ExtraKeys = OneOf["schema", "never"]

NUMBER = (
    r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?|"
    r"-?(?:0|[1-9][0-9]{0,7})(?:\.[0-9]+)?[eE][+-]?(?:[0-9]{1,2}|[0-2][0-9]{2})|"
    r"-?[1-9](?:\.[0-9]+)?[eE](?:\+?30[0-7]|-3[0-9]{2})|"
    r"-?1(?:\.[0-6][0-9]*|\.7(?:[0-8][0-9]*)?)?[eE]\+?308"
)
"""Any spelling of any number that a reader can hold in a float: 1e999 is JSON, but has no value as a float."""
BLANK = r"( |\n[ \t]{0,16})?"


@functools.cache
def any_string() -> JsonStrings:
    """Any JSON string (one shared object)."""
    return JsonStrings(any_text())


@functools.cache
def any_number() -> Dfa:
    """Any JSON number that can be read as a float (one shared object)."""
    return regex_to_dfa(NUMBER)


@functools.lru_cache(maxsize=16)
def json_grammar(start: OneOf["value", "object"], whitespace: Whitespace) -> Grammar:
    """The grammar of any JSON value or object."""
    comma, colon, blank = _punctuation(whitespace)
    member = Sequence((Embed(any_string(), is_key=True), colon, Rule("value")))
    scalars = (Embed(any_string()), Embed(any_number()), literal("true"), literal("false"), literal("null"))
    rules: dict[str, Expression] = {
        "value": Alternation((*scalars, Rule("object"), Rule("array"))),
        "member": member,
        "object": _bracketed("{", Rule("member"), comma, blank, "}"),
        "array": _bracketed("[", Rule("value"), comma, blank, "]"),
    }
    return Grammar(rules, start)


def _punctuation(whitespace: Whitespace) -> tuple[Expression, Expression, Expression]:
    """Comma, colon and what may stand next to brackets."""
    if whitespace == "compact":
        return Literal(b","), Literal(b":"), Literal(b"")
    if whitespace == "spaced":
        return Literal(b", "), Literal(b": "), Literal(b"")
    blank = Embed(regex_to_dfa(BLANK))
    return Sequence((blank, Literal(b","), blank)), Sequence((blank, Literal(b":"), blank)), blank


def _bracketed(left: str, item: Expression, comma: Expression, blank: Expression, right: str) -> Expression:
    items = Sequence((blank, item, Repeat(Sequence((comma, item)), 0, None), blank))
    return Sequence((literal(left), alternation(items, blank), literal(right)))
