"""Walks over expressions and rules that several steps need: what refers to what, the same under other names.

Knows expressions only; nothing is walked by recursion.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from ...errors import ConstraintTooLarge
from ..compile_time import FEW, NO_LIMIT, CompileTime
from .expression import (
    Alternation,
    AnyOrder,
    ByteSet,
    Embed,
    Expression,
    Grammar,
    Literal,
    Repeat,
    Rule,
    Sequence,
)

Found = TypeVar("Found")
Node = TypeVar("Node", bound=Hashable)
Deciding = tuple[bool, tuple[Expression, ...]]
"""What an answer hangs on: whether it takes a yes about all of these parts, or about one."""

_LEAVES = frozenset((Literal, ByteSet, Rule, Embed))


def children(expression: Expression) -> tuple[Expression, ...]:
    """The expressions directly inside of another one."""
    if type(expression) in _LEAVES:
        return ()
    if isinstance(expression, Sequence):
        return expression.parts
    if isinstance(expression, Alternation):
        return expression.options
    if isinstance(expression, AnyOrder):
        return (*(member.body for member in expression.members), *expression.others, expression.separator)
    return (expression.item,) if isinstance(expression, Repeat) else ()


def parts_of(expression: Expression, compile_time: CompileTime = NO_LIMIT) -> list[Expression]:
    """The expression and all its parts, each before those that it consists of."""
    found = [expression]
    for part in compile_time.over(found):  # grows meanwhile
        found += children(part)
    return found


def folded(
    expression: Expression,
    found_of: Callable[[Expression, list[Found]], Found],
    compile_time: CompileTime = NO_LIMIT,
) -> Found:
    """What is found of an expression, given what is found of its children."""
    parts = [(expression, children(expression))]
    for _, inner in compile_time.over(parts):  # grows meanwhile
        parts += [(part, children(part)) for part in inner]
    known: dict[int, Found] = {}
    for part, inner in compile_time.over(reversed(parts)):
        known[id(part)] = found_of(part, [known[id(child)] for child in inner])
    return known[id(expression)]


def least_fixed_point(
    rules: Mapping[str, Expression],
    least: Found,
    found_of: Callable[[Expression, Mapping[str, Found]], Found],
    compile_time: CompileTime = NO_LIMIT,
    greatest: Found | None = None,
) -> dict[str, Found]:
    """What is found of each rule, given what is found of the rules that it refers to; at first `least`.

    Rules come after those that they refer to, so each is looked at once but in a cycle.

    Args:
        found_of: of the body of a rule; grows with what is known of the others.
        greatest: what cannot grow any more, if there is such a thing; a rule of which it is found is done.
    """
    edges: dict[str, dict[str, None]] = {}
    users: dict[str, list[str]] = {}
    known = dict.fromkeys(rules, least)
    name = next(iter(rules), "")
    try:
        for name, body in rules.items():
            edges[name] = dict.fromkeys(rule_names(body, compile_time))
            for used in edges[name]:
                users.setdefault(used, []).append(name)
        for component in strong_components(edges, compile_time):
            inside = frozenset(component)
            pending = dict.fromkeys(component)
            while pending:
                name = pending.popitem()[0]
                compile_time.check_here()
                found = found_of(rules[name], known)
                if found != known[name]:
                    known[name] = found
                    again = [user for user in users.get(name, ()) if user in inside and known[user] != greatest]
                    pending.update(dict.fromkeys(again))
    except ConstraintTooLarge as error:
        raise ConstraintTooLarge(f"grammar, rule {name}: {error}") from None
    return known


def decided(
    expression: Expression,
    decide: Callable[[Expression], bool | Deciding],
    compile_time: CompileTime = NO_LIMIT,
) -> bool:
    """A yes or no about an expression; looks at no more of it than that takes, and once at what is shared.

    Args:
        decide: about a part: the answer, or the parts that it hangs on.
    """
    known: dict[int, bool] = {}
    pending: list[tuple[Expression, bool, Iterator[Expression]]] = []  # whether it takes all, those not looked at
    part, steps = expression, 0
    while True:
        if steps & (FEW - 1) == 0:
            compile_time.check_here()
        steps += 1
        found = known[id(part)] if id(part) in known else decide(part)
        if not isinstance(found, bool):
            found, inner = found
            pending.append((part, found, iter(inner)))
        while pending:
            owner, needs_all, rest = pending[-1]
            following = next(rest, None) if found is needs_all else None
            if following is not None:
                part = following
                break
            known[id(owner)] = found
            pending.pop()
        else:
            return found


def is_nullable(expression: Expression, rules: Mapping[str, bool]) -> bool:
    """Whether an expression may write nothing.

    Args:
        rules: whether a rule may.
    """

    def may_be_empty(part: Expression) -> bool | Deciding:
        if isinstance(part, Sequence):
            return True, part.parts
        if isinstance(part, Alternation):
            return False, part.options
        if isinstance(part, Repeat):
            return (True, (part.item,)) if part.minimum else True
        if isinstance(part, Rule):
            return rules.get(part.name, False)
        if isinstance(part, Embed):
            return part.language.is_accepting(part.language.start)
        return isinstance(part, Literal) and not part.data

    return decided(expression, may_be_empty)


def nullable_rules(rules: Mapping[str, Expression], compile_time: CompileTime = NO_LIMIT) -> dict[str, bool]:
    """Of each rule whether it may write nothing."""
    return least_fixed_point(rules, False, is_nullable, compile_time, True)


def rule_names(body: Expression, compile_time: CompileTime = NO_LIMIT) -> set[str]:
    """The rules that an expression refers to."""
    return {part.name for part in compile_time.over(parts_of(body, compile_time)) if isinstance(part, Rule)}


def strong_components(
    edges: Mapping[Node, Mapping[Node, None]], compile_time: CompileTime = NO_LIMIT
) -> list[list[Node]]:
    """Tarjan's algorithm: every node in exactly one component, components after those they lead to.

    Nodes that an edge leads to and that have no edges of their own are left out.
    """
    order: dict[Node, int] = {}
    lowest: dict[Node, int] = {}
    open_nodes: dict[Node, None] = {}
    found: list[list[Node]] = []
    for root in edges:
        path = [(root, iter(edges[root]))] if root not in order else []
        while path:
            node, rest = path[-1]
            if node not in order:
                if len(order) % FEW == 0:
                    compile_time.check_here()
                order[node] = lowest[node] = len(order)
                open_nodes[node] = None
            follower = next(rest, None)
            if follower is None:
                path.pop()
                if path:
                    lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[node])
                if lowest[node] == order[node]:
                    component: list[Node] = []
                    while not component or component[-1] != node:
                        component.append(open_nodes.popitem()[0])
                    found.append(component)
            elif follower not in edges:
                continue
            elif follower not in order:
                path.append((follower, iter(edges[follower])))
            elif follower in open_nodes:
                lowest[node] = min(lowest[node], order[follower])
    return found


def mapped(expression: Expression, change: Callable[[Rule], Expression]) -> Expression:
    """`expression` with every reference to a rule put through `change`."""

    def made(node: Expression, inner: list[Expression]) -> Expression:
        if isinstance(node, Rule):
            return change(node)
        if isinstance(node, Sequence):
            return Sequence(tuple(inner))
        if isinstance(node, Alternation):
            return Alternation(tuple(inner))
        if isinstance(node, Repeat):
            return Repeat(inner[0], node.minimum, node.maximum)
        if isinstance(node, AnyOrder):
            members = tuple([replace(member, body=body) for member, body in zip(node.members, inner, strict=False)])
            return replace(node, members=members, others=tuple(inner[len(members) : -1]), separator=inner[-1])
        return node

    return folded(expression, made)


def renamed(expression: Expression, prefix: str) -> Expression:
    """`expression` with `prefix` before the name of every rule that it refers to."""
    return mapped(expression, lambda rule: Rule(prefix + rule.name))


def first_characters(grammar: Grammar) -> str:
    """The ASCII characters that the texts of a grammar may begin with; perhaps more, never fewer."""
    found: set[str] = set()
    seen = {grammar.start}
    pending = [grammar.rules[grammar.start]]
    while pending:
        expression = pending.pop()
        if isinstance(expression, Literal):
            found.update(expression.data[:1].decode("ascii", "ignore"))
        elif isinstance(expression, Embed):
            row = expression.language.row(expression.language.start)
            found.update(chr(byte) for byte in range(128) if row[byte])
        elif isinstance(expression, ByteSet):
            found.update(chr(byte) for byte in range(128) if expression.mask >> byte & 1)
        elif isinstance(expression, Rule):
            if expression.name not in seen:
                seen.add(expression.name)
                pending.append(grammar.rules[expression.name])
        elif isinstance(expression, AnyOrder):
            found.update((member.text or b"")[:1].decode("ascii", "ignore") for member in expression.members)
            pending.extend((*expression.others, *(member.body for member in expression.members if not member.text)))
        elif isinstance(expression, Sequence):
            for part in expression.parts:
                pending.append(part)
                if isinstance(part, ByteSet) or (isinstance(part, Literal) and part.data):
                    break  # anything else might be empty
        else:
            pending.extend(children(expression))
    return "".join(sorted(found))
