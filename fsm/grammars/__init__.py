"""Grammars given as text, in two notations: EBNF as llama.cpp, XGrammar and SGLang read it, and Lark; or several in
Lark's as JSON, which may name one another (`grammar_list`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal as OneOf

from ..compile_time import CompileTime
from ..network.expression import Grammar
from .notation import grammar_error

Syntax = OneOf["auto", "ebnf", "lark"]
_EBNF_RULE = re.compile(r"^[ \t]*\w[\w.-]*\s*::=", re.MULTILINE)
_LARK_ITEM = re.compile(r"^[ \t]*(?:[?!]*_*[A-Za-z][\w-]*(?:\.-?\d+)?[ \t]*:|%[a-z]+\b)", re.MULTILINE)


def text_to_grammar(
    text: str,
    syntax: Syntax = "auto",
    compile_time: CompileTime | None = None,
    spell_special: Callable[[int | str], bytes | None] = lambda _: None,
) -> Grammar:
    """The grammar that a text describes. "auto": Lark if it has definitions `name: …` and none like `name ::= …`.

    Args:
        spell_special: what stands for a special token, by its text or id (`Vocabulary.spell_special`).

    Raises:
        InvalidGrammar: it cannot be read; `pointer` is the line and the column.
        ConstraintTooLarge: it passes a bound, or the time is over.
    """
    compile_time = compile_time or CompileTime()
    half = re.search("[\ud800-\udfff]", text)
    if half is not None:
        raise grammar_error(f"half a surrogate pair ({half[0]!r}) is not a character", text, half.start())
    if syntax != "ebnf" and text.lstrip().startswith("{"):
        from .grammar_list import list_to_grammar
        from .lark import lark_to_grammar

        return list_to_grammar(
            text, compile_time, lambda one, named: lark_to_grammar(one, compile_time, spell_special, named)
        )
    if syntax == "auto":
        syntax = "lark" if _LARK_ITEM.search(text) and not _EBNF_RULE.search(text) else "ebnf"
    if syntax == "lark":  # only a grammar needs the readers, and one of them
        from .lark import lark_to_grammar

        return lark_to_grammar(text, compile_time, spell_special)
    from .ebnf import ebnf_to_grammar

    return ebnf_to_grammar(text, compile_time)
