"""The numbers that mean something to Python and to the compiled core: `fsm/core/network.h`, `states.h`, `stacks.h`."""

from __future__ import annotations

NEVER = 1 << 29  # a cost that is never paid

K_BYTE, K_BYTES, K_TEXT, K_SPLIT, K_CALL, K_LOOP, K_RETURN, K_SET, K_KEY = range(9)

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
