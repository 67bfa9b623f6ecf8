"""Counted: a regular language together with bounds on the number of characters, without a product of automata.

A product with "at most 65,535 characters" would have 65,536 times as many states. Instead the states stay those of
the language, and the number of characters read so far is kept apart from them (on the stack, see `fsm/core/stacks.h`).
What has to be known is whether a state can still reach an end in time, that is: which lengths are left from it. The
lengths from all states together become periodic, so they are kept up to there::

    length      0  1  2  3  4  5  6  7 ...
    least[q]    2  2  2  4  4  6  6  8 ...     the least length >= the column of a text from state q to an end
                |-- tail --|-period-|

Invariant: a state with a count is only entered if an end can be reached from it within the bounds.
It does not know tokens. Exact for every language; cost: a table of states x (tail + period).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..._core import fsm as core
from ..columns import NEVER
from .alphabet import Ints, Spelling
from .dfa import Dfa
from .json_strings import JsonStrings
from .language import Language

MAX_COLUMNS = 4096  # tail + period; beyond that a language is not counted
MAX_CELLS = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class Lengths:
    """The lengths of the texts of a language, from every state; see the module's drawing.

    Attributes:
        least: int32[num_states, tail + period]; NEVER if there is none.
        longest_way: greatest least length from any state to an end.
        greatest_gap: how much longer than asked for the least length may be.
    """

    least: Ints
    tail: int
    period: int
    longest_way: int
    greatest_gap: int

    @classmethod
    def of(cls, language: Dfa | JsonStrings) -> Lengths | None:
        """The lengths of a language, from the language itself if they were made before; None if they do not fit."""
        if "_lengths" not in language.__dict__:
            limit = min(MAX_COLUMNS, MAX_CELLS // len(language.table))
            least, tail = core.least_lengths(language.table, language.accepting, limit)
            found = None
            if len(least):
                gaps = np.where(least < NEVER, least - np.arange(least.shape[1]), 0)
                found = cls(least, tail, least.shape[1] - tail, int(gaps[:, 0].max()), int(gaps.max()))
            language.__dict__["_lengths"] = found
        kept: Lengths | None = language.__dict__["_lengths"]
        return kept

    def from_state(self, state: int, minimum: int) -> int:
        """The least length >= minimum of a text from the state to an end; NEVER if there is none."""
        minimum = max(minimum, 0)
        shift = max(minimum - self.tail, 0) // self.period * self.period
        found = int(self.least[state, minimum - shift])
        return found + shift if found < NEVER else NEVER


class Counted(Language):
    """The texts of a language of at least `minimum` and at most `maximum` characters.

    As a `Language` it is the one that is counted: byte states do not know how many characters were read.

    Args:
        language: where nothing can be entered from which no end can be reached (all others have been trimmed).
        minimum, maximum: bounds on the number of characters (of a JSON string: of what stands between the quotes).
            None: no upper bound.
        lengths: those of the language.

    Make one with `counted`.
    """

    __slots__ = ("language", "lengths", "maximum", "minimum")

    def __init__(self, language: Dfa | JsonStrings, minimum: int, maximum: int | None, lengths: Lengths) -> None:
        quotes = 2 if isinstance(language, JsonStrings) else 0
        self.language = language
        self.minimum = minimum + quotes if minimum else 0
        self.maximum = None if maximum is None else maximum + quotes
        self.lengths = lengths
        self.table, self.accepting = language.table, language.accepting
        self.start_state = 0 if self.is_empty() else language.start_state

    def is_free(self, count: int, num_steps: int) -> bool:
        """Whether the bounds can be forgotten for the next `num_steps` characters."""
        if count < self.minimum:
            return False
        return self.maximum is None or count + num_steps + self.lengths.longest_way <= self.maximum

    def is_far_below(self, count: int, num_steps: int) -> bool:
        """Whether the next `num_steps` characters are so far below the least length that all such counts are alike."""
        is_wide = self.maximum is None or self.maximum - self.minimum >= self.lengths.period
        return is_wide and self.minimum - count - num_steps >= self.lengths.tail

    def most_left(self, count: int) -> int:
        """No token leaves more characters than this to an end, if it is taken after `count` characters."""
        return max(self.minimum - count, 0) + self.lengths.greatest_gap

    def is_empty(self) -> bool:
        """Whether no text at all belongs to the language."""
        most = NEVER - 1 if self.maximum is None else self.maximum
        return self.lengths.from_state(self.language.start_state, self.minimum) > most

    @property
    def spelling(self) -> Spelling:
        """How the characters are written."""
        return self.language.spelling

    def is_accepting(self, state: int) -> bool:
        """Whether the text may end in this byte state, after no characters."""
        return not self.minimum and super().is_accepting(state)


def counted(language: Dfa | JsonStrings, minimum: int, maximum: int | None) -> Counted | None:
    """The texts of a language within bounds on their length; None if its lengths do not fit into a table."""
    lengths = Lengths.of(language)
    return None if lengths is None else Counted(language, minimum, maximum, lengths)
