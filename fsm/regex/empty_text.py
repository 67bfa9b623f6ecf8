r"""Whether a pattern matches the empty text, about which readers of `\B` differ.

Until Python 3.13 `\B` does not match the empty text; from 3.14 on it does, as in ECMA-262. So the empty text is settled
apart: it is matched if it is in both readings (in "json-schema-possible": in one of them). Any other text is the same
in both. Knows trees and automata.
"""

from __future__ import annotations

from ..text.dfa import Dfa
from ..text.literals import literal_dfa
from .regex_tree import Assertion, Concat, Either, Look, Node, Plain, Times, children


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
    r"""Whether the tree matches the empty text if `\B` does or does not (`inside_word`). Iterative."""
    tasks: list[tuple[Node, bool]] = [(tree, False)]
    done: list[bool] = []
    while tasks:
        node, is_ready = tasks.pop()
        if isinstance(node, Assertion):
            done.append(inside_word if node.kind == "inside_word" else node.kind != "word_boundary")
        elif isinstance(node, (Concat, Either)):
            parts = children(node)
            if not is_ready:
                tasks.append((node, True))
                tasks += [(part, False) for part in parts]
                continue
            found = [done.pop() for _ in parts]
            done.append(all(found) if isinstance(node, Concat) else any(found))
        elif isinstance(node, (Times, Look)):
            if not is_ready:
                tasks += [(node, True), (children(node)[0], False)]
                continue
            inner = done.pop()
            done.append(inner or node.minimum == 0 if isinstance(node, Times) else inner != node.is_negative)
        else:
            done.append(isinstance(node, Plain) and not node.text)
    return done.pop()
