"""The memory of an automaton, as its compiled loops see it: one int64 array of counters and addresses.

A call from Python into a compiled loop passes this one array instead of twenty, which costs half a microsecond
instead of five. The names below are its indices. `Automaton` owns the arrays behind the addresses and keeps them
alive; nothing here checks a bound.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray  # type: ignore[attr-defined]
from numba.core import cgutils, types
from numba.extending import intrinsic

from .compiled import inner_kernel, kernel

NEED_SPACE = -1
NEED_WORK = -2
TOO_LARGE = -3
OUT_OF_WORK = -4

(
    NUM_STACKS,
    CAP_STACKS,
    STACK_MASK,
    NUM_STATES,
    CAP_STATES,
    STATE_MASK,
    POOL_USED,
    CAP_POOL,
    NUM_ROWS,
    CAP_ROWS,
    SEEN_MASK,
    CAP_WORK,
) = range(12)
(
    KIND,
    ARG,
    NEXT,
    COST,
    OPTIONS,
    LOOPS,
    BYTE_SETS,
    TEXTS,
    STACKS,
    STACK_SLOTS,
    STATES,
    STATE_SLOTS,
    POOL,
    ROWS,
    SEEN_KEYS,
    SEEN_STAMPS,
    WORK,
    FOUND,
) = range(16, 34)
# the tables of `AnyOrder`, and room to unpack the frames of one (see `any_order`)
SETS, MEMBERS, TRIES, EDGES, LISTS, SCRATCH = range(34, 40)
# fields of a trie, counted from WHOLE (the trie of all tokens) or REST (of those that no plain row covers)
(
    TRIE_BYTES,
    TRIE_DEPTHS,
    TRIE_ENDS,
    TRIE_TOKENS,
    TRIE_ROOTS,
    TRIE_SIZE,
    SUMMARY_OF,
    SUMMARIES,
    TRIE_ORDERED,
    TRIE_FIRSTS,
    TRIE_LENS,
) = range(11)
WHOLE, REST = 40, 51
NEXT_SAME, TOKEN_BYTES, TOKEN_OFFSETS, ALL_TOKENS, PLAIN_ROWS, NUM_WORDS, PATH = range(62, 69)
ALLOWANCE = 12  # configurations that may still be looked at; see `Room.allow`
# rows that there may be; the row that gives way next once there are as many; how many have given way
MAX_ROWS, NEXT_ROW, NUM_FORGOTTEN = 13, 14, 15
# the address of `automaton_kernels.transition`, its verbs, and the address of this memory itself
TRANSITION, THIS = 69, 70
READ, ENTER, WITHOUT_TEXTS, AFTER_TEXT = range(4)
HAS_COUNTS = 71  # whether stacks may differ in counts only
MEMORY_SIZE = 72
# PATH holds, by depth of the trie, a state, a count and the node of the template; then flags by class,
# a few states, and marks by state
COUNT_PATH, INNER_PATH, FLAGS, REGION, MARKS, PATH_SIZE = 256, 512, 1024, 5120, 5184, 5184 + 256

# the head of a network's data: where each array begins (and the last one ends), and a few numbers; see `network`
(
    N_KIND,
    N_ARG,
    N_NEXT,
    N_COST,
    N_OPTIONS,
    N_LOOPS,
    N_ENTRIES,
    N_SETS,
    N_MEMBERS,
    N_TRIES,
    N_EDGES,
    N_LISTS,
    N_END,
    N_START,
    N_NUM_SETS,
    N_MAX_WORDS,
    N_NUM_CYCLES,
    N_SHORTEST,
) = range(18)
NETWORK_HEAD = 18

# columns of a state record and of a stack record
S_OFFSET, S_SIZE, S_ACCEPTS, S_COST, S_ROW, S_BYTE, S_NEXT, S_KEY = range(8)
STATE_WIDTH = 8
PLACE_BITS = 2  # of S_KEY: NO_KEY, BEFORE_KEY or IN_KEY; above them where a reader of JSON stands (`written_kernels`)
PLACE_MASK = (1 << PLACE_BITS) - 1
F_RETURN, F_COUNT, F_OWED, F_PARENT, F_COST = range(5)
STACK_WIDTH = 5
ROW_WIDTH, ROW_OWNER = 257, 256  # of a row: a target by byte, and the state it belongs to
SEGMENT_BITS = 4
SEGMENT_ROWS = 1 << SEGMENT_BITS  # rows that lie next to each other; ROWS has the address of each such segment

# columns of the tables of `AnyOrder`
(
    A_NODE,
    A_KEY,
    A_SEPARATOR,
    A_SEPARATOR_COST,
    A_MEMBERS,
    A_NUM_MEMBERS,
    A_NUM_TEXTS,
    A_NUM_WORDS,
    A_IS_COUNTED,
    A_SPARE,
    A_MISSING,
    A_WORDS,
    A_TRIE,
    A_OTHERS,
    A_NUM_OTHERS,
    A_OTHERS_COST,
) = range(16)
SET_WIDTH = 16
(
    M_ENTRY,
    M_HEAD,
    M_COST,
    M_IS_REQUIRED,
    M_CHEAP,
    M_IMPLIED,
    M_NUM_IMPLIED,
    M_EXCLUDED,
    M_NUM_EXCLUDED,
) = range(9)
MEMBER_WIDTH = 9
K_FIRST, K_END, K_EDGES, K_NUM_EDGES, K_DEPTH, K_ENDS = range(6)
TRIE_WIDTH = 6
WORD_BITS = 31  # members per frame
UNBOUNDED = 1 << 30  # as number of members that may still be written

K_BYTE, K_BYTES, K_TEXT, K_SPLIT, K_CALL, K_LOOP, K_RETURN, K_SET, K_KEY = range(9)
(
    T_TABLE,
    T_ACCEPTS,
    T_TEMPLATE,
    T_REACH,
    T_LIVE,
    T_COSTS,
    T_NODE_COSTS,
    T_IS_WIDE,
    T_NUM_ASCII,
    T_CLASSES,
    T_NODES,
    T_WORDS,
    T_START,
    T_STATES,
    T_MIN,
    T_MAX,
    T_LEAST,
    T_TAIL,
    T_PERIOD,
    T_WIDEST,
    T_WAY,
    T_PLAIN,
    T_INNER,
    T_IS_KEY,
) = range(24)
TEXT_WIDTH = 24
A_KEY, AN_ITEM = 1, 2  # T_IS_KEY of texts that have to be remembered
NEVER = 1 << 29
SUB_BITS, STACK_BITS = 23, 20  # of a configuration: node, state within a text or place within a set, stack
NODE_SHIFT = SUB_BITS + STACK_BITS
SUB_MASK, STACK_ID_MASK = (1 << SUB_BITS) - 1, (1 << STACK_BITS) - 1
NO_KEY, BEFORE_KEY, IN_KEY = range(3)  # of a state: whether it stands before or in a key that has to be remembered
NO_ROW, NEVER_A_ROW = -1, -2  # of a state: not yet; recomputed each time, since it is hardly ever met again
FIRST_TEXT_STATE = 0  # as text state of a seed: "enter the text"
ENDLESS = 1 << 40
SAFE_SLOTS, SAFE_WIDTH = 256, 6  # states of a walk whose safe characters are kept, by state modulo SAFE_SLOTS
MAX_SAFE_STEPS = 40  # sub-trees deeper than that are walked into until they are shallower
ENDLESS_STEPS = 255
MAX_REGION = 16  # states within which safe characters stay; looked for among at most MAX_REGION_STATES
MAX_REGION_STATES = 256
FIND_SAFE_FROM = 16  # nodes of a sub-tree for which it pays to find out
NUM_PLAIN_ROWS = 32  # row n holds the tokens of at most n plain characters; longer ones are never in a plain row
# plain: the printable ASCII characters that a JSON string does not escape, as two words of bits ...
PLAIN0 = np.uint64(0xFFFFFFFB00000000)  # from the space on, without the quote
PLAIN1 = np.uint64(0x7FFFFFFFEFFFFFFF)  # without the backslash and DEL
# ... and everything beyond ASCII but the separators U+2028 and U+2029.
# The kinds of characters beyond ASCII (`wide_kinds`)
WIDE_LETTERS, WIDE_NUMERALS, WIDE_DIGITS, WIDE_SPACES, WIDE_SEPARATORS, WIDE_OTHERS = 1, 2, 4, 8, 16, 32
ALL_WIDE, PLAIN_WIDE = 63, 63 - WIDE_SEPARATORS
# the third word of a summary: kinds, then the flag, then from these bits on the height and the characters before
HAS_CUT, HEIGHT_SHIFT, BEFORE_SHIFT = 128, 8, 16


def _inttoptr(typing_context: Any, address: Any) -> Any:
    """The address (int64) as a pointer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


pointer: Any = intrinsic(_inttoptr)


@inner_kernel
def i32(address: Any) -> Any:
    return carray(pointer(address), (ENDLESS,), np.int32)


@inner_kernel
def i64(address: Any) -> Any:
    return carray(pointer(address), (ENDLESS,), np.int64)


@inner_kernel
def u64(address: Any) -> Any:
    return carray(pointer(address), (ENDLESS,), np.uint64)


@inner_kernel
def u8(address: Any) -> Any:
    return carray(pointer(address), (ENDLESS,), np.uint8)


@inner_kernel
def row_at(segments: Any, row: Any) -> Any:
    """int32[ROW_WIDTH], a row; `segments` is i64(memory[ROWS])."""
    return i32(segments[row >> SEGMENT_BITS] + (row & (SEGMENT_ROWS - 1)) * (ROW_WIDTH * 4))


@kernel
def place(memory: Any, index: Any, array: Any) -> None:
    """Puts the address of an array into the memory."""
    memory[index] = array.ctypes.data


@kernel
def place_grown(memory: Any, index: Any, array: Any, capacity: Any, added: Any) -> None:
    """Puts the address of an array into the memory that has room for `added` more than before, and says so."""
    memory[index] = array.ctypes.data
    memory[capacity] += added


@kernel
def place_rows(memory: Any, rows: Any) -> None:
    """Adds rows (int32[n * SEGMENT_ROWS * ROW_WIDTH]) to those there is room for."""
    segments = i64(memory[ROWS])
    for begin in range(0, rows.shape[0], SEGMENT_ROWS * ROW_WIDTH):
        segments[memory[CAP_ROWS] >> SEGMENT_BITS] = rows.ctypes.data + begin * 4
        memory[CAP_ROWS] += SEGMENT_ROWS


@kernel
def place_work(memory: Any, capacity: Any, keys: Any, stamps: Any, work: Any, found: Any) -> None:
    """Puts the scratch of closures of at most `capacity` configurations into the memory."""
    memory[SEEN_KEYS], memory[SEEN_STAMPS] = keys.ctypes.data, stamps.ctypes.data
    memory[WORK], memory[FOUND] = work.ctypes.data, found.ctypes.data
    memory[CAP_WORK], memory[SEEN_MASK] = capacity, 4 * capacity - 1
