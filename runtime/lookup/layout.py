"""What a look-up and its compiled loop (`runtime/core/lookup.h`) both know: where things lie, and first expectations.

::

    state     head │ own counts: right, expected, by ground │ luck │ draft     int64, float64, float64, int32
    tables    text │ links │ heads │ singles                                   int32
"""

from __future__ import annotations

# The fields of the head. Addresses: of the tables, of what tokens are compared as, of the counts of all texts.
TABLES, FOLDS, COMMON = range(3)
# Room for tokens; bits of a hash; tokens of the text; how many of the request's are in it or were; where what is
# expected stands (or -1), and how many tokens before it agree; where the source ends.
CAPACITY, HASH_MASK, NUM_TOKENS, NUM_SEEN, AT, LENGTH, SOURCE_END = range(3, 10)
HEAD_LEN = 10

# Grounds: how many tokens before agree; 0: none, since the last one took the place of another within a long run.
# How likely a token was right, by ground, before any was: of no great weight, since finding out costs nothing.
FIRST_CHANCES = (0.2, 0.15, 0.35, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9)
FIRST_WEIGHT = 8.0  # observations
NUM_GROUNDS = len(FIRST_CHANCES)
LUCK = 2 * NUM_GROUNDS  # behind the own counts: tokens that were right, and the chances of those expected
DRAFT = HEAD_LEN + LUCK + 2  # where it begins, in words of the state


def tables_len(capacity: int, hash_size: int) -> int:
    """Of the tables together."""
    return 2 * capacity + 1 + 2 * hash_size
