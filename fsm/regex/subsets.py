"""The subset construction for graphs without assertions: a state is a set of positions.

Sizes and effort are bounded (`MAX_STATES`, `MAX_WORK`); beyond them ConstraintTooLarge is raised, promptly.
"""

from __future__ import annotations

import numpy as np

from ...errors import ConstraintTooLarge
from ..text.alphabet import Alphabet
from ..text.dfa import Dfa
from .nfa import Nfa, all_accepting
from .nfa_kernels import TOO_MANY_STATES, TOO_MUCH_WORK, subset_construction

MAX_STATES = 20_000
MAX_WORK = 20_000_000  # positions looked at while the subsets are built; a fraction of a second


def plain_dfa(nfa: Nfa, max_work: int = MAX_WORK) -> Dfa:
    """The Dfa of a graph of SET, SPLIT and MATCH nodes."""
    alphabet, members = Alphabet.from_sets(nfa.sets)
    has_class = np.zeros((len(nfa.sets), alphabet.num_classes), np.bool_)
    for number, classes in enumerate(members):
        has_class[number, classes] = True
    universal = np.zeros(len(nfa.kind), np.bool_)
    universal[list(all_accepting(nfa))] = True
    kind, arg, next_node, other = (np.array(x, np.int32) for x in (nfa.kind, nfa.arg, nfa.next_node, nfa.other))
    table, accepting, status = subset_construction(
        kind, arg, next_node, other, universal, has_class, MAX_STATES, max_work
    )
    if status == TOO_MANY_STATES:
        raise ConstraintTooLarge(f"the pattern needs more than {MAX_STATES} states; simplify it")
    if status == TOO_MUCH_WORK:
        raise ConstraintTooLarge("the pattern takes too long to determinise; simplify it")
    return Dfa.from_table(alphabet, table, accepting, min(1, len(table) - 1))
