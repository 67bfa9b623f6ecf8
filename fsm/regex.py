"""Regular expressions as automata over text.

`regex_to_dfa` is the one door. A pattern means a set of whole texts: with `search=False` those that match from end
to end, with `search=True` (JSON Schema's `pattern`) those in which a match occurs somewhere. Anchors, word
boundaries and look-arounds are exact in either reading (see `nfa.py`); dialects are described in
`regex_syntax.py`. Results are cached by (pattern, search, dialect) and shared.
"""

from __future__ import annotations

import functools

from ..errors import ConstraintTooLarge
from .dfa import Dfa
from .nfa import ANY_TEXT, determinise
from .regex_syntax import Assertion, Concat, Dialect, Either, Node, parse

MINIMISE_UP_TO = 2_000  # states; beyond that a smaller table is not worth the time


@functools.lru_cache(maxsize=1024)
def regex_to_dfa(pattern: str, *, search: bool = False, dialect: Dialect = "json-schema") -> Dfa:
    """The texts that match a pattern, as an automaton over UTF-8 bytes.

    Raises:
        InvalidRegex: it does not parse, or is not regular (backreference ...); `pointer` is `"offset 12"`.
        ConstraintTooLarge: the automaton would pass its bounds; raised within about a second.
    """
    tree = anchored(parse(pattern, dialect), search=search)
    try:
        dfa = determinise(tree)
    except ConstraintTooLarge as error:
        shown = pattern if len(pattern) <= 80 else pattern[:77] + "..."
        raise ConstraintTooLarge(f"pattern {shown!r}: {error}", pointer=error.pointer) from None
    return dfa.minimised() if dfa.num_states <= MINIMISE_UP_TO else dfa


def anchored(tree: Node, *, search: bool) -> Node:
    """The tree for whole texts: outer ^ and $ are dropped, and under `search` their absence becomes "any text"."""
    groups: dict[tuple[bool, bool], list[Node]] = {}
    for option in tree.options if isinstance(tree, Either) else (tree,):
        body, starts, ends = _without_anchors(option)
        groups.setdefault((starts or not search, ends or not search), []).append(body)
    options: list[Node] = []
    for (starts, ends), bodies in groups.items():
        body = bodies[0] if len(bodies) == 1 else Either(tuple(bodies))
        before, after = () if starts else (ANY_TEXT,), () if ends else (ANY_TEXT,)
        options.append(Concat((*before, body, *after)) if before or after else body)
    return options[0] if len(options) == 1 else Either(tuple(options))


def _without_anchors(option: Node) -> tuple[Node, bool, bool]:
    parts = list(option.parts) if isinstance(option, Concat) else [option]
    starts = ends = False
    while parts and isinstance(parts[0], Assertion) and parts[0].kind == "start":
        starts = True
        parts.pop(0)
    while parts and isinstance(parts[-1], Assertion) and parts[-1].kind == "end":
        ends = True
        parts.pop()
    return parts[0] if len(parts) == 1 else Concat(tuple(parts)), starts, ends
