"""The terminals of a grammar in Lark's notation, each as one regular expression."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set

from ...errors import InvalidGrammar
from ..compile_time import CompileTime
from ..network.expression import Alternation, Expression, Repeat, Rule
from ..network.walks import children, rule_names, strong_components
from ..regex.regex_tree import Concat, Either, Node, Times
from .notation import grammar_error
from .terminals import Terminal

IGNORED = "%ignore"


def terminals_of(
    trees: Mapping[str, Node],
    bodies: Mapping[str, Expression],
    lazy: Set[str],
    offsets: Mapping[str, int],
    text: str,
    time: CompileTime,
) -> dict[str, Terminal]:
    """Every terminal as one regex tree, those it refers to filled in.

    Args:
        trees: of terminals without a definition: literals, regexes, what is imported.
        bodies: of the others, over the names of terminals.
        lazy: those that take their shortest match, whatever their regexes say.
        offsets: where each stands in the text of the grammar.

    Raises:
        InvalidGrammar: one contains itself, or mixes lazy repetition with greedy.
    """

    def error(message: str, name: str) -> InvalidGrammar:
        return grammar_error(message, text, offsets.get(name, 0))

    found, quantifiers = dict(trees), {name: _quantifiers(name) for name in trees}
    references = {name: dict.fromkeys(rule_names(body)) for name, body in bodies.items()}
    edges = {name: {other: None for other in used if other in references} for name, used in references.items()}
    for component in strong_components(edges):
        name = component[0]
        time.check("", f"grammar, terminal {name}")
        if len(component) > 1 or name in edges[name]:
            raise error(f"the terminal {name!r} contains itself; make it a rule", name)
        found[name] = _tree(bodies[name], found)
        quantifiers[name] = frozenset().union(*(quantifiers[other] for other in references[name]))
        if _repeats(bodies[name]):
            quantifiers[name] |= {"greedy"}
        if not lazy.isdisjoint(references[name]):
            raise error(f"the terminal {name!r} contains one with the option lazy or suffix; make it a rule", name)
        if name in lazy:
            quantifiers[name] = frozenset(("lazy",))
    for name, kinds in time.over(quantifiers.items(), name="grammar, its terminals"):
        is_ignored = "lazy" in kinds and name.startswith(IGNORED)
        if len(kinds) > 1 or is_ignored:
            where = "%ignore" if is_ignored else f"the terminal {name}"
            raise error(f'{where} cannot mix lazy repetition with greedy; write [^"]* for .*?', name)
    return {name: Terminal(name, tree, "lazy" in quantifiers[name], time) for name, tree in found.items()}


def _quantifiers(text: str) -> frozenset[str]:
    """Whether a regular expression in slashes repeats "lazy" or "greedy", wherever it may repeat or not."""
    if not text.startswith("/"):
        return frozenset()
    bare = re.sub(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", "x", text, flags=re.DOTALL)
    found = re.findall(r"(?:[*+]|(?<!\()\?|\{\d*,\d*\})(\??)", bare)
    return frozenset("lazy" if lazy else "greedy" for lazy in found)


def _repeats(body: Expression) -> bool:
    """Whether something in the expression may be written more or less often."""
    pending = [body]
    while pending:
        expression = pending.pop()
        if isinstance(expression, Repeat) and expression.minimum != expression.maximum:
            return True
        pending.extend(children(expression))
    return False


def _tree(body: Expression, trees: dict[str, Node]) -> Node:
    if isinstance(body, Rule):
        return trees[body.name]
    inner = tuple(_tree(child, trees) for child in children(body))
    if isinstance(body, Repeat):
        return Times(inner[0], body.minimum, body.maximum)
    return Either(inner) if isinstance(body, Alternation) else Concat(inner)
