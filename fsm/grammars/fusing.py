"""Rules whose texts are a regular language, as one automaton each, where that pays.

::

    string ::= "\"" char* "\""                       a literal, and one automaton for char* "\""
    char   ::= [^"\\] | "\\" ["\\/bfnrtu]            goes into it
    pair   ::= string ":" value                      stays a rule: calls of `string` share its automaton

Position by position such a rule would mean the same. But a mask is cheap only where tokens stay inside one
automaton over texts (see `masks`), and ``[a-z]+`` as a loop over single characters leaves it with every character.

It knows expressions and regex trees. Whatever would grow too large is left as it was.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import ConstraintTooLarge
from ..compile_time import CompileTime
from ..network.expression import Alternation, Embed, Expression, Literal, Repeat, Rule, Sequence
from ..network.walks import children, rule_names, strong_components
from ..regex.determinise import determinise
from ..regex.regex import EAGER_POSITIONS, EAGER_WORK, MINIMISE_UP_TO
from ..regex.regex_tree import Concat, Either, Node, Plain, Times
from ..text.language import Language

Sized = tuple[Node, int, bool]
"""A tree, the number of positions that it unfolds to, and whether something in it may be written more than once."""


def fused(
    rules: Mapping[str, Expression], patterns: Mapping[Language, Node], compile_time: CompileTime
) -> dict[str, Expression]:
    """The rules with the same names and languages, regular ones as automata.

    Args:
        patterns: the tree of every embedded language.
    """
    trees: dict[str, Sized] = {}
    references = {
        name: dict.fromkeys(rule_names(body))
        for name, body in compile_time.over(rules.items(), name="grammar, its rules")
    }
    for component in strong_components(references):
        name = component[0]
        compile_time.check("", f"grammar, rule {name}")
        if len(component) == 1 and name not in references[name]:
            tree = _tree(rules[name], trees, patterns)
            if tree is not None:
                trees[name] = tree
    found: dict[str, Expression] = {}
    for name, body in rules.items():
        compile_time.check("", f"grammar, rule {name}")
        found[name] = _fused(body, trees, patterns)
    return found


def _fused(body: Expression, trees: Mapping[str, Sized], patterns: Mapping[Language, Node]) -> Expression:
    tree = _tree(body, trees, patterns)
    if tree is not None:
        if not tree[2] or isinstance(body, (Literal, Embed, Rule)):
            return body
        if isinstance(body, Sequence):  # literals in front are forced text: best left as they are
            first = next(index for index, part in enumerate(body.parts) if not isinstance(part, Literal))
            rest = Sequence(body.parts[first:]) if first else body
            automaton = _automaton(rest, trees, patterns)
            if automaton is not None:
                return Sequence((*body.parts[:first], automaton)) if first else automaton
        else:
            automaton = _automaton(body, trees, patterns)
            if automaton is not None:
                return automaton
    if isinstance(body, Sequence):
        return Sequence(tuple(_fused(part, trees, patterns) for part in body.parts))
    if isinstance(body, Alternation):
        return Alternation(tuple(_fused(option, trees, patterns) for option in body.options))
    if isinstance(body, Repeat):
        return Repeat(_fused(body.item, trees, patterns), body.minimum, body.maximum)
    return body


def _automaton(body: Expression, trees: Mapping[str, Sized], patterns: Mapping[Language, Node]) -> Embed | None:
    tree = _tree(body, trees, patterns)
    if tree is None:
        return None
    try:
        dfa = determinise(tree[0], EAGER_WORK)
    except ConstraintTooLarge:
        return None
    return Embed(dfa.minimised() if dfa.num_states <= MINIMISE_UP_TO else dfa)


def _tree(body: Expression, trees: Mapping[str, Sized], patterns: Mapping[Language, Node]) -> Sized | None:
    """The expression as a regex tree, regular rules filled in; None if it is not regular, or too large."""
    if isinstance(body, Rule):
        return trees.get(body.name)
    if isinstance(body, Literal):
        return Plain(body.data.decode()), max(1, len(body.data)), False
    if isinstance(body, Embed):
        pattern = patterns.get(body.language)
        return None if pattern is None else (pattern, 1, _repeats(pattern))
    inner = children(body)
    if len(inner) > EAGER_POSITIONS:
        return None
    below = [_tree(child, trees, patterns) for child in inner]
    found = [tree for tree in below if tree is not None]
    size, repeats = sum(tree[1] for tree in found) + 1, any(tree[2] for tree in found)
    if isinstance(body, Repeat):
        size *= max(body.minimum, body.maximum or 1, 1)
    if len(found) < len(below) or size > EAGER_POSITIONS:
        return None
    nodes = tuple(tree[0] for tree in found)
    if isinstance(body, Repeat):
        return Times(nodes[0], body.minimum, body.maximum), size, repeats or body.maximum is None or body.maximum > 1
    if isinstance(body, Sequence):
        return Concat(nodes), size, repeats
    return (Either(nodes), size, repeats) if isinstance(body, Alternation) else None


def _repeats(tree: Node) -> bool:
    """Whether something in the tree may be written more than once."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, Times):
            if node.maximum is None or node.maximum > 1:
                return True
            pending.append(node.item)
        elif isinstance(node, (Concat, Either)):
            pending.extend(node.parts if isinstance(node, Concat) else node.options)
    return False
