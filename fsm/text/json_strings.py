"""JsonStrings: the texts of an automaton written as JSON strings."""

from __future__ import annotations

import numpy as np

from .alphabet import Ints
from .dfa import Dfa
from .language import byte_row


class JsonStrings:
    """The texts of a Dfa written as JSON strings, quotes included: a `Language`, without algebra of its own.

    Each is spelt in exactly one way, that of json.dumps(ensure_ascii=False).

    The table is that of the texts with one more class, the bare quote, and two more states, before the opening
    and after the closing one; escapes are a matter of spelling (`Alphabet.json_spelling`).
    """

    __slots__ = ("__dict__", "accepting", "spelling", "start_state", "table", "texts")

    def __init__(self, texts: Dfa) -> None:
        num_states, quote = texts.num_states, texts.alphabet.num_classes
        end = num_states
        self.texts = texts
        self.spelling = texts.alphabet.json_spelling
        self.start_state = num_states + 1 if texts.start_state else 0
        self.table = np.zeros((num_states + 2, quote + 1), np.int32)
        self.table[:num_states, :quote] = texts.table
        self.table[:num_states, quote] = np.where(texts.accepting, end, 0)
        self.table[end + 1, quote] = texts.start_state
        self.accepting = np.zeros(num_states + 2, np.bool_)
        self.accepting[end] = True

    @property
    def start(self) -> int:
        """The first byte state."""
        return self.start_state * len(self.spelling.template)

    def row(self, state: int) -> Ints:
        """int32[256]: the byte state after each byte, 0 where no text of the language goes on so."""
        return byte_row(self.spelling, self.table, state)

    def is_accepting(self, state: int) -> bool:
        """Whether the closing quote has been written."""
        return state == (self.texts.num_states * len(self.spelling.template))
