"""Generated tokens → text that may be shown: whole characters, and nothing that may yet become a stop string.

Knows no model; it is fed by the engine, one token at a time.
"""

from __future__ import annotations

import copy
from typing import Protocol

from ..tokenizer.detokenizer import Detokenizer


class StopGuard(Protocol):
    """Says where in an output stop strings count; it is given the whole text, piece by piece."""

    def push(self, text: str) -> bytes:
        """For every character 1 if a stop string may begin there, else 0."""


class OutputText:
    """The text of one output and how much of it was handed out.

    Invariant: what `take` has returned so far is a prefix of `text`, and no later token can take a character of it
    back. Cost: O(characters × stop strings) per token over a window as long as each stop string.
    """

    def __init__(
        self,
        detokenizer: Detokenizer,
        stop: tuple[str, ...],
        *,
        includes_stop: bool = False,
        guard: StopGuard | None = None,
    ) -> None:
        self._detokenizer = detokenizer
        self._stop = stop
        self._includes_stop = includes_stop
        self._window = max(map(len, stop), default=0)
        self._num_taken = 0
        self._guard = guard
        self._counts = bytearray()  # by character: whether a stop string may begin there; empty without a guard
        self.text = ""
        self.stopped_by: str | None = None  # the stop string that ended it

    def push(self, token_id: int, *, check_stop: bool = True) -> bool:
        """Appends one token. Returns True when a stop string is complete; `text` then ends before it, or after it
        with `includes_stop`."""
        return self._append(self._detokenizer.push(token_id), check_stop)

    def finish(self) -> None:
        """No token follows: bytes that never became a character are shown as U+FFFD."""
        if not self.stopped:
            self._append(self._detokenizer.flush(), True)
        self._window = 0

    def fork(self, stop: tuple[str, ...], *, includes_stop: bool = False) -> OutputText:
        """An independent output with the same text, none of it handed out yet; from here on `stop` ends it.

        A stop string is looked for in what is pushed from now on, and may begin in what is there.
        """
        twin = OutputText(self._detokenizer.fork(), stop, includes_stop=includes_stop)
        twin.text = self.text
        twin._guard, twin._counts = copy.deepcopy(self._guard), self._counts[:]
        return twin

    @property
    def stopped(self) -> bool:
        """Whether a stop string has ended it."""
        return self.stopped_by is not None

    def take(self) -> str:
        """The text that became safe to show since the last call."""
        end = len(self.text) - (0 if self.stopped else self._held_back())
        fresh = self.text[self._num_taken : end]
        self._num_taken = end
        return fresh

    def _append(self, piece: str, check_stop: bool) -> bool:
        num_before = len(self.text)
        self.text += piece
        if self._guard is not None:
            self._counts += self._guard.push(piece)
        if not check_stop:
            return False
        # what ended before was not to end the text, or belongs to the parent of a fork
        begins = [(max(0, num_before - len(stop) + 1), stop) for stop in self._stop]
        found = [(at, at + len(stop)) for begin, stop in begins if (at := self._find(stop, begin)) >= 0]
        if found:
            begin, end = min(found)
            self.stopped_by = self.text[begin:end]
            self.text = self.text[: end if self._includes_stop else begin]
        return bool(found)

    def _find(self, stop: str, start: int) -> int:
        """Where a stop string that counts begins; -1 if there is none."""
        at = self.text.find(stop, start)
        while at >= 0 and self._guard is not None and not self._counts[at]:
            at = self.text.find(stop, at + 1)
        return at

    def _held_back(self) -> int:
        """Length of the longest end of the text that begins a stop string."""
        longest = min(self._window - 1, len(self.text) - self._num_taken)
        for length in range(longest, 0, -1):
            tail = self.text[-length:]
            if any(stop.startswith(tail) for stop in self._stop):
                return length
        return 0
