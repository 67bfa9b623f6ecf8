"""Walks over expressions and rules that several steps need: what refers to what, the same under other names.

Knows expressions only; nothing is walked by recursion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ..network.expression import (
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


def children(expression: Expression) -> tuple[Expression, ...]:
    """The expressions directly inside of another one."""
    if isinstance(expression, Sequence):
        return expression.parts
    if isinstance(expression, Alternation):
        return expression.options
    if isinstance(expression, AnyOrder):
        return (*(member.body for member in expression.members), *expression.others, expression.separator)
    return (expression.item,) if isinstance(expression, Repeat) else ()


def rule_names(body: Expression) -> set[str]:
    """The rules that an expression refers to."""
    found: set[str] = set()
    pending = [body]
    while pending:
        expression = pending.pop()
        if isinstance(expression, Rule):
            found.add(expression.name)
        else:
            pending.extend(children(expression))
    return found


def strong_components(edges: Mapping[str, Mapping[str, None]]) -> list[list[str]]:
    """Tarjan's algorithm: every node in exactly one component, components after those they lead to."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_nodes: dict[str, None] = {}
    found: list[list[str]] = []
    for root in edges:
        path = [(root, iter(edges[root]))] if root not in order else []
        while path:
            node, rest = path[-1]
            if node not in order:
                order[node] = lowest[node] = len(order)
                open_nodes[node] = None
            follower = next(rest, None)
            if follower is None:
                path.pop()
                if path:
                    lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[node])
                if lowest[node] == order[node]:
                    component: list[str] = []
                    while not component or component[-1] != node:
                        component.append(open_nodes.popitem()[0])
                    found.append(component)
            elif follower not in order:
                path.append((follower, iter(edges[follower])))
            elif follower in open_nodes:
                lowest[node] = min(lowest[node], order[follower])
    return found


def mapped(expression: Expression, change: Callable[[Rule], Expression]) -> Expression:
    """`expression` with every reference to a rule put through `change`."""
    tasks: list[tuple[Expression, bool]] = [(expression, False)]
    done: list[Expression] = []
    while tasks:
        node, is_ready = tasks.pop()
        inner = children(node)
        if isinstance(node, Rule):
            done.append(change(node))
        elif not isinstance(node, (Sequence, Alternation, Repeat, AnyOrder)):
            done.append(node)
        elif not is_ready:
            tasks.append((node, True))
            tasks.extend((child, False) for child in inner)
        elif isinstance(node, Repeat):
            done.append(Repeat(done.pop(), node.minimum, node.maximum))
        else:
            operands = tuple(reversed(done[len(done) - len(inner) :]))
            del done[len(done) - len(inner) :]
            if isinstance(node, AnyOrder):
                bodies, others = operands[: len(node.members)], operands[len(node.members) : -1]
                members = tuple(replace(member, body=body) for member, body in zip(node.members, bodies, strict=True))
                done.append(replace(node, members=members, others=others, separator=operands[-1]))
            else:
                done.append(Sequence(operands) if isinstance(node, Sequence) else Alternation(operands))
    return done.pop()


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
