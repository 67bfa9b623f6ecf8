"""A limit on a thought: it ends within a number of tokens, at the end of a sentence if there is one in time.

::

    thought   The user greets me. I might ask back. Or I could …
    budget                       │←── window ──→│
                                       ↑ a sentence ends here: </think> is written     (else at the budget)

Counted are the tokens between the marks. While the closing mark is due each of its tokens is the only one allowed; what
follows is under the constraint of the answer, as after a thought that ended by itself. Where a character has begun in
bytes, a constraint has it finished first, in three tokens at most. Where a request may leave its thought out there is
nothing to limit until it opens one.

A function of the output's tokens: neither batch nor draft changes where a thought ends. Knows one output, its tokens
and their texts; it knows no constraint. Cost: O(1) per token.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

MOST_WINDOW = 48  # tokens before the budget in which the end of a sentence is the end of the thought
SENTENCE_ENDS = (".", "!", "?", "…", "。", "！", "？", "\n")


class ThoughtLimit:
    """The limit of one output.

    Args:
        budget: tokens between the marks, at least 0.
        begin, end: the marks.
        closing: the tokens that write `end`.
        is_open: whether the prompt has opened the thought.
        show: tokens as text.
    """

    def __init__(
        self,
        budget: int,
        begin: str,
        end: str,
        closing: Sequence[int],
        *,
        is_open: bool,
        show: Callable[[Sequence[int]], str],
    ) -> None:
        self._budget = budget
        self._window = min(budget // 4, MOST_WINDOW)
        self._begin, self._end = begin, end
        self._closing = tuple(closing)
        self._show = show
        self._is_open = is_open
        self._is_over = False
        self._count = 0
        self._num_closed = 0  # tokens of the closing mark that were written because they were due
        self._text = ""  # before the thought, all of it; within, as much as may be part of a mark
        self._is_sentence_end = False  # but for spaces, the thought so far ends like a sentence

    @property
    def due(self) -> int | None:
        """The only token that may come next; None: it is not for the limit to say."""
        if not self._is_open or self._is_over:
            return None
        if self._num_closed or self._count >= self._budget or self._is_at_end():
            return self._closing[self._num_closed]
        return None

    @property
    def max_draft_tokens(self) -> int | None:
        """How long a draft may be, so that neither its tokens nor the one chosen after it are due; None: any length."""
        if self._is_over:
            return None
        return max(0, self._budget - self._window - self._count - 1) if self._is_open else 0

    def push(self, token_id: int) -> None:
        """A token of the output."""
        if self._is_over:
            return
        is_due = self.due == token_id
        shown = self._show([token_id])
        self._text += shown
        if shown.strip(" "):
            self._is_sentence_end = shown.rstrip(" ").endswith(SENTENCE_ENDS)
        if not self._is_open:
            begun = self._text.lstrip()
            self._is_open = begun.startswith(self._begin)
            self._is_over = not self._is_open and not self._begin.startswith(begun)
            if self._is_open:
                self._text = begun.removeprefix(self._begin)
        elif is_due:
            self._num_closed += 1
        else:
            self._count += 1
        self._is_over |= self._is_open and (self._end in self._text or self._num_closed == len(self._closing))
        if self._is_open:
            self._text = self._text[-len(self._end) :]

    def fork(self) -> ThoughtLimit:
        """The limit of a copy of the output."""
        return copy.copy(self)

    def _is_at_end(self) -> bool:
        return self._count >= self._budget - self._window and self._is_sentence_end
