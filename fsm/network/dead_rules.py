"""Dead rules: those of which no text is ever complete, and the way from the first rule of a grammar to the cause.

Knows expressions only; nothing is walked by recursion. Only asked once a grammar is known to have no text.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from ..columns import NEVER
from ..text.text_table import text_table
from .expression import Alternation, AnyOrder, ByteSet, Embed, Expression, Grammar, Repeat, Rule, Sequence


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
        needed = [part.name for part in _parts(grammar.rules[last]) if isinstance(part, Rule) and part.name in dead]
        following = next((name for name in needed if name not in path), None)
        if following is None:
            names = list(path)
            return names, names[names.index(needed[0]) :] if needed else []
        path[following] = None
        last = following


def has_impossible_part(expression: Expression) -> bool:
    """Whether some part that calls no rules can never be matched."""
    return any(isinstance(part, (Embed, ByteSet)) and not _is_live([part], set()) for part in _parts(expression))


def dead_rules(rules: Mapping[str, Expression]) -> set[str]:
    """The rules of which no text is ever complete."""
    parts = {name: _parts(body) for name, body in rules.items()}
    users: dict[str, list[str]] = {}
    for name, own in parts.items():
        for part in own:
            if isinstance(part, Rule):
                users.setdefault(part.name, []).append(name)
    dead, pending = set(rules), list(rules)
    while pending:
        name = pending.pop()
        if name in dead and _is_live(parts[name], dead):
            dead.discard(name)
            pending += users.get(name, ())
    return dead


def _is_live(parts: list[Expression], dead: set[str]) -> bool:
    """Whether the first of some parts, each of which stands before those that it consists of, has a text."""
    known: dict[int, bool] = {}
    for part in reversed(parts):
        if isinstance(part, Rule):
            found = part.name not in dead
        elif isinstance(part, Sequence):
            found = all(known[id(inner)] for inner in part.parts)
        elif isinstance(part, Alternation):
            found = any(known[id(option)] for option in part.options)
        elif isinstance(part, Repeat):
            found = part.minimum == 0 or known[id(part.item)]
        elif isinstance(part, AnyOrder):
            found = all(known[id(member.body)] for member in part.members if member.is_required)
        elif isinstance(part, Embed):
            found = text_table(part.language).min_bytes < NEVER
        else:
            found = not isinstance(part, ByteSet) or part.mask != 0
        known[id(part)] = found
    return known[id(parts[0])]


def _parts(expression: Expression) -> list[Expression]:
    """The expression and all its parts, each before those that it consists of."""
    found = [expression]
    for part in found:  # grows meanwhile
        if isinstance(part, Sequence):
            found += part.parts
        elif isinstance(part, Alternation):
            found += part.options
        elif isinstance(part, Repeat):
            found.append(part.item)
        elif isinstance(part, AnyOrder):
            found += (*(member.body for member in part.members), *part.others, part.separator)
    return found
