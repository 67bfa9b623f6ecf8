"""The subset construction for graphs without assertions: a state is a set of positions.

Sizes and effort are bounded (`MAX_STATES`, `MAX_WORK`); beyond them ConstraintTooLarge is raised, promptly.
"""

from __future__ import annotations

import numpy as np

from ..._core import fsm as core
from ..._core.fsm import Subsets
from ...errors import ConstraintTooLarge
from ..compile_time import CompileTime
from ..text.alphabet import Alphabet
from ..text.dfa import Dfa
from ..text.unicode_sets import Intervals
from .nfa import Nfa, all_accepting

MAX_STATES = 20_000
MAX_WORK = 20_000_000  # positions looked at while the subsets are built; a fraction of a second
WORK_PER_SECOND = 25_000_000
MAX_PAIRS = 1 << 24  # of a set and a class of characters that it holds, or not


def plain_dfa(nfa: Nfa, compile_time: CompileTime, max_work: int = MAX_WORK) -> Dfa:
    """The Dfa of a graph of SET, SPLIT and MATCH nodes."""
    _refuse_too_many(nfa.sets)
    alphabet, members = Alphabet.from_sets(nfa.sets)
    has_class = np.zeros((len(nfa.sets), alphabet.num_classes), np.bool_)
    for number, classes in enumerate(members):
        has_class[number, classes] = True
    universal = np.zeros(len(nfa.kind), np.bool_)
    universal[list(all_accepting(nfa))] = True
    kind, arg, next_node, other = (np.array(x, np.int32) for x in (nfa.kind, nfa.arg, nfa.next_node, nfa.other))
    compile_time.check_here()
    allowed = compile_time.most_work(max_work, WORK_PER_SECOND)
    table, accepting, status = core.subset_construction(
        kind, arg, next_node, other, universal, has_class, MAX_STATES, allowed
    )
    if status == Subsets.TOO_MANY_STATES:
        raise ConstraintTooLarge(f"the pattern needs more than {MAX_STATES} states; simplify it")
    if status == Subsets.TOO_MUCH_WORK and allowed < max_work:
        raise ConstraintTooLarge(compile_time.complaint)
    if status == Subsets.TOO_MUCH_WORK:
        raise ConstraintTooLarge("the pattern takes too long to determinise; simplify it")
    return Dfa.from_table(alphabet, table, accepting, min(1, len(table) - 1))


def _refuse_too_many(sets: list[Intervals]) -> None:
    """ConstraintTooLarge if a table of all sets and all classes of characters that they distinguish would be."""
    if 2 * len(sets) * sum(map(len, sets)) <= MAX_PAIRS:  # nearly always
        return
    edges = {edge for intervals in sets for first, last in intervals for edge in (first, last + 1)}
    if len(sets) * len(edges) > MAX_PAIRS:
        raise ConstraintTooLarge(
            f"{len(sets)} different classes of characters tell {len(edges)} kinds of them apart; use fewer classes"
        )
