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

from collections.abc import Iterable, Mapping
from functools import cached_property
from struct import pack

import numpy as np
import numpy.typing as npt

from ..._core import fsm as core
from ...errors import ConstraintTooLarge, EmptyLanguage
from ..columns import K_BYTE, NEVER
from ..compile_time import NO_LIMIT, CompileTime
from ..text.alphabet import Ints
from ..text.text_table import TextTable
from .expression import Grammar
from .positions import MAX_NODES, MAX_SHORTEST, Positions, too_large

NAME_BYTES = 200  # of a rule and its number


class Network:
    """See the module's docstring. Immutable.

    Args:
        laid: all arrays, in the core.
        byte_sets: uint64[num_sets, 4].
        texts: the text automata.
        rule_numbers: the numbers of the rules by name.
        key_texts: which of the texts have to be remembered: keys (`Embed.is_key`) and items.
        item_texts: which of them are items (`Embed.is_item`).
        edge_texts: which are brackets and commas of a list whose items must differ (`Embed.is_edge`).
        owes_keys: whether several of them may have to be written (`Embed.is_owed`).

    `num_bytes`: memory of the arrays, and roughly of the names.
    `start` is the entry node. Arrays are copied from the core on demand: kind, arg, next_node, cost (by node),
    options; and loops: entry node, minimum, maximum (-1: none) and cost of one item of each.
    """

    def __init__(
        self,
        laid: core.NetworkArrays,
        byte_sets: npt.NDArray[np.uint64],
        texts: tuple[TextTable, ...],
        rule_numbers: Mapping[str, int],
        key_texts: tuple[int, ...] = (),
        item_texts: tuple[int, ...] = (),
        owes_keys: bool = False,
        edge_texts: tuple[int, ...] = (),
    ) -> None:
        self.laid = laid
        self.byte_sets = byte_sets
        self.texts = texts
        self.key_texts = key_texts
        self.item_texts = item_texts
        self.owes_keys = owes_keys
        self.edge_texts = edge_texts
        self.rule_numbers = rule_numbers
        self.num_bytes: int = laid.num_bytes + byte_sets.nbytes + NAME_BYTES * len(rule_numbers)

    @property
    def start(self) -> int:
        return self.laid.start

    @cached_property
    def kind(self) -> Ints:
        return self.laid.kinds

    @cached_property
    def arg(self) -> Ints:
        return self.laid.args

    @cached_property
    def next_node(self) -> Ints:
        return self.laid.nexts

    @cached_property
    def cost(self) -> Ints:
        return self.laid.costs

    @cached_property
    def options(self) -> Ints:
        return self.laid.options

    @cached_property
    def loops(self) -> list[tuple[int, int, int, int]]:
        return self.laid.loops

    @property
    def num_nodes(self) -> int:
        return self.laid.num_nodes

    @property
    def entries(self) -> dict[str, int]:
        """The entry node of every rule by its name."""
        entries = self.laid.entries.tolist()
        return {name: entries[number] for name, number in self.rule_numbers.items()}


def build_network(grammar: Grammar, compile_time: CompileTime = NO_LIMIT, max_bytes: int | None = None) -> Network:
    """Compiles a grammar, in a certain time if one is given, to a network of at most `max_bytes`.

    No rule may begin with itself (`grammars/left_recursion.py`): the states of such a rule have endless stacks, so that
    an automaton refuses to make them.

    Raises:
        InvalidGrammar: a rule is referred to that does not exist.
        EmptyLanguage: no text at all satisfies the start rule.
        ConstraintTooLarge: more than 2**20 positions or too many bytes, no text short enough to be written, or the time
            is over.
    """
    made, name = Positions(grammar, compile_time), grammar.start
    try:
        while made.pending_rules:
            name = made.pending_rules.pop()
            compile_time.check_here()
            made.build_rule(name)
        name = grammar.start
        compile_time.check_here()
        literals = b"".join(made.literals)
        if len(made.kind) + len(literals) - len(made.literals) > MAX_NODES:
            name = _largest_rule(made)
            raise too_large()
    except ConstraintTooLarge as error:
        raise _placed(grammar, name, str(error)) from None
    packed = _packed(made)
    # `struct` takes a third of the time that any way from a list to an array takes
    laid = core.NetworkArrays(np.frombuffer(bytearray(pack(f"{len(packed)}i", *packed)), np.int32), literals)
    byte_sets = _words_of(made.byte_sets) if made.byte_sets else _NO_BYTE_SETS
    texts, item_texts = tuple(made.text_tables), tuple(made.item_texts.values())
    key_texts, edges = (*made.key_texts.values(), *item_texts), tuple(made.edge_texts.values())
    network = Network(laid, byte_sets, texts, made.numbers, key_texts, item_texts, made.owes_keys, edges)
    shortest = laid.shortest
    if shortest >= NEVER:
        raise EmptyLanguage("nothing at all satisfies the constraint")
    if shortest > MAX_SHORTEST:
        message = f"the shortest text that can stand here has more than {MAX_SHORTEST >> 20} MiB; use smaller counts"
        raise _placed(grammar, _innermost_long_rule(network), message)
    if max_bytes is not None and network.num_bytes > max_bytes:
        message = (
            f"the constraint takes {network.num_bytes >> 10} KiB, and may take {max_bytes >> 10} KiB; no part has "
            "more positions than this one: make it smaller, or raise max_constraint_bytes"
        )
        raise _placed(grammar, _largest_rule(made), message)
    return network


def _placed(grammar: Grammar, rule: str, message: str) -> ConstraintTooLarge:
    """The error with the place that a rule comes from: a JSON pointer if the grammar knows one, else its name."""
    pointer = "" if grammar.pointer_of is None else grammar.pointer_of(rule)
    place = f"rule {rule}" if grammar.pointer_of is None else pointer or "/"
    return ConstraintTooLarge(f"{place}: {message}", pointer=pointer)


def _largest_rule(made: Positions) -> str:
    """The rule with the most positions; each byte of its literals is one."""
    names = {number: name for name, number in made.numbers.items()}
    lens = iter(map(len, made.literals))
    largest, most = "", -1
    for number, first, end in zip(made.order, made.firsts, [*made.firsts[1:], len(made.kind)], strict=True):
        num_positions = sum(next(lens) if kind == K_BYTE else 1 for kind in made.kind[first:end])
        if num_positions > most:
            largest, most = names[number], num_positions
    return largest


def _innermost_long_rule(network: Network) -> str:
    """Of the rules whose shortest text is too long the one whose text is shortest, of equal ones the last one found.

    Rules are found before those that they call, so most of the time it calls none of the others. Lengths that pass all
    bounds are equal.
    """
    lens = {name: int(network.cost[entry]) for name, entry in network.entries.items()}
    return min((name for name in reversed(lens) if MAX_SHORTEST < lens[name] < NEVER), key=lens.__getitem__)


def _packed(made: Positions) -> list[int]:
    """Everything but the bytes of the literals, in the order in which `lay_out` reads it (`fsm/core/laying.h`)."""
    sets = made.sets
    packed = [len(made.kind), len(made.literals), len(made.options), len(made.loops), len(made.entries)]
    packed += (len(made.text_tables), sets.num_sets, len(sets.required), len(sets.relations))
    packed += made.kind
    packed += made.arg
    packed += made.next_node
    packed += map(len, made.literals)
    packed += made.options
    for loop in made.loops:
        packed += loop
    packed += made.entries
    packed += made.firsts
    packed.append(len(made.kind))
    packed += made.order
    packed += [text.min_bytes for text in made.text_tables]
    packed += sets.sets
    packed += sets.required
    packed += sets.relations
    return packed


def _words_of(masks: Iterable[int]) -> npt.NDArray[np.uint64]:
    """uint64[num_masks, 4]: the bits of each mask."""
    return np.frombuffer(bytearray().join([mask.to_bytes(32, "little") for mask in masks]), np.uint64).reshape(-1, 4)


_NO_BYTE_SETS = _words_of([0])
