"""Dead rules: those of which no text is ever complete, and the way from the first rule of a grammar to the cause.

Knows expressions only; nothing is walked by recursion. Only asked once a grammar is known to have no text.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from ..columns import NEVER
from ..compile_time import NO_LIMIT, CompileTime
from ..text.text_table import text_table
from .expression import Alternation, AnyOrder, ByteSet, Embed, Expression, Grammar, Repeat, Rule, Sequence
from .walks import Deciding, decided, least_fixed_point, parts_of


def path_to_nothing(grammar: Grammar, dead: Container[str]) -> tuple[list[str], list[str]]:
    """Dead rules, from the first one of a grammar without texts, each of which needs the next one.

    Args:
        dead: all dead rules of the grammar.

    Returns:
        The path; and its end from the rule that the last one needs again, empty if that needs no other dead rule.
    """
    last = grammar.start
    path = {last: None}  # in order
    while True:
        needed = [part.name for part in parts_of(grammar.rules[last]) if isinstance(part, Rule) and part.name in dead]
        following = next((name for name in needed if name not in path), None)
        if following is None:
            names = list(path)
            return names, names[names.index(needed[0]) :] if needed else []
        path[following] = None
        last = following


def has_impossible_part(expression: Expression) -> bool:
    """Whether some part that calls no rules can never be matched."""
    return any(isinstance(part, (Embed, ByteSet)) and not _is_live(part, {}) for part in parts_of(expression))


def dead_rules(rules: Mapping[str, Expression], compile_time: CompileTime = NO_LIMIT) -> set[str]:
    """The rules of which no text is ever complete."""

    def is_live(expression: Expression, known: Mapping[str, bool]) -> bool:
        return _is_live(expression, known, compile_time)

    found = least_fixed_point(rules, False, is_live, compile_time, True)
    return {name for name, has_text in found.items() if not has_text}


def _is_live(expression: Expression, rules: Mapping[str, bool], compile_time: CompileTime = NO_LIMIT) -> bool:
    """Whether an expression has a text."""

    def is_live(part: Expression) -> bool | Deciding:
        if isinstance(part, Sequence):
            return True, part.parts
        if isinstance(part, Alternation):
            return False, part.options
        if isinstance(part, Repeat):
            return (True, (part.item,)) if part.minimum else True
        if isinstance(part, AnyOrder):
            return True, tuple([member.body for member in part.members if member.is_required])
        if isinstance(part, Rule):
            return rules[part.name]
        if isinstance(part, Embed):
            return text_table(part.language).min_bytes < NEVER
        return not isinstance(part, ByteSet) or part.mask != 0

    return decided(expression, is_live, compile_time)
