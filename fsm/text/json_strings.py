"""JsonStrings: the texts of an automaton written as JSON strings."""

from __future__ import annotations

import numpy as np

from .alphabet import Spelling
from .dfa import Dfa
from .language import Language


class JsonStrings(Language):
    """The texts of a Dfa written as JSON strings, quotes included, without algebra of its own.

    Each is spelt in exactly one way, that of json.dumps(ensure_ascii=False).

    The table is that of the texts with one more class, the bare quote, and two more states, before the opening
    and after the closing one; escapes are a matter of spelling (`Alphabet.json_spelling`).
    """

    __slots__ = ("texts",)

    def __init__(self, texts: Dfa) -> None:
        num_states, quote = texts.num_states, texts.alphabet.num_classes
        end = num_states
        self.texts = texts
        self.start_state = num_states + 1 if texts.start_state else 0
        self.table = np.zeros((num_states + 2, quote + 1), np.int32)
        self.table[:num_states, :quote] = texts.table
        self.table[:num_states, quote] = np.where(texts.accepting, end, 0)
        self.table[end + 1, quote] = texts.start_state
        self.accepting = np.zeros(num_states + 2, np.bool_)
        self.accepting[end] = True

    @property
    def spelling(self) -> Spelling:
        """How the characters are written: with escapes."""
        return self.texts.alphabet.json_spelling
