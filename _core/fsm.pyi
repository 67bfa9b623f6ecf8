"""The loops of the constraint engine; sources and what each promises: `fsm/core/*.h`.

Arrays of another dtype or layout than the one given are copied, but not those that are written to: these must have that
dtype, be contiguous and writable. Arrays that are returned are new.

All arguments are checked: a state, token, stack or other index that there is not is IndexError; sizes that do not agree
and arrays with values out of range are ValueError; another type, an array that cannot be written to and an integer of
more than 64 bits are TypeError; where memory runs out it is MemoryError, and what was there is kept. Arrays that are
kept must not be changed afterwards.
"""

import enum
from collections.abc import Callable

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
    """starts, classes of the alphabet in which the i-th of the sorted code points has class i + 1."""

def completions(nodes: _Ints, num_classes: int) -> tuple[_Bools, _Ints]:
    """reach and byte_costs of a `Spelling`, from its template."""

# ---------------------------------------------------------------- tables over characters: core/dfa.h

class Text:
    """The `TextTable` of a text: what the loops read. It keeps the arrays that it was made from.

    start: its first byte state; num_states, num_nodes: of the table and of the template; num_bytes: its memory, the
    arrays of `lay_out_text` not counted.
    """

    @property
    def start(self) -> int: ...
    @property
    def num_states(self) -> int: ...
    @property
    def num_nodes(self) -> int: ...
    @property
    def num_bytes(self) -> int: ...
    def counted(self, minimum: int, maximum: int, least: _Ints, tail: int, widest: int, longest_way: int) -> Text:
        """The same text with bounds on its number of characters.

        least, tail: of `Lengths`, int32[num_states, tail + period]; widest: the bytes of the widest character;
        longest_way: the greatest least length from any state to an end.
        """

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
) -> tuple[Text, _Words, _Ints, _Ints, int]:
    """A text, its live, costs and plain (zeros), and the greatest cost of a state that can end."""

def bits_of_rows(flags: _Bools) -> _Words:
    """bool[num_rows, n] as uint64[num_rows, (n + 63) // 64]."""

class WideKinds:
    """Kinds of characters beyond ASCII (see `wide_kinds`), spelt in UTF-8.

    template: int32[num_nodes, 256], as in `alphabet`; kinds: uint8[num_classes], the bit of the kind that a class of
    the template belongs to; below: uint8[num_nodes], the bits of all kinds that can be completed from a node.
    """

    def __init__(self, template: _Ints, kinds: _Bytes, below: _Bytes) -> None: ...

def character_kinds(nodes: _Ints, reach: _Bools, wide: WideKinds) -> tuple[_Bytes, _Ints]:
    """is_wide and num_ascii of a `TextTable`."""

def copies_of(text: Text) -> tuple[_Ints, _Bools, _Ints, _Ints, _Bools]:
    """Copies of table int32[Q, G], accepting, costs, template int32[N, 256] and reach bool[N, G] of a `TextTable`."""

def trie_except(symbols: _Longs, lens: _Longs, num_classes: int) -> tuple[_Ints, _Bools, _Ints]:
    """table, accepting, distance of a `Dfa` from state 1 that takes all texts but the given, sorted ones.

    symbols: the characters of all texts, each as its class - 1; lens: int64[num_texts].
    """

def base_of_strings(nodes: _Ints, byte_costs: _Ints, is_wide: _Bytes, num_ascii: _Ints) -> _Ints:
    """What `strings_except` needs of the spelling of all JSON strings, in which class 1 is any character."""

def strings_except(texts: bytes, base: _Ints) -> tuple[Text, int]:
    """All JSON strings but some, and the length of the shortest of them.

    texts: the sorted, distinct texts, printable ASCII without backslash, with a quote after each.
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
    """int32[num_units]: 0 where index / 10**decimals is a multiple of numerator / 10**places for all, else -1."""

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

class TokenTrie:
    """A `Trie` (vocabulary/trie.py): its nodes, and what is known of sub-trees (core/vocabulary.h).

    Args:
        joined, offsets: sorted, distinct tokens, one after the other; ids: theirs.
        next_same: int32[num_tokens], the next greater id with the same bytes, or -1.
    """

    def __init__(self, joined: _Bytes, offsets: _Longs, ids: _Ints, next_same: _Ints, wide: WideKinds) -> None: ...
    @property
    def node_bytes(self) -> _Bytes: ...
    @property
    def node_ends(self) -> _Ints: ...
    @property
    def node_tokens(self) -> _Ints: ...
    @property
    def root_nodes(self) -> _Ints: ...

def plain_lens(data: _Bytes, offsets: _Ints, plain0: int, plain1: int, limit: int) -> _Ints:
    """int32[num_tokens]: the number of characters of each token that is plain, else 0; see core/trie.h."""

def token_ends(trie: TokenTrie, text: bytes, begin: int, follow: _Bytes) -> tuple[list[int], bool]:
    """Where the tokens end that stand in a text at a position, and whether some reach beyond it into `follow`.

    Raises:
        IndexError: the position is not in the text.
    """

# ---------------------------------------------------------------- networks: core/laying.h, core/network.h

class NetworkArrays:
    """The arrays of a network that `Positions` has built, laid out without the interpreter's lock (core/laying.h).

    kinds, args, nexts, costs: by node; entries: by number of the rule; loops: entry node, minimum, maximum (-1: none)
    and cost of one item of each; set_bytes: all bytes that the texts of members have; shortest: bytes of the shortest
    text.
    """

    def __init__(self, packed: _Ints, literals: bytes) -> None: ...
    @property
    def kinds(self) -> _Ints: ...
    @property
    def args(self) -> _Ints: ...
    @property
    def nexts(self) -> _Ints: ...
    @property
    def costs(self) -> _Ints: ...
    @property
    def options(self) -> _Ints: ...
    @property
    def entries(self) -> _Ints: ...
    @property
    def loops(self) -> list[tuple[int, int, int, int]]: ...
    @property
    def set_bytes(self) -> _Ints: ...
    @property
    def num_nodes(self) -> int: ...
    @property
    def num_bytes(self) -> int: ...
    @property
    def start(self) -> int: ...
    @property
    def shortest(self) -> int: ...
    def members(self, number: int) -> tuple[list[int], bool]:
        """The nodes at which the members of a set go on once their head is read; whether it has others."""

# ---------------------------------------------------------------- automata: core/automaton.h, core/bound.h

class OutOfWork(Exception):
    """The allowance of this thread is used up; see `Automaton.allow`."""

UNUSED_AUTOMATON_BYTES: int
"""Memory of an automaton before anything is known of it."""

class Vocabulary:
    """What all automata over one vocabulary have in common: tries, tokens, and scratch space for calls."""

    def __init__(
        self,
        whole: TokenTrie,
        rest: TokenTrie,
        token_bytes: _Bytes,
        token_offsets: _Ints,
        plain_rows: _Ints,
        all_tokens: _Ints,
        eos: _Ints,
    ) -> None: ...

class Automaton:
    """The states of one network over one vocabulary: `fsm/automaton/automaton.py` says what they are.

    Calls of one automaton are made one at a time, those of different ones may be made at once. A call releases the
    interpreter's lock once it has taken about a millisecond.

    Args:
        laid, byte_sets: of a `Network`; texts: its texts; is_key: uint8[num_texts], A_REMEMBERED_KEY or AN_ITEM of
            those that have to be remembered, else 0.
        max_bytes: bound on the memory of states and stacks.

    Raises:
        ConstraintTooLarge: the bound is passed, by whatever may find new states.
        OutOfWork: this thread's allowance is used up, likewise. What was found is kept: it may be called again.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        laid: NetworkArrays,
        byte_sets: _Words,
        texts: list[Text],
        is_key: _Bytes,
        max_bytes: int,
    ) -> None: ...

    # questions about states
    @property
    def start(self) -> int: ...
    @property
    def num_states(self) -> int:
        """Number of states found so far, the dead one included."""

    def is_accepting(self, state: int) -> bool:
        """Whether the text may end here (EOS is allowed now)."""

    def has_bytes(self, state: int) -> bool:
        """Whether anything at all may follow."""

    def min_bytes(self, state: int) -> int:
        """A number of bytes that suffices to reach acceptance."""

    def key_place(self, state: int) -> int:
        """NO_KEY, or BEFORE_KEY or IN_KEY: whether a key, or item, to be remembered may begin here, or has begun."""

    def configurations(self, state: int) -> list[tuple[int, int, int]]:
        """(node, text state or place in a trie + 1, stack) of every configuration."""

    def texts(self, state: int) -> tuple[list[tuple[int, int, int, int]], bool]:
        """Where a state stands inside texts, and whether it also stands elsewhere.

        Configurations that stand alike are one entry: (for `after_text`, index of the text, state in it, characters
        read if they are counted).
        """

    def frame(self, stack: int) -> tuple[int, int, int, int, int]:
        """The topmost frame of a stack (`columns.F_RETURN` ..)."""

    def live_bytes(self, state: int) -> _Bytes:
        """uint8[256], 1 for every byte that may follow."""

    def stays_on_plain(self, state: int) -> bool:
        """Whether every token of plain characters (`Vocabulary.is_plain`) leads back to the state."""

    # moving
    def advance(self, state: int, token: int) -> int:
        """The state after a token of the vocabulary; 0 if it is refused.

        Raises:
            IndexError: there is no such token.
        """

    def advance_bytes(self, state: int, data: bytes) -> int:
        """The state after some bytes; 0 if they are refused."""

    def after_text(self, state: int, configuration: int) -> int:
        """The state in which a text of `texts` has ended."""

    def without_texts(self, state: int) -> int:
        """The state without its configurations inside text automata, not accepting; 0 if none is left."""

    def without_items(self, state: int) -> int:
        """The state without its configurations inside items to be remembered, not accepting; 0 if none is left."""

    def without_edges(self, state: int) -> int:
        """The state without its configurations before an edge, not accepting; 0 if none is left."""

    def forced_run(self, state: int, max_bytes: int) -> tuple[bytes, int]:
        """The bytes that must come next whatever is chosen, and the state after them."""

    # rows of tokens, int32[num_words]; a number returned is 1 + the greatest number of bytes to acceptance after any
    # token that may follow, 0 if there is none
    def begin_row(
        self, state: int, max_texts: int, bits: _Ints
    ) -> tuple[int, int, int, list[tuple[int, int, int, int, int]]]:
        """Writes the row of a state that stands in no text, EOS included; else tells all that is to be known of these.

        Returns:
            the number; how many texts there are; the state without texts (0: nothing is left); and of each text, unless
            there are more than max_texts, (text, state in it, characters read, state once it has ended, cost of that).
        """

    def row_in_text(
        self,
        state: int,
        after: int,
        rest: int,
        in_rest: bool,
        inside: _Ints,
        exits: _Ints | None,
        starts: _Ints | None,
        bits: _Ints,
    ) -> int:
        """Writes the row of a state that stands in one text, EOS included; returns the number of tokens that leave it.

        after, rest: as of `begin_row`; in_rest, exits, starts: as of `walk_text` (None: nothing follows the text);
        inside: the tokens that stay in the text.
        """

    def walk(self, state: int, bits: _Ints) -> int:
        """Sets the bits of the tokens that may follow."""

    def walk_exits(self, in_rest: bool, state: int, exits: _Ints, starts: _Ints, bits: _Ints) -> int:
        """The same, only below the given nodes of a trie, at which `state` has been reached."""

    def targets(self, state: int, bits: _Ints) -> _Ints:
        """int32[vocabulary size]: the state after each token whose bit is set, 0 for the others."""

    def walk_text(
        self, text: Text, sub: int, count: int, limit: int, with_exits: bool, bits: _Ints
    ) -> tuple[int, bool, _Ints | None, _Ints | None]:
        """Writes the row of the tokens that stay inside a text and leave at most `limit` bytes to its end.

        Returns:
            the greatest cost met, to within 3 bytes (0 for counted texts); and if with_exits: whether the exits are
            nodes of the trie of the rest, these nodes, which follow a place where the text may end, grouped by their
            byte, and int32[257], where each group begins.
        """

    # how much may be kept and done
    @property
    def max_bytes(self) -> int: ...
    @property
    def lasting_bytes(self) -> int:
        """The memory that cannot be forgotten: all but the rows. It is this that the bound is on."""

    @property
    def num_bytes(self) -> int: ...
    @property
    def num_stacks(self) -> int: ...
    @property
    def num_configurations(self) -> int: ...
    @property
    def num_forgotten(self) -> int:
        """How many rows have given way to others so far."""

    def is_filled(self, share: float) -> bool:
        """Whether more than this share of the bound on memory, or of the numbers of stacks, is used up."""

    def allow(self, work: int) -> None:
        """Lets this thread look at `work` configurations not yet met before it gets `OutOfWork`; see `ENDLESS`.

        100,000 configurations take 10 to 30 ms. One thread at a time may be bounded, and does not bound the others.
        """

    def give_up(self) -> int:
        """What is left of this thread's allowance, or `ENDLESS` if it has none; from now on it has none here."""

    def charge(self, work: int) -> bool:
        """Takes work done elsewhere from the allowance of this thread; whether some is left."""

    def spend(self, work: int) -> None:
        """Before work elsewhere whose result is kept: takes it from the allowance.

        Raises:
            OutOfWork: nothing is left of it.
        """

# ---------------------------------------------------------------- masks: core/mask_rows.h

class Judged:
    """How far the tokens of a row have been judged (`Search.keep_within`): of one automaton and state."""

    def __init__(self) -> None: ...

class CompletionBounds:
    """How many tokens suffice to complete a text; see core/completions.h. One call at a time; the caller ensures it."""

    def __init__(self, automaton: Automaton) -> None: ...
    @property
    def num_bytes(self) -> int: ...
    @property
    def num_breaths(self) -> int:
        """How often a call has let others use the automaton."""

    def known(self, state: int) -> int:
        """What `tokens` has found of a state, or -1."""

    def tokens(self, state: int) -> int:
        """A number of tokens that suffices to reach acceptance. Raises as `Automaton`."""

    def keys(self, state: int) -> int:
        """How many of the keys and strings to be remembered the completion writes. Raises as `Automaton`."""

    def later_keys(self, state: int) -> int:
        """The same without the key that the state is in. Raises as `Automaton`."""

    def keep_within(self, state: int, bits: _Ints, limit: int, most_bytes: int, judged: Judged) -> int:
        """Clears the bits of the tokens, all of which may follow, after which `limit` tokens do not suffice.

        Of those that leave more than most_bytes to the end only those stay for which each byte may be a token. With a
        limit below zero nothing is cleared, and 1 + the greatest `tokens` met is returned. Called again after an
        exception, with the same bits and judged, it goes on where it was. Raises as `Automaton`.
        """

def are_alike(text: Text, left: int, right: int, num_steps: int, max_pairs: int) -> bool:
    """Whether two table states of a text accept, refuse and go on alike for the next num_steps characters.

    False if more than max_pairs pairs would have to be compared.
    """

def hash_row(words: _Ints) -> int:
    """A hash of int32[n], 62 bits."""

def is_same_row(one: _Ints, other: _Ints) -> bool: ...

# ---------------------------------------------------------------- keys and items: core/written.h

class Mode(enum.IntEnum):
    """Where a reader of JSON stands."""

    UNKNOWN = 0
    OUTSIDE = 1
    IN_STRING = 2
    ESCAPE = 3

class KeyEvent(enum.IntEnum):
    OPENS = 1
    CLOSES = 2
    KEY_ENDS = 3
    ITEM_ENDS = 4
    LIST_OPENS = 5
    VALUE_ENDS = 6

_Event = tuple[int, int, int]

def nearest_bytes(automaton: Automaton, state: int, to_key: bool) -> bytes:
    """The shortest completion of a state, at most 131,072 bytes of it; to_key: up to where a key to remember begins.

    Less where what is left is not known byte by byte.
    """

def follow_keys(automaton: Automaton, state: int, data: bytes, has_keys: bool) -> tuple[int, int, list[_Event]]:
    """The state after some bytes (0: refused); where the text of the key in which they end begins, or -1; and events.

    Events are (OPENS or CLOSES, 0, where) for braces and brackets, and (KEY_ENDS or ITEM_ENDS, where its text begins
    within the bytes, or -1 if that is before them, where it ends). Of a list with edges (`AN_EDGE`) its bracket is
    (LIST_OPENS, 0, where), and its commas, and before CLOSES its other bracket, (VALUE_ENDS, 0, where). has_keys:
    whether anything is remembered before them. If not, nothing else is known before the first key or list.
    """

def advance_keys(automaton: Automaton, state: int, token: int, has_keys: bool) -> int:
    """The state after a token; 0: refused. -1 where a key ends, and with keys also where an object begins or ends."""

def is_in_string(automaton: Automaton, state: int) -> bool:
    """Whether a text that stands there is inside a string, keys being remembered."""

def note_mode(automaton: Automaton, state: int, mode: int) -> None:
    """Notes where a reader of JSON stands in a state."""

def keys_left(automaton: Automaton, state: int, texts: list[bytes], with_cuts: bool) -> tuple[bool, list[bytes]]:
    """Whether from a state anything but some keys can be written, and the shortest beginnings after which nothing can.

    Args:
        texts: what is left of the keys, with their quotes, sorted; with_cuts: the beginnings are asked for.

    Raises:
        ValueError: they are not sorted, one is empty, or there are none.
    """

def clear_below(automaton: Automaton, path: bytes, bits: _Ints) -> None:
    """Clears the bits of all tokens that begin with some bytes.

    Raises:
        ValueError: there are none.
    """

# ---------------------------------------------------------------- grammars: core/leaving.h, rule_product.h

def rule_product(
    kinds: _Ints,
    parts: _Ints,
    options: _Ints,
    firsts: _Ints,
    nullable: _Bools,
    bodies: _Ints,
    start: int,
    left_by: Callable[[int, int], list[int]],
    is_harmless: Callable[[int, int], bool],
    seen_by: Callable[[int, int], int],
    check_time: Callable[[], None],
    max_rules: int,
    max_news: int,
) -> tuple[_Ints, _Ints, _Ints, _Ints, list[list[int]]] | None:
    """The rows, children, names and bodies of `WrittenRules`, and sets of obligations by number; None: too many.

    The arrays are those of `LexedNodes`, the functions those of `Terminals`; what these raise is passed on.
    """

# ---------------------------------------------------------------- objects: core/weigh.cpp

def weigh(value: object, array_type: type) -> int:
    """See `weight_of`."""
