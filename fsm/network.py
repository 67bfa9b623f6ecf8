"""Network: a grammar compiled to flat arrays, one node per position.

::

    kind    arg                    next            meaning
    BYTE    the byte               node            read it
    BYTES   index into byte_sets   node            read one byte of the set
    TEXT    index into texts       node            run that text automaton, go on wherever it accepts
    SPLIT   first index, options   num_options     any of the nodes options[arg : arg + next]
    CALL    entry node of a rule   node            write the rule, then go on at next
    LOOP    index into loops       node            the item entry .. RETURN, minimum to maximum times, then next
    SET     index into sets        node            at least one of its members, in any order, then next
    KEY     index into sets        -               where a member of the set begins, and inside its text
    RETURN  -                      -               the rule (or one turn of the loop, or one member) is done

`cost[node]` is the least number of bytes from the node to the end of its rule, `NEVER` if it cannot end: such nodes
are unreachable by construction of the automaton, so whatever it lets through can be completed.
It does not know tokens. `positions` builds the nodes, one compiled loop lays them out; linear in the size of the
expressions.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import ConstraintTooLarge, EmptyLanguage, InvalidGrammar
from .alphabet import Ints
from .any_order import SetTables
from .expression import Grammar
from .memory import NEVER
from .network_kernels import lay_out
from .positions import (
    BYTE,
    BYTES,
    CALL,
    KEY,
    LOOP,
    MAX_NODES,
    MAX_SHORTEST,
    RETURN,
    SET,
    SPLIT,
    TEXT,
    Positions,
    too_large,
)
from .text_table import TextTable

__all__ = [
    "BYTE", "BYTES", "CALL", "KEY", "LOOP", "NEVER", "RETURN", "SET", "SPLIT", "TEXT", "Network", "build_network",
]  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """See the module's docstring. Immutable; `start` is the entry node."""

    kind: Ints
    arg: Ints
    next_node: Ints
    cost: Ints
    options: Ints
    loops: Ints  # int32[num_loops, 4]: entry node, minimum, maximum (-1: none), cost of one item
    byte_sets: npt.NDArray[np.uint64]  # [num_sets, 4]
    texts: tuple[TextTable, ...]
    sets: SetTables
    start: int
    rule_numbers: Mapping[str, int]
    rule_entries: Ints  # int32[num_rules], by number of the rule

    @property
    def num_nodes(self) -> int:
        return len(self.kind)

    @property
    def num_bytes(self) -> int:
        """Memory of the arrays, and roughly of the names."""
        arrays = (self.kind, self.arg, self.next_node, self.cost, self.options, self.loops, self.byte_sets)
        own = sum(array.nbytes for array in (*arrays, self.rule_entries)) + 200 * len(self.rule_numbers)
        return own + self.sets.num_bytes

    @property
    def entries(self) -> dict[str, int]:
        """The entry node of every rule by its name."""
        return {name: int(self.rule_entries[number]) for name, number in self.rule_numbers.items()}


def build_network(grammar: Grammar) -> Network:
    """Compiles a grammar.

    Raises:
        InvalidGrammar: a rule is referred to that does not exist, or a rule begins with itself.
        EmptyLanguage: no text at all satisfies the start rule.
        ConstraintTooLarge: more than 2**20 positions, or no text short enough to be written.
    """
    made = Positions(grammar)
    while made.pending_rules:
        made.build_rule(made.pending_rules.pop())
    data = b"".join(made.literals)
    if len(made.kind) + len(data) - len(made.literals) > MAX_NODES:
        raise too_large()
    sets = made.sets.tables()
    kind, arg, next_node, cost, options, loops, entries, cycles = lay_out(
        np.frombuffer(array("i", _packed(made)), np.int32),
        np.frombuffer(data or b"\0", np.uint8),
        sets.sets,
        sets.members,
        sets.lists,
        made.sets.num_sets,
    )
    start = int(entries[0])
    if cost[start] >= NEVER:
        raise EmptyLanguage("nothing at all satisfies the constraint")
    if cost[start] > MAX_SHORTEST:
        raise ConstraintTooLarge(f"the shortest text has more than {MAX_SHORTEST >> 20} MiB; use smaller counts")
    if len(cycles):
        _refuse_left_recursion(list(made.numbers), cycles.tolist())
    byte_sets = _words_of(made.byte_sets) if made.byte_sets else _NO_BYTE_SETS
    texts = tuple(made.text_tables)
    return Network(kind, arg, next_node, cost, options, loops, byte_sets, texts, sets, start, made.numbers, entries)


def _packed(made: Positions) -> list[int]:
    """Everything but the bytes of the literals, in the order in which `lay_out` reads it."""
    options = made.options or [0]
    text_costs = [text.min_bytes for text in made.text_tables]
    packed = [len(made.kind), len(made.literals), len(options), len(made.loops), len(made.entries), len(text_costs)]
    packed += made.kind
    packed += made.arg
    packed += made.next_node
    packed += map(len, made.literals)
    packed += options
    for loop in made.loops:
        packed += loop
    packed += made.entries
    packed += made.firsts
    packed.append(len(made.kind))
    packed += made.order
    packed += text_costs
    return packed


def _words_of(masks: Iterable[int]) -> npt.NDArray[np.uint64]:
    """uint64[num_masks, 4]: the bits of each mask."""
    return np.array([[mask >> shift & (2**64 - 1) for shift in (0, 64, 128, 192)] for mask in masks], np.uint64)


_NO_BYTE_SETS = _words_of([0])


def _refuse_left_recursion(names: list[str], calls: list[list[int]]) -> None:
    """InvalidGrammar: a rule can begin with itself; its states would have endless stacks.

    Args:
        names: of the rules, by number.
        calls: (rule, rule that it may begin with), so that every rule here begins with another one here.
    """
    begins_with = {caller: called for caller, called in calls}
    path = {calls[0][0]: None}
    rule = begins_with[calls[0][0]]
    while rule not in path:
        path[rule] = None
        rule = begins_with[rule]
    cycle = [names[number] for number in [*list(path)[list(path).index(rule) :], rule]]
    raise InvalidGrammar(
        f"the rule {names[rule]!r} can begin with itself ({' -> '.join(cycle)}); "
        "write the repetition with * or +, or put the recursion last"
    )
