"""Which tokens one request may say next, by what it has said last: `allowed_token_ids` and `bad_words`.

::

    bad words as tokens: (5,) (7, 8) (7, 8, 9)        output … 3 7 8   ──►   not 5, not 9
                                                      output … 3 7     ──►   not 5, not 8

A bad word is the sequence of tokens that the tokenizer writes it as, as in vLLM: other tokens may spell the same text.
The rows are kept, one for each set of tokens that the last ones rule out; so the mask table knows them again.
Knows token ids, no tokenizer and no tensors.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from ...errors import RequestError

Row = npt.NDArray[np.int32]


class TokenRules:
    """The rules of one request.

    Args:
        vocab_size: width of the logits.
        allowed: the only tokens that may be said; None: all.
        words: sequences of tokens that may not be said, none of them empty.

    Attributes:
        reach: how many of the last tokens of an output `row` looks at.

    Raises:
        RequestError: they leave nothing to say.
    """

    def __init__(self, vocab_size: int, allowed: Collection[int] | None, words: Iterable[Sequence[int]]) -> None:
        flags = np.ones(-(-vocab_size // 32) * 32, np.bool_)
        flags[vocab_size:] = False
        if allowed is not None:
            flags[:] = False
            flags[list(allowed)] = True
        self._flags = flags
        self._words: list[tuple[tuple[int, ...], int]] = []  # what stands before the last token, and that token
        for word in words:
            if len(word) == 1:
                flags[word[0]] = False
            else:
                self._words.append((tuple(word[:-1]), word[-1]))
        self.reach = max((len(begin) for begin, _ in self._words), default=0)
        self._rows: dict[frozenset[int], Row] = {}
        self.row(())

    def row(self, output: Sequence[int]) -> Row:
        """int32[ceil(vocab_size / 32)]: a bit for each token that may follow; the same array for the same bits.

        Raises:
            RequestError: none may.
        """
        end = tuple(output[-self.reach :]) if self.reach else ()
        barred = frozenset(last for begin, last in self._words if end[-len(begin) :] == begin)
        row = self._rows.get(barred)
        if row is None:
            flags = self._flags.copy()
            flags[list(barred)] = False
            if not flags.any():
                text = "'allowed_token_ids' and 'bad_words' leave no token to go on with; allow more"
                raise RequestError(text, param="allowed_token_ids")
            row = np.packbits(flags, bitorder="little").view(np.int32)
            row.flags.writeable = False
            self._rows[barred] = row
        return row
