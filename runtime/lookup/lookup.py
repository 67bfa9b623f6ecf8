"""Look-ups: what may come next because the same tokens were followed by it before, in the prompt or in the output.

Summaries, edits, code, answers about documents and values in JSON copy from what was said. A text that is looked up in
is indexed as it grows, and where its end agrees with an earlier place the tokens that followed there are expected to
follow again (prompt look-up decoding; LZ77 predicts in the same way)::

    … the patient was born in Tolva on 3 May …   {"born": "Tolva       expected:  on 3 May …
                                 ─────                     ─────

A look-up *runs along* whether or not anything is drafted: each token that comes is compared with the one expected, so
how likely a token is right, by the length of the agreement before it, is learnt without drafting one, for this text
and for all together. A draft goes as far as it is worth its rows; on text that repeats nothing none is ever made.

Nor is every token looked at by itself there: while nothing comes of it, the next look is at up to `LONGEST_PAUSE`
tokens together. Cost: to begin takes 8 us and 30 to 90 ns for each token of the prompt, a look 0.5 to 1 us; memory is
16 to 24 bytes for each token there is room for, at most twice as many as there are and `MAX_TOKENS`. Knows tokens and
nothing else.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..._core import runtime as core
from ...fsm.vocabulary.vocabulary import Vocabulary
from .layout import (
    AT,
    DRAFT,
    FIRST_CHANCES,
    FIRST_WEIGHT,
    HEAD_LEN,
    LENGTH,
    NUM_SEEN,
    NUM_TOKENS,
    SOURCE_END,
    tables_len,
)

MAX_TOKENS = 1 << 16  # that are looked up in
FIRST_ROOM = 64  # for tokens to come
LONGEST_PAUSE = 8  # tokens between two looks
PATIENCE = 8  # looks that bring nothing before pauses grow

SOURCE_LENGTH = 8  # the agreement that is granted to the beginning of a source


class Lookups:
    """The look-ups of an engine, and what all texts together have taught.

    Args:
        size: of the ids that a token may have.
        max_draft_tokens: of one draft.

    Attributes:
        counts: by ground, how many of the tokens that were expected have come, and behind that, how many were expected.
            They fade, a little with each.
    """

    def __init__(self, vocabulary: Vocabulary, size: int, max_draft_tokens: int) -> None:
        weights = np.full(len(FIRST_CHANCES), FIRST_WEIGHT)
        self.counts: npt.NDArray[np.float64] = np.concatenate((np.array(FIRST_CHANCES) * weights, weights))
        self._folds = fold_spaces(vocabulary, size)
        self._eos_ids = frozenset(vocabulary.eos_ids)
        self._max_draft_tokens = max_draft_tokens

    def begin(self, num_silent: int, source: Sequence[int] = ()) -> Lookup:
        """A look-up for a text; see there."""
        return Lookup(self.counts, self._folds, self._eos_ids, num_silent, self._max_draft_tokens, source)


class Lookup:
    """One text that grows, and what to expect next of it.

    Args:
        common: counts of all texts; folds: int32, for each token id the one that it is compared as. Kept, not copied.
        eos_ids: behind one of them nothing is drafted.
        num_silent: so many of the first tokens are a prompt, of which nothing is expected.
        source: tokens to be looked up in that are not of the text, which is expected to begin as they do behind the
            prompt.

    Attributes:
        due: with how many tokens of the text the next look is due.
        num_predicted: how many of the tokens that were expected last, from the first on, are of the source.
        pays: whether tokens are drafted, or would have been of late and were right.
    """

    __slots__ = (
        "_address", "_common", "_draft", "_eos_ids", "_folds", "_idle", "_max_draft_tokens", "_num_silent",
        "_pause", "_state", "_tables", "due", "num_predicted", "pays",
    )  # fmt: skip

    def __init__(
        self,
        common: npt.NDArray[np.float64],
        folds: npt.NDArray[np.int32],
        eos_ids: frozenset[int],
        num_silent: int,
        max_draft_tokens: int,
        source: Sequence[int] = (),
    ) -> None:
        self._common, self._folds = common, folds  # kept alive: the head has their addresses
        self._eos_ids = eos_ids
        self._num_silent, self._max_draft_tokens = num_silent, max_draft_tokens
        self._state = np.zeros(DRAFT + (max_draft_tokens + 1) // 2, np.int64)
        self._address: int = self._state.ctypes.data
        self._draft = self._state[DRAFT:].view(np.int32)
        self._tables = np.array(source[: MAX_TOKENS // 2], np.int32)  # no room for more yet, and nothing entered
        num_tokens = len(self._tables)
        at, length = (0, SOURCE_LENGTH) if num_tokens else (-1, 0)
        head = (0, folds.ctypes.data, common.ctypes.data, num_tokens, 0, num_tokens, 0, at, length, num_tokens)
        self._state[:HEAD_LEN] = head
        self._idle, self._pause = 0, 1
        self.due, self.num_predicted, self.pays = 0, 0, False

    @property
    def num_bytes(self) -> int:
        """Memory of the text and its tables."""
        return self._tables.nbytes

    def expect(self, token_ids: array[int], floor: float, limit: int) -> list[int]:
        """Takes in what is new of the text, and returns at most `limit` tokens that may follow it.

        Args:
            token_ids: the whole text, int32.
            floor: the draft ends before the first token up to which all are right less likely than that.
        """
        address, num_tokens = token_ids.buffer_info()
        limit = max(0, min(limit, self._max_draft_tokens))
        found = core.follow(self._address, address, num_tokens, self._num_silent, floor, limit)
        if found < 0:
            self._make_room(num_tokens)
            found = core.follow(self._address, address, num_tokens, self._num_silent, floor, limit)
        self.pays = found > 0
        if self.pays:
            self._idle, self._pause = 0, 1
        else:
            self._idle += 1
            if self._idle >= PATIENCE:
                self._idle, self._pause = 0, min(2 * self._pause, LONGEST_PAUSE)
        self.due = num_tokens + self._pause
        if found < 2:
            return []
        self.num_predicted = found >> 1 if self._state[AT] < self._state[SOURCE_END] else 0
        draft: list[int] = self._draft[: found >> 1].tolist()
        for index, token_id in enumerate(draft):
            if token_id in self._eos_ids:
                return draft[: index + 1]
        return draft

    def _make_room(self, num_tokens: int) -> None:
        """Moves to larger tables, or, where they are as large as they get, leaves out what is oldest."""
        state = self._state
        held, num_new = int(state[NUM_TOKENS]), num_tokens - int(state[NUM_SEEN])
        kept = held
        if held + num_new > MAX_TOKENS:
            kept = max(0, min(held, MAX_TOKENS // 2 - num_new))
            num_new = min(num_new, MAX_TOKENS // 2)
            state[NUM_SEEN] = num_tokens - num_new
        capacity = min(MAX_TOKENS, max(kept + num_new + FIRST_ROOM, 2 * held))
        hash_size = 1 << (capacity - 1).bit_length()
        tables = np.zeros(tables_len(capacity, hash_size), np.int32)
        tables[:kept] = self._tables[held - kept : held]
        self._tables = tables
        state[:AT] = (tables.ctypes.data, *state[1:3], capacity, hash_size - 1, kept, state[NUM_SEEN])
        state[SOURCE_END] = max(0, state[SOURCE_END] - (held - kept))
        state[AT] -= held - kept
        if state[AT] < 0:
            state[AT], state[LENGTH] = -1, 0
        core.reenter(self._address)


def fold_spaces(vocabulary: Vocabulary, size: int) -> npt.NDArray[np.int32]:
    """What each of `size` tokens is compared as: one that begins with a space as the one without it, if there is one.

    Behind a quote, a bracket or a line feed a word is another token than within a sentence.
    """
    folds = np.arange(size, dtype=np.int32)
    ids = vocabulary.ids
    for token_id, token in enumerate(vocabulary.tokens):
        if token[:1] == b" " and (bare := ids.get(token[1:])) is not None:
            folds[token_id] = bare
    return folds
