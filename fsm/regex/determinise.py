"""From a pattern's tree to its automaton.

::

    no assertions                      subsets of positions, compiled          (subsets.py)
    ^(?=A)(?!B)rest                    rest and A.* and not B.*, each by itself: products of automata
    assertions anywhere else           threads, followed one by one            (threads.py)

The second row is how look-aheads are nearly always used. Where a text begins nothing has been read, so what they ask
for is a language of its own.
"""

from __future__ import annotations

from ...errors import ConstraintTooLarge
from ..compile_time import NO_LIMIT, CompileTime
from ..text.dfa import Dfa, no_text
from .nfa import ANY_TEXT, build
from .regex_tree import OPTIONAL_BREAK, PYTHON_END, Assertion, Concat, Either, Look, Node
from .subsets import MAX_WORK, plain_dfa
from .threads import MAX_LOOK_DEPTH, Threads


def determinise(tree: Node, max_work: int = MAX_WORK, compile_time: CompileTime = NO_LIMIT) -> Dfa:
    """The language of a tree as a Dfa: the whole text must match.

    `max_work` bounds the effort for a tree without assertions, in positions looked at (some nanoseconds each).

    Raises:
        ConstraintTooLarge: it would pass the bounds, or the time is over.
    """
    return _determinised(tree, max_work, compile_time, 0)


def _determinised(tree: Node, max_work: int, compile_time: CompileTime, depth: int) -> Dfa:
    if depth > MAX_LOOK_DEPTH:
        raise ConstraintTooLarge(f"look-arounds are nested more than {MAX_LOOK_DEPTH} deep")
    options = [_without_looks(option) for option in (tree.options if isinstance(tree, Either) else (tree,))]
    if not any(looks for looks, _ in options):
        nfa = build(tree, compile_time)
        if nfa.assertions or nfa.looks:
            return Threads(nfa, compile_time, depth).dfa()
        return plain_dfa(nfa, compile_time, max_work)
    found = no_text()
    plain = tuple(rest for looks, rest in options if not looks)
    if plain:
        found = _determinised(Either(plain), max_work, compile_time, depth)
    for looks, rest in options:
        if looks:
            language = _determinised(rest, max_work, compile_time, depth + 1)
            for look in looks:
                asked = _determinised(_beginning_with(look.body), max_work, compile_time, depth + 1)
                compile_time.check_here()
                language = language.difference(asked) if look.is_negative else language.intersect(asked)
            compile_time.check_here()
            found = found.union(language)
    return found


def _without_looks(tree: Node) -> tuple[list[Look], Node]:
    """The look-aheads that a tree begins with, and the rest of it."""
    parts: list[Node] = [tree]
    looks: list[Look] = []
    while parts:
        first = parts[-1]
        if isinstance(first, Concat):
            parts.pop()
            parts.extend(reversed(first.parts))
        elif isinstance(first, Look) and first.is_ahead:
            looks.append(first)
            parts.pop()
        elif looks and isinstance(first, Assertion) and first.kind == "start":
            parts.pop()
        else:
            break
    return (looks, Concat(tuple(reversed(parts)))) if looks else ([], tree)


def _beginning_with(body: Node) -> Node:
    """The texts that begin with a match."""
    open_ends: list[Node] = []
    whole: list[Node] = []
    for option in body.options if isinstance(body, Either) else (body,):
        parts = option.parts if isinstance(option, Concat) else (option,)
        last = parts[-1] if parts else option
        if isinstance(last, Assertion) and last.kind == "end":
            whole.append(Concat(parts[:-1]))
        elif last is PYTHON_END:
            whole.append(Concat((*parts[:-1], OPTIONAL_BREAK)))
        else:
            open_ends.append(option)
    if open_ends:
        whole.append(Concat((open_ends[0] if len(open_ends) == 1 else Either(tuple(open_ends)), ANY_TEXT)))
    return whole[0] if len(whole) == 1 else Either(tuple(whole))
