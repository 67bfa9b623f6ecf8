"""The columns of the tables that Python and the compiled core share, and the numbers that mean something to both.

The core has the same as structures with named fields: `fsm/core/network.h`, `text_table.h`, `stacks.h`, `laying.h`.
"""

from __future__ import annotations

NEVER = 1 << 29  # a cost that is never paid

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
    N_SHORTEST,
) = range(17)
NETWORK_HEAD = 17
K_BYTE, K_BYTES, K_TEXT, K_SPLIT, K_CALL, K_LOOP, K_RETURN, K_SET, K_KEY = range(9)

# of the tables of `AnyOrder`: what is read of them in Python
A_MEMBERS, A_NUM_MEMBERS, A_NUM_OTHERS = 4, 5, 14
SET_WIDTH = 17
M_ENTRY = 0
MEMBER_WIDTH = 9

# `is_key` of `core.Automaton`: of texts that have to be remembered, and of brackets and commas between such values
A_REMEMBERED_KEY, AN_ITEM, AN_EDGE = 1, 2, 3

JOINT = -(1 << 30)  # as the node of a frame: two stacks at once (`Closure::join`)
NO_KEY, BEFORE_KEY, IN_KEY = range(3)  # of a state: whether it stands before or in a key that has to be remembered

NUM_PLAIN_ROWS = 32  # row n holds the tokens of at most n plain characters; longer ones are never in a plain row
# plain: the printable ASCII characters that a JSON string does not escape, as two words of bits ...
PLAIN0 = 0xFFFFFFFB00000000  # from the space on, without the quote
PLAIN1 = 0x7FFFFFFFEFFFFFFF  # without the backslash and DEL
# ... and everything beyond ASCII but the separators U+2028 and U+2029.
# The kinds of characters beyond ASCII (`wide_kinds`)
WIDE_LETTERS, WIDE_NUMERALS, WIDE_DIGITS, WIDE_SPACES, WIDE_SEPARATORS, WIDE_OTHERS = 1, 2, 4, 8, 16, 32
