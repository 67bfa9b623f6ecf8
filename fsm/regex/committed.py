"""Atomic groups and possessive quantifiers: what a search would match first, and then not give back.

::

    (?>ab|a)c      the first option that matches:     abc | (?!ab)ac
    [a-z]++        as many as there are:              [a-z]+(?![a-z])

This is exact where it does not depend on how the search goes: of a part of which no text begins with another one (it is
prefix-free) there is at most one match at any place. Anything else is not decided here.
"""

from __future__ import annotations

from ...errors import ConstraintTooLarge
from ..compile_time import CompileTime
from .determinise import determinise
from .regex_tree import Assertion, CharSet, Concat, Either, Look, Node, Plain, Times, nodes_of

MAX_WORK = 200_000  # positions looked at to find out whether a part is prefix-free


def committed(node: Node, time: CompileTime) -> Node | None:
    """The node with its first match only; None if that depends on how it is searched for. All of it is greedy."""
    if isinstance(node, (CharSet, Plain)) or _is_prefix_free(node, time):
        return node
    if isinstance(node, Times) and _is_prefix_free(node.item, time):
        item, minimum, maximum = node.item, node.minimum, node.maximum
        if minimum == maximum:
            return node
        ends = Look(item, is_ahead=True, is_negative=True)
        if maximum is None:
            return Concat((node, ends))
        return Either((Times(item, maximum, maximum), Concat((Times(item, minimum, maximum - 1), ends))))
    if isinstance(node, Concat) and _is_prefix_free(Concat(node.parts[:-1]), time):
        last = committed(node.parts[-1], time)
        return None if last is None else Concat((*node.parts[:-1], last))
    if isinstance(node, Either) and not _asks(node):
        options: list[Node] = []
        for index, option in enumerate(node.options):
            found = committed(option, time)
            if found is None:
                return None
            before = Look(Either(node.options[:index]), is_ahead=True, is_negative=True)
            options.append(Concat((before, found)) if index else found)
        return Either(tuple(options))
    return None


def _is_prefix_free(node: Node, time: CompileTime) -> bool:
    """Whether no text of the node begins with another one; False as well if that is too much to find out."""
    if _asks(node):
        return False
    try:
        dfa = determinise(node, MAX_WORK, time)
    except ConstraintTooLarge:
        time.check_here()
        return False
    return not dfa.table[dfa.accepting].any()


def _asks(node: Node) -> bool:
    """Whether there is an assertion or a look-around in it."""
    return any(isinstance(inner, (Assertion, Look)) for inner in nodes_of(node))
