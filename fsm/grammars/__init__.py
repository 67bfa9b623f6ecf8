"""Grammars given as text, in two notations: EBNF as llama.cpp, XGrammar and SGLang read it, and Lark."""

from __future__ import annotations

from typing import Literal as OneOf

from ...errors import InvalidGrammar
from ..expression import Grammar
from .ebnf import ebnf_to_grammar

Syntax = OneOf["auto", "ebnf", "lark"]


def text_to_grammar(text: str, syntax: Syntax = "auto") -> Grammar:
    """The grammar that a text describes.

    Raises:
        InvalidGrammar: it cannot be read; `pointer` is the line and the column.
        ConstraintTooLarge: it passes a bound.
    """
    if syntax == "lark":
        raise InvalidGrammar("grammar: the Lark notation is not read yet; write EBNF (root ::= …)", param="grammar")
    return ebnf_to_grammar(text)
