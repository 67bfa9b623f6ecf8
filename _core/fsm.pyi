"""The loops of the constraint engine; sources and what each promises: `fsm/core/*.h`.

Arguments of another dtype or layout than the one given are copied. Arrays that are returned are new.
"""

import enum

import numpy as np
import numpy.typing as npt

_Bytes = npt.NDArray[np.uint8]
_Bools = npt.NDArray[np.bool_]
_Ints = npt.NDArray[np.int32]
_Longs = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64]

# ---------------------------------------------------------------- alphabets: core/alphabet.h

UNREACHABLE: int
"""As a number of bytes: no character of the class can be completed."""

def spell(starts: _Ints, classes: _Ints, num_classes: int, of_one_class: _Ints) -> _Ints:
    """The template int32[num_nodes, 256] of an alphabet (`Alphabet`).

    of_one_class: that of the alphabet of one class, from which one that tells only ASCII apart is made; or no rows.
    """

def with_escapes(nodes: _Ints, quote: int) -> _Ints:
    """A template that spells characters as inside a JSON string; the bare quote has the class `quote`."""

def classes_of_sets(firsts: _Ints, lasts: _Ints, set_ends: _Ints) -> tuple[_Ints, _Ints, int, _Ints, _Ints]:
    """The coarsest partition of the code points in which every set is a union of classes.

    firsts, lasts: the inclusive intervals of all sets; set_ends: where those of each set end.

    Returns:
        starts, classes (neighbours not joined) and the number of classes of an `Alphabet`; the classes of all sets, one
        after the other, and where those of each set end.
    """

def common_classes(
    starts: _Ints, classes: _Ints, other_starts: _Ints, other_classes: _Ints
) -> tuple[_Ints, _Ints, int, _Ints, _Ints]:
    """The common refinement of two alphabets, and for each of its classes the class in either."""

def cut_out(points: _Ints) -> tuple[_Ints, _Ints]:
    """starts, classes of the alphabet in which the i-th of the sorted code points has class i + 1, all others one more."""

def completions(nodes: _Ints, num_classes: int) -> tuple[_Bools, _Ints]:
    """reach and byte_costs of a `Spelling`, from its template."""

# ---------------------------------------------------------------- tables over characters: core/dfa.h

class Alive(enum.Enum):
    """Which of a pair of states must be alive for the pair to be alive."""

    BOTH = ...
    EITHER = ...
    FIRST = ...

def product(
    left: _Ints,
    right: _Ints,
    left_class: _Ints,
    right_class: _Ints,
    left_start: int,
    right_start: int,
    alive: Alive,
    max_states: int,
) -> tuple[_Ints, _Ints, _Ints]:
    """The reachable part of the product of two tables, without the interpreter's lock.

    left_class, right_class: int32[num_common], the class in each table of a common class.

    Returns:
        table int32[n, num_common] whose row 0 is dead and row 1 the start; the states int32[n] of the left and of the
        right table. No rows if there were more than max_states.
    """

def meet(
    left: _Ints,
    left_accepts: _Bools,
    right: _Ints,
    right_accepts: _Bools,
    left_class: _Ints,
    right_class: _Ints,
    left_start: int,
    right_start: int,
    max_pairs: int,
) -> int:
    """Whether two automata accept a text in common: 1, 0, or -1 if more than max_pairs pairs would be looked at."""

def takes(
    starts: _Ints, classes: _Ints, table: _Ints, accepting: _Bools, start: int, points: _Ints, lens: _Longs
) -> _Bools:
    """bool[num_texts]: which texts an automaton accepts; points: the code points of all, lens: how many each has."""

def distances(table: _Ints, accepting: _Bools) -> _Ints:
    """int32[num_states]: the least number of steps to an accepting state, -1 if there is no way."""

def trimmed(table: _Ints, accepting: _Bools, start: int) -> tuple[_Ints, _Bools, _Ints, int]:
    """table, accepting, distances and start without the states that cannot be reached or cannot end."""

def joined_classes(table: _Ints) -> tuple[_Ints, _Ints]:
    """Classes with equal columns as one: the new number of each, and the table of the new classes."""

def alike_states(table: _Ints, accepting: _Bools) -> tuple[_Ints, _Ints]:
    """By state a number that is equal for states that accept the same texts, and the first state of each number."""

def least_lengths(table: _Ints, accepting: _Bools, limit: int) -> tuple[_Ints, int]:
    """least int32[num_states, tail + period] and tail of `Lengths`; no rows if there were more columns than limit."""

def minimal_acyclic(symbols: _Ints, offsets: _Longs, num_classes: int, max_cells: int) -> tuple[_Ints, _Bools, int]:
    """The minimal automaton of sorted, distinct texts: table, accepting, start; no rows beyond max_cells entries.

    symbols: the classes (from 1 on) of the characters of all texts; offsets: int64[num_texts + 1].
    """

# ---------------------------------------------------------------- texts laid out: core/text_table.h, other_strings.h

def lay_out_text(
    table: _Ints,
    accepting: _Bools,
    nodes: _Ints,
    reach: _Words,
    node_costs: _Ints,
    is_wide: _Bytes,
    num_ascii: _Ints,
    start: int,
) -> tuple[_Words, _Ints, _Ints, _Longs, int]:
    """live, costs, plain (zeros) and fields of a `TextTable`, and the greatest cost of a state that can end.

    The fields point into all these arrays: keep them.
    """

def bits_of_rows(flags: _Bools) -> _Words:
    """bool[num_rows, n] as uint64[num_rows, (n + 63) // 64]."""

def character_kinds(
    nodes: _Ints, reach: _Bools, wide_nodes: _Ints, kinds: _Bytes, below: _Bytes
) -> tuple[_Bytes, _Ints]:
    """is_wide and num_ascii of a `TextTable`; the last three arguments are those of `WideKinds`."""

def copies_of(fields: _Longs) -> tuple[_Ints, _Bools, _Ints, _Ints, _Bools]:
    """Copies of table int32[Q, G], accepting, costs, template int32[N, 256] and reach bool[N, G] of a `TextTable`."""

def trie_except(symbols: _Longs, lens: _Longs, num_classes: int) -> tuple[_Ints, _Bools, _Ints]:
    """table, accepting, distance of a `Dfa` from state 1 that takes all texts but the given, sorted ones.

    symbols: the characters of all texts, each as its class - 1; lens: int64[num_texts].
    """

def base_of_strings(nodes: _Ints, byte_costs: _Ints, is_wide: _Bytes, num_ascii: _Ints) -> _Ints:
    """What `strings_except` needs of the spelling of all JSON strings, in which class 1 is any character."""

def strings_except(texts: bytes, base: _Ints) -> _Longs:
    """The `TextTable` of all JSON strings but some: its fields, the length of the shortest string, and its arrays.

    texts: the sorted, distinct texts, printable ASCII without backslash, with a quote behind each. The fields point into
    the array itself and into base: keep both.
    """

# ---------------------------------------------------------------- patterns: core/subsets.h

class Subsets(enum.Enum):
    """How a subset construction ended."""

    DONE = ...
    TOO_MANY_STATES = ...
    TOO_MUCH_WORK = ...

def subset_construction(
    kinds: _Ints,
    args: _Ints,
    next_nodes: _Ints,
    others: _Ints,
    universal: _Bools,
    has_class: _Bools,
    max_states: int,
    max_work: int,
) -> tuple[_Ints, _Bools, Subsets]:
    """table, accepting of the graph of an `Nfa` without assertions, without the interpreter's lock.

    universal: bool[num_nodes], nodes from which everything is accepted; has_class: bool[num_sets, num_classes].
    """

# ---------------------------------------------------------------- numbers: core/decimals.h

def comparison(
    whole: _Bytes,
    fraction: _Bytes,
    side: int,
    wanted: _Bytes,
    with_point: bool,
    sign_class: int,
    point_class: int,
    zero_class: int,
) -> tuple[_Ints, _Bools]:
    """table, accepting of the decimal texts in one of the wanted relations (less, equal, greater) to a bound.

    whole, fraction: its digits before and after the point; side: its sign. State 1 is the first.
    """

def tried(numerator: int, places: int, decimals: int, num_units: int) -> _Ints:
    """int32[num_units]: 0 where index / 10**decimals is a multiple of numerator / 10**places for all readers, else -1."""

def grouped(numbers: _Ints) -> tuple[_Ints, _Ints]:
    """Equal rows of ten as one kind: the kinds int32[num_kinds, 10], and the kind of each row of int32[10 * n]."""

# ---------------------------------------------------------------- tries: core/literal_trie.h, core/trie.h

def literal_trie(
    data: bytes, lens: _Longs, end: int, first_node: int, first_option: int
) -> tuple[_Longs, _Longs, _Longs, _Longs]:
    """Nodes of a network that together spell exactly these sorted, distinct literals; see core/literal_trie.h.

    Returns:
        nodes [n, 3] (kind, arg, next), spans [.., 2] of `data` of the nodes of kind K_BYTE, options of splits, entries.
    """

def flatten(joined: _Bytes, offsets: _Longs, ids: _Ints) -> tuple[_Bytes, _Bytes, _Ints, _Ints]:
    """data, depths, ends and tokens of a `Trie` of sorted, distinct tokens."""

def summarise(
    data: _Bytes,
    depths: _Bytes,
    ends: _Ints,
    tokens: _Ints,
    next_same: _Ints,
    wide_nodes: _Ints,
    kinds: _Bytes,
    below: _Bytes,
) -> tuple[_Ints, _Words, _Ints, _Ints, _Bytes]:
    """summary_of, summaries, ordered, firsts and lens of a `Trie`; the last three arguments are those of `WideKinds`."""

def plain_lens(data: _Bytes, offsets: _Ints, plain0: int, plain1: int, limit: int) -> _Ints:
    """int32[num_tokens]: the number of characters of each token that is plain, else 0; see core/trie.h."""

def token_ends(
    data: _Bytes,
    depths: _Bytes,
    ends: _Ints,
    tokens: _Ints,
    roots: _Ints,
    text: bytes,
    begin: int,
    follow: _Bytes,
) -> tuple[list[int], bool]:
    """Where the tokens end that stand in a text at a position, and whether some reach beyond it into `follow`.

    Raises:
        IndexError: the position is not in the text.
    """
