"""What llguidance adds to Lark's notation, where automata can do it exactly.

::

    TEXT: %regex {"substring_words": "to be, or not to be"}     any run of its words, also none
    call[lazy]: /.*/ "<call>"                                   the shortest match
    call[suffix="<call>"]: /.*/                                 the same
    start: <|python_tag|> <[128010]> <[128008-128009]>          special tokens, by name or number
    call: @person                                               another grammar of a list (`grammar_list`)
    %llguidance {"no_forcing": true}                            a header, which means nothing here

Refused by name: what is about tokens and not about texts (`max_tokens`, `temperature`), or hides what was written
(`stop`). `capture` only names a part of the output.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from ..regex.regex_tree import Concat, Either, Node, Plain, Times
from .notation import Token, grammar_error

SpellSpecial = Callable[["int | str"], "bytes | None"]
"""What stands for a special token, by its text or number; None if there is no such token."""

MAX_CHUNKS = 1000
MAX_TOKENS = 10_000  # in one range
_WORDS = re.compile(r"\s+|\w+|[^\w\s]+")
_SUBSTRINGS = ("substring_chunks", "substring_words", "substring_chars")
_HEADER = "no_forcing"  # whether what is forced is still sampled; here the request says so
_WHY_NOT = {
    "max_tokens": "counts tokens, which a grammar does not know; bound a repetition, or the request's max_tokens",
    "temperature": "is no matter of which texts are possible; set it for the request",
    "stop": "hides text that was written; use suffix, or lazy",
    "stop_capture": "names text that is hidden; leave it out",
}


def check_header(text: str, item: list[Token]) -> None:
    """Raises InvalidGrammar: `%llguidance {…}` asks for what would change the language, or something follows it."""
    found: Any = json.loads(item[0].text)
    others = sorted(set(found) - {_HEADER}) if isinstance(found, dict) else ["that"]
    if others:
        message = f'%llguidance: {others[0]} is not supported; only {{}} or {{"{_HEADER}": …}}'
        raise grammar_error(message, text, item[0].offset)
    if len(item) > 1:
        raise grammar_error(f"{item[1].text!r} is not expected here", text, item[1].offset)


def substring(text: str, token: Token) -> Node:
    """The tree of `%regex {"substring_…": …}`; `text`: the grammar, for the place of an error."""
    found: Any = json.loads(token.text)
    if not isinstance(found, dict) or len(found) != 1 or next(iter(found)) not in _SUBSTRINGS:
        raise grammar_error(f"%regex takes one of {', '.join(_SUBSTRINGS)}", text, token.offset)
    kind: str = next(iter(found))
    value: Any = found[kind]
    is_list = kind == "substring_chunks"
    if type(value) is not (list if is_list else str) or not all(isinstance(part, str) for part in value):
        raise grammar_error(f"{kind}: expected {'a list of texts' if is_list else 'text'}", text, token.offset)
    chunks = [chunk for chunk in (_WORDS.findall(str(value)) if kind == "substring_words" else value) if chunk]
    if len(chunks) > MAX_CHUNKS:
        message = f"{kind}: {len(chunks)} parts; at most {MAX_CHUNKS} are read, so give longer ones or fewer"
        raise grammar_error(message, text, token.offset)
    return _runs([Plain(chunk) for chunk in chunks])


def _runs(chunks: list[Plain]) -> Node:
    """Any run of the chunks: within one half of them, or the end of one and the beginning of the other."""
    if len(chunks) < 2:
        return Times(Concat(tuple(chunks)), 0, 1)
    middle = len(chunks) // 2
    end: Node = Concat(())
    for chunk in chunks[:middle]:
        end = Times(Concat((end, chunk)), 0, 1)
    beginning: Node = Concat(())
    for chunk in reversed(chunks[middle:]):
        beginning = Times(Concat((chunk, beginning)), 0, 1)
    return Either((_runs(chunks[:middle]), _runs(chunks[middle:]), Concat((end, beginning))))


def options(text: str, item: list[Token], position: int) -> tuple[bool, Token | None, int]:
    """Reads the options of a rule from after `[` on: whether it is lazy, its suffix, where the definition goes on."""
    is_lazy, suffix, begin = False, None, position
    while position < len(item) and item[position].text != "]":
        name, value = item[position], None
        position += 1
        if [token.text for token in item[position : position + 1]] == ["="]:
            value = item[position + 1] if position + 1 < len(item) else None
            position += 2
            while position < len(item) and item[position].text not in (",", "]"):  # of a number with a point
                position += 1
        if name.text in _WHY_NOT:
            raise grammar_error(f"the option {name.text} {_WHY_NOT[name.text]}", text, name.offset)
        if name.text == "lazy" and value is None:
            is_lazy = True
        elif name.text == "suffix" and value is not None and value.kind in ("text", "regex", "name"):
            suffix = value
        elif name.text != "capture":
            message = f"{name.text!r} is no option of a rule; there are lazy, suffix=TERMINAL and capture"
            raise grammar_error(message, text, name.offset)
        if position < len(item) and item[position].text == ",":
            position += 1
    if position >= len(item):
        raise grammar_error("this bracket is not closed", text, item[begin - 1].offset)
    return is_lazy, suffix, position


def special_tokens(text: str, token: Token, spell_special: SpellSpecial) -> list[bytes]:
    """What stands for each of the special tokens that `<name>`, `<[12]>` or `<[12-15,20]>` means."""
    name = token.text
    if not name.startswith("<["):
        return [_special(text, token, name, spell_special)]
    found: list[bytes] = []
    for part in name[2:-2].split(","):
        bounds = re.fullmatch(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", part)
        if bounds is None:
            message = f"{name}: tokens are given by number, as <[12]> or <[12-15,20]>; all but some cannot be said"
            raise grammar_error(message, text, token.offset)
        first, last = int(bounds[1]), int(bounds[2] or bounds[1])
        if not 0 <= last - first < MAX_TOKENS:
            raise grammar_error(f"{name}: a range of 1 to {MAX_TOKENS} tokens is expected", text, token.offset)
        found += [_special(text, token, number, spell_special) for number in range(first, last + 1)]
    return found


def _special(text: str, token: Token, name: int | str, spell_special: SpellSpecial) -> bytes:
    spelling = spell_special(name)
    if spelling is None:
        message = (
            f"{name} is no special token of this tokenizer, or ends every text; what an ordinary token spells is "
            "written as a literal"
        )
        raise grammar_error(message, text, token.offset)
    return spelling
