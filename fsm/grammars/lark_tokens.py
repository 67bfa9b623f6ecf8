"""The text of a grammar in Lark's notation, cut into tokens, and the characters that a literal means.

Line breaks inside brackets are blank; comments, blanks and continued lines are left out. What stands after `%json`,
`%regex` or `%llguidance` is one token, whatever is in it. Knows no rules and no terminals.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from ..compile_time import CompileTime
from .notation import Token, grammar_error

TOKEN = re.compile(
    r"""(?P<space>[ \t\r\f]+|(?://|\#)[^\n]*|\\\n)
      | (?P<newline>\n)
      | (?P<json>%json\b)
      | (?P<structured>%regex\b)
      | (?P<header>%llguidance\b)
      | (?P<special><(?:\[[^\]\n]*\]|[^<>\s\[\]]+)>)
      | (?P<directive>%[a-z]+)
      | (?P<other>@_*[A-Za-z]\w*(?:-\w+)*)
      | (?P<name>_*[A-Za-z]\w*(?:-\w+)*)
      | (?P<text>"(?:[^"\\\n]++|\\.)*+"i?)
      | (?P<regex>/(?![/*])(?:[^/\\\n]++|\\.)++/[imslux]*)
      | (?P<count>\{[ ]*(?:\d+[ ]*(?:,[ ]*\d*[ ]*)?|,[ ]*\d+[ ]*)\})
      | (?P<number>[+-]?\d+)
      | (?P<mark>->|\.\.|[()\[\]|*+?:~,.{}!<>@_=])""",
    re.VERBOSE,
)
ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", '"': '"', "\\": "\\"}


def tokens_of(text: str, compile_time: CompileTime) -> Iterator[Token]:
    """The tokens in order; InvalidGrammar with the line and the column where there is none."""
    offset, depth = 0, 0
    while offset < len(text):
        compile_time.check("", "grammar, its text")
        match = TOKEN.match(text, offset)
        if match is None or match.lastgroup is None:
            what = {'"': "a literal that is not closed", "/": "a regular expression that is not closed"}
            raise grammar_error(what.get(text[offset], f"{text[offset]!r} is not expected here"), text, offset)
        kind, end = match.lastgroup, match.end()
        if kind in ("json", "structured", "header"):
            end = _json_end(text, match.end(), match[0])
            yield Token(kind, text[match.end() : end], offset)
        elif kind != "space" and not (kind == "newline" and depth):
            depth += (match[0] in ("(", "[")) - (match[0] in (")", "]"))
            yield Token(kind, match[0], offset)
        offset = end


def _json_end(text: str, begin: int, what: str) -> int:
    blank = len(text) - len(text[begin:].lstrip())
    try:
        return json.JSONDecoder().raw_decode(text, blank)[1]
    except (ValueError, RecursionError) as error:
        follower = "a JSON Schema" if what == "%json" else "a JSON object"
        raise grammar_error(f"{what} is followed by {follower}: {error}", text, begin) from None


def unescaped(text: str, literal: str, offset: int) -> str:
    """What a literal at an offset of the text means. As Lark does: unknown escapes keep their backslash."""

    def character(escape: re.Match[str]) -> str:
        code = escape[1] or escape[2] or escape[3]
        if code is None:
            return ESCAPES.get(escape[4], escape[0])
        if int(code, 16) > 0x10FFFF or 0xD800 <= int(code, 16) <= 0xDFFF:
            raise grammar_error(f"{escape[0]} is not a character", text, offset)
        return chr(int(code, 16))

    return ESCAPE.sub(character, literal)
