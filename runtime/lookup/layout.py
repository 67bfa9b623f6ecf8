"""What a look-up and its compiled loop both know: where things lie, and what is expected before anything is seen."""

from __future__ import annotations

# The fields of a head: addresses; room for tokens; bits of a hash; tokens of the text; how many of the request's are in
# it or were; where what is expected stands (or -1), and how many tokens before it agree.
TEXT, LINKS, HEADS, SINGLES, FOLDS, OWN, COMMON, DRAFT = range(8)
CAPACITY, HASH_MASK, NUM_TOKENS, NUM_SEEN, AT, LENGTH = range(8, 14)
HEAD_LEN = 14

# Grounds: how many tokens before agree; 0: none, since the last one took the place of another within a long run.
# How likely a token was right, by ground, before any was: of no great weight, since finding out costs nothing.
FIRST_CHANCES = (0.4, 0.15, 0.35, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9)
FIRST_WEIGHT = 8.0  # observations
