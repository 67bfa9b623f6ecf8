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
from ..network.expression import Alternation, Embed, Expression, Literal, Parts, Repeat, Rule, Sequence
from ..network.walks import children, rule_names, strong_components
from ..regex.determinise import determinise
from ..regex.regex import EAGER_POSITIONS, EAGER_WORK, MINIMISE_UP_TO
from ..regex.regex_tree import CharSet, Concat, Either, Node, Plain, Times, nodes_of
from ..text.language import Language

MAX_NARROW = 8  # characters of a class that is spelt out
MAX_SPELT = 64  # parts of a rule that is written out where it stands
MANY_OPTIONS = 16

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
    fusing = _Fusing(trees, patterns)
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
                fusing.note_spelt(name, rules[name])
    found: dict[str, Expression] = {}
    for name, body in rules.items():
        compile_time.check("", f"grammar, rule {name}")
        found[name] = fusing.fused(body)
    return found


class _Fusing:
    """The rules as trees, and the automata made so far; the same part of several rules is one automaton."""

    def __init__(self, trees: Mapping[str, Sized], patterns: Mapping[Language, Node]) -> None:
        self.trees = trees
        self.patterns = patterns
        self.spelt: dict[str, Parts] = {}
        self.automata: dict[Expression, Embed | None] = {}

    def note_spelt(self, name: str, body: Expression) -> None:
        """Remembers a short rule that is spelt out, such as a keyword in any case."""
        parts = self.spelling(body)
        if parts is not None and len(parts) <= MAX_SPELT:
            self.spelt[name] = parts

    def spelling(self, body: Expression) -> Parts | None:
        """Literals and narrow classes that an expression is a sequence of; None if it is anything else."""
        if isinstance(body, Rule):
            return self.spelt.get(body.name)
        if isinstance(body, Sequence):
            inner = [self.spelling(part) for part in body.parts]
            return None if None in inner else tuple([part for parts in inner if parts for part in parts])
        is_narrow = isinstance(body, Embed) and _is_narrow(self.patterns.get(body.language))
        return (body,) if is_narrow or isinstance(body, Literal) else None

    def fused(self, body: Expression) -> Expression:
        tree = _tree(body, self.trees, self.patterns)
        if tree is not None and tree[2] and not isinstance(body, (Literal, Embed, Rule)):
            front: list[Expression] = []  # what is spelt out there is best left as it is: forced, or soon told apart
            rest = body
            if isinstance(body, Sequence):
                spellings = list(map(self.spelling, body.parts))
                first = spellings.index(None)
                front = [part for parts in spellings[:first] for part in parts or ()]
                rest = Sequence(body.parts[first:]) if first else body
            automaton = self.automaton(rest)
            if automaton is not None:
                return Sequence((*front, automaton)) if front else automaton
        if isinstance(body, Sequence):
            return Sequence(tuple(map(self.fused, body.parts)))
        if isinstance(body, Alternation):
            many = len(body.options) >= MANY_OPTIONS
            return Alternation(tuple([self.written_out(option, many) for option in body.options]))
        if isinstance(body, Repeat):
            return Repeat(self.fused(body.item), body.minimum, body.maximum)
        return body

    def written_out(self, option: Expression, many: bool) -> Expression:
        """An option; among many, a rule that is spelt out is written in its place, so that all share beginnings."""
        parts = option.parts if isinstance(option, Sequence) else (option,)
        spelt = self.spelling(parts[0]) if many and parts and isinstance(parts[0], Rule) else None
        return self.fused(option if spelt is None else Sequence((*spelt, *parts[1:])))

    def automaton(self, body: Expression) -> Embed | None:
        if body not in self.automata:
            self.automata[body] = self.made(body)
        return self.automata[body]

    def made(self, body: Expression) -> Embed | None:
        tree = _tree(body, self.trees, self.patterns)
        if tree is None:
            return None
        try:
            dfa = determinise(tree[0], EAGER_WORK)
        except ConstraintTooLarge:
            return None
        return Embed(dfa.minimised() if dfa.num_states <= MINIMISE_UP_TO else dfa)


def _is_narrow(pattern: Node | None) -> bool:
    """Whether it is one of a few characters, such as a letter in either case."""
    return isinstance(pattern, CharSet) and sum(last + 1 - first for first, last in pattern.intervals) <= MAX_NARROW


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
    return any(isinstance(node, Times) and (node.maximum is None or node.maximum > 1) for node in nodes_of(tree))
