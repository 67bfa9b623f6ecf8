"""Grammars given as text."""

from __future__ import annotations

from ..expression import Grammar
from .ebnf import ebnf_to_grammar


def text_to_grammar(text: str) -> Grammar:
    """The grammar that a text describes.

    Raises:
        InvalidGrammar: it cannot be read; `pointer` is the line and the column.
        ConstraintTooLarge: it passes a bound.
    """
    return ebnf_to_grammar(text)
