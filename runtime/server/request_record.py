"""What one HTTP request came to, as a line of the log. Knows deltas, no HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..request import Delta, Usage


class RequestRecord:
    """Gathers while a request is answered; the line may be asked for at any moment, also of one that was cut off.

    Args:
        clock: seconds that do not go back.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began_at = clock()
        self._first_at: float | None = None
        self._ended_at: float | None = None
        self._usages: dict[tuple[int, int], Usage] = {}  # by prompt and output

    def push(self, prompt: int, delta: Delta) -> None:
        """A delta of one output of a prompt arrived."""
        if self._first_at is None:
            self._first_at = self._clock()
        self._usages[prompt, delta.index] = delta.usage

    def end(self) -> None:
        """All was sent; what follows (a body that nobody reads) is not the answer's time."""
        if self._ended_at is None:
            self._ended_at = self._clock()

    def line(self) -> str:
        """Tokens and seconds, "-" where there are none; a prompt with several outputs counts once."""
        self.end()
        assert self._ended_at is not None
        prompts = {prompt: usage for (prompt, _), usage in self._usages.items()}
        known = bool(prompts)
        counts = {
            "prompt_tokens": sum(usage.prompt_tokens for usage in prompts.values()),
            "cached_tokens": sum(usage.cached_tokens for usage in prompts.values()),
            "completion_tokens": sum(usage.completion_tokens for usage in self._usages.values()),
        }
        shown = [f"{name}={count if known else '-'}" for name, count in counts.items()]
        first = f"{self._first_at - self._began_at:.3f}" if self._first_at is not None else "-"
        return " ".join([*shown, f"first_token={first}", f"seconds={self._ended_at - self._began_at:.3f}"])
