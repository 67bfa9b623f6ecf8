"""Look-ups: what may come next because the same tokens were followed by it before, in the prompt or in the output.

Summaries, edits, code, answers about documents and values in JSON copy from what was said. Where the last two tokens of
a text stood before, the tokens that followed there are expected to follow again, of several places those of the one
where most tokens agree, and of equals the latest (prompt look-up decoding)::

    … the patient was born in Tolva on 3 May …   {"born": "Tolva       expected:  on 3 May …
                                 ─────                     ─────

A look-up *runs along* whether or not anything is drafted: each token that comes is compared with the one expected, so
how often that was right, a moving average by how many tokens agreed before it, is known without drafting a token. A
draft goes as far as these rates say that it is worth its cost; on text that repeats nothing none is ever made.

There is no index: a place is looked for by comparing all pairs of tokens, and only where no run is being followed. So a
long prompt costs nothing to begin with. Cost: 1 us for each token that is expected, 6 us and 0.2 ns for each token of
the text to look for a place, on text that repeats nothing at every eighth token only; memory is 8 to 16 bytes for each
token, of which at most `MAX_TOKENS` are kept. Knows tokens and nothing else.
"""

from __future__ import annotations

from array import array
from bisect import bisect
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ...fsm.vocabulary.vocabulary import Vocabulary

MAX_TOKENS = 1 << 16  # that are looked up in
MAX_AGREEING = 5  # tokens before a place that are compared, where there are several
# Bounds of the classes: 0 tokens before agree, since the last one took the place of another, 1 to 3, 4 to 8, 9 to 16,
# more; and the rates by class before any of a text was seen.
CLASS_BOUNDS = (1, 4, 9, 17)
FIRST_RATES = (0.3, 0.4, 0.6, 0.75, 0.9)
WEIGHT = 0.1  # of a token in a rate
LEAST_RESUMED = 4  # tokens of a run that is taken up again after another token
LONGEST_PAUSE = 8  # tokens between two looks, after as many looks that brought nothing
MIX = np.uint32(0x9E3779B1)  # of the first token of a pair in its key


class Lookups:
    """What the look-ups of an engine share.

    Args:
        size: of the ids that a token may have.
        max_draft_tokens: of one draft.

    Attributes:
        folds: uint32, for each token id the one that it is compared as.
        eos_ids: nothing is drafted after one of them.
    """

    def __init__(self, vocabulary: Vocabulary, size: int, max_draft_tokens: int) -> None:
        self.folds = fold_spaces(vocabulary, size)
        self.eos_ids = frozenset(vocabulary.eos_ids)
        self.max_draft_tokens = max_draft_tokens

    def begin(self, num_silent: int, source: Sequence[int] = ()) -> Lookup:
        """A look-up for a text; see there."""
        return Lookup(self, num_silent, source)


class Lookup:
    """One text that grows, and what to expect next of it.

    Args:
        num_silent: how many of the first tokens are a prompt, of which nothing is expected.
        source: tokens to be looked up in that are not of the text, which is expected to begin as they do after the
            prompt.

    Attributes:
        due: with how many tokens of the text the next look is due.
        num_predicted: how many of the tokens that were expected last, from the first on, are of the source.
        pays: whether tokens are drafted, or would have been of late and were right.
    """

    __slots__ = (
        "_at", "_idle", "_keys", "_length", "_num_keys", "_num_seen", "_num_silent", "_rates", "_shared", "_source_end",
        "_text", "due", "num_predicted", "pays",
    )  # fmt: skip

    def __init__(self, shared: Lookups, num_silent: int, source: Sequence[int] = ()) -> None:
        self._shared, self._num_silent = shared, num_silent
        self._text = array("i", source[: MAX_TOKENS // 2])  # source and request
        self._source_end = len(self._text)
        self._keys = np.zeros(0, np.uint32)  # of the pairs that end with each token
        self._num_keys = 0  # of them that are known
        self._num_seen = 0  # tokens of the request
        # where what is expected stands, or -1, and how many tokens before that agree, as far as is known
        self._at, self._length = (0, CLASS_BOUNDS[-1]) if self._text else (-1, 0)
        self._rates = list(FIRST_RATES)
        self._idle = 0
        self.due, self.num_predicted, self.pays = 0, 0, False

    @property
    def num_kept(self) -> int:
        """Tokens that are looked up in; at most `MAX_TOKENS`."""
        return len(self._text)

    def expect(self, token_ids: array[int], floor: float, limit: int) -> list[int]:
        """Takes in what is new of the text, and returns at most `limit` tokens that may follow it.

        Args:
            token_ids: the whole text, int32.
            floor: the draft ends before the first token up to which all are right less likely than that.
        """
        start = max(self._num_seen, len(token_ids) - MAX_TOKENS // 2)
        new, self._num_seen = token_ids[start:], len(token_ids)
        if len(self._text) + len(new) > MAX_TOKENS:
            self._forget()
        first = len(self._text) + max(0, self._num_silent - start)
        self._text.extend(new)
        was_right = self._follow(first, floor)
        if not self._length:
            self._search()
        draft = self._draft(floor, min(limit, self._shared.max_draft_tokens))
        self.num_predicted = len(draft) if self._at < self._source_end else 0
        self.pays = was_right or bool(draft)
        self._idle = 0 if self.pays else self._idle + 1
        self.due = self._num_seen + (1 if self._idle < LONGEST_PAUSE else LONGEST_PAUSE)
        return draft

    def _draft(self, floor: float, limit: int) -> list[int]:
        at, length, count, chance = self._at, self._length, 0, 1.0
        while at >= 0 and count < limit:
            chance *= self._rates[bisect(CLASS_BOUNDS, length)]
            if chance < floor:
                break
            count, length = count + 1, length + 1 if length else LEAST_RESUMED
        if not count:
            return []
        draft = self._text[at : min(at + count, self._source_end) if at < self._source_end else at + count].tolist()
        if at >= self._source_end and len(draft) < count:  # a run may reach into itself
            draft = (draft * (count // len(draft) + 1))[:count]
        eos_ids = self._shared.eos_ids
        if not eos_ids.isdisjoint(draft):
            draft = draft[: 1 + next(index for index, token_id in enumerate(draft) if token_id in eos_ids)]
        return draft

    def _follow(self, first: int, floor: float) -> bool:
        """Compares what is expected with the text from `first` on; whether a draft would have had any token right."""
        text, folds, was_right = self._text, self._shared.folds, False
        for end in range(first, len(text)):
            at = self._at
            if at < 0:
                break
            is_right = text[at] == text[end]
            kind = bisect(CLASS_BOUNDS, self._length)
            was_right |= is_right and self._rates[kind] >= floor
            self._rates[kind] += WEIGHT * (is_right - self._rates[kind])
            if is_right or folds[text[at]] == folds[text[end]]:
                self._length = self._length + 1 if self._length else LEAST_RESUMED
            elif self._length >= LEAST_RESUMED:
                self._length = 0
            else:
                self._at, self._length = -1, 0
                break
            self._at = at + 1
            if self._at == self._source_end:
                self._at, self._length = -1, 0
        return was_right

    def _search(self) -> None:
        """Looks for the place where the text stood before."""
        end, start = len(self._text), self._num_keys
        if end < 3:
            return
        if end > len(self._keys):
            self._keys = np.concatenate((self._keys[:start], np.zeros(max(64, 2 * end - start), np.uint32)))
        keys = self._keys
        folded = self._shared.folds[np.frombuffer(self._text, np.int32)[max(0, start - 1) :]]
        first = max(1, start)
        keys[first:end] = folded[:-1] * MIX + folded[1:]
        self._num_keys = end
        places = np.flatnonzero(keys[1 : end - 1] == keys[end - 1]) + 1
        length = 2
        while len(places) > 1 and length < MAX_AGREEING and length <= places[0]:
            agreeing = places[keys[places - length + 1] == keys[end - length]]
            if not len(agreeing):
                break
            places, length = agreeing, length + 1
        if len(places) and places[-1] + 1 != self._source_end:
            self._at, self._length = int(places[-1]) + 1, length

    def _forget(self) -> None:
        """Leaves out all but the latest tokens."""
        num_left_out = max(0, len(self._text) - MAX_TOKENS // 4)
        del self._text[:num_left_out]
        self._num_keys = 0
        self._source_end = max(0, self._source_end - num_left_out)
        self._at = max(-1, self._at - num_left_out)
        self._length *= self._at >= 0


def fold_spaces(vocabulary: Vocabulary, size: int) -> npt.NDArray[np.uint32]:
    """What each of `size` tokens is compared as: one that begins with a space as the one without it, if there is one.

    After a quote, a bracket or a line feed a word is another token than within a sentence.
    """
    folds = np.arange(size, dtype=np.uint32)
    ids = vocabulary.ids
    for token_id, token in enumerate(vocabulary.tokens):
        if token[:1] == b" " and (bare := ids.get(token[1:])) is not None:
            folds[token_id] = bare
    return folds
