r"""Whether a pattern matches the empty text, about which readers of `\B` differ.

Until Python 3.13 `\B` does not match the empty text; from 3.14 on it does, as in ECMA-262. So the empty text is settled
apart: it is matched if it is in both readings (in "json-schema-possible": in one of them). Any other text is the same
in both. Knows trees and automata.
"""

from __future__ import annotations

from ..text.dfa import Dfa
from ..text.literals import literal_dfa
from .regex_tree import Assertion, Concat, Either, Look, Node, Plain, Times, children, nodes_of


def with_empty_text_settled(dfa: Dfa, pattern: str, tree: Node, *, for_all: bool) -> Dfa:
    """The automaton of a pattern, with the empty text if both readings of it have it (if not `for_all`: one has).

    Args:
        tree: of the pattern, as it was parsed.
    """
    if r"\B" not in pattern:  # nearly always
        return dfa
    readings = _matches_nothing(tree, True), _matches_nothing(tree, False)
    is_taken = all(readings) if for_all else any(readings)
    if is_taken == dfa.accepts(""):
        return dfa
    nothing = literal_dfa([""])
    return dfa.union(nothing) if is_taken else dfa.difference(nothing)


def _matches_nothing(tree: Node, inside_word: bool) -> bool:
    r"""Whether the tree matches the empty text if `\B` does or does not (`inside_word`)."""
    known: dict[int, bool] = {}
    for node in reversed(list(nodes_of(tree))):  # the inner ones first
        inner = [known[id(part)] for part in children(node)]
        if isinstance(node, Assertion):
            found = inside_word if node.kind == "inside_word" else node.kind != "word_boundary"
        elif isinstance(node, (Concat, Either)):
            found = all(inner) if isinstance(node, Concat) else any(inner)
        elif isinstance(node, Times):
            found = inner[0] or node.minimum == 0
        elif isinstance(node, Look):
            found = inner[0] != node.is_negative
        else:
            found = isinstance(node, Plain) and not node.text
        known[id(node)] = found
    return known[id(tree)]
