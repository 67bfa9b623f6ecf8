"""What one HTTP request came to, as a line of the log. Knows deltas, no HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..request import Delta, Usage

if TYPE_CHECKING:
    from .prepare import EngineCall

MAX_VALUE_CHARS = 200


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
        self._error: dict[str, str | None] = {}
        self._usages: dict[tuple[int, int], Usage] = {}  # by prompt and output

    def begin(self, calls: Sequence[EngineCall]) -> None:
        """The engine is asked now; called once at most."""

    def push(self, prompt: int, delta: Delta) -> Delta:
        """A delta of one output of a prompt arrived. Returns it as the caller shall see it."""
        if self._first_at is None:
            self._first_at = self._clock()
        self._usages[prompt, delta.index] = delta.usage
        return delta

    def fail(self, code: str | None, param: str | None) -> None:
        """The answer is an error; `param` may hold what the caller wrote."""
        self._error = {"code": code, "param": param}

    def end(self) -> None:
        """All was sent; what follows (a body that is not read) is not the answer's time."""
        if self._ended_at is None:
            self._ended_at = self._clock()

    def close(self, method: str, route: str | None, status: int, request_id: str) -> None:
        """The request is over, however it went; route: as it was declared, None if there is none."""

    def line(self) -> str:
        """The error's code and place, tokens, and seconds, each only if there is one; a prompt with several outputs
        counts once."""
        self.end()
        assert self._ended_at is not None
        prompts = {prompt: usage for (prompt, _), usage in self._usages.items()}
        counts = {
            "prompt_tokens": sum(usage.prompt_tokens for usage in prompts.values()),
            "cached_tokens": sum(usage.cached_tokens for usage in prompts.values()),
            "loaded_tokens": sum(usage.loaded_tokens for usage in prompts.values()),
            "completion_tokens": sum(usage.completion_tokens for usage in self._usages.values()),
        }
        shown = [f"{name}={_one_word(value)}" for name, value in self._error.items() if value]
        if prompts:
            shown += [f"{name}={count}" for name, count in counts.items() if count or name != "loaded_tokens"]
        if self._first_at is not None:
            shown.append(f"first_token={self._first_at - self._began_at:.3f}")
        return " ".join([*shown, f"seconds={self._ended_at - self._began_at:.3f}"])


def _one_word(value: str) -> str:
    """Printable characters without spaces, so that no value forges a field or a line."""
    return ascii(value[:MAX_VALUE_CHARS])[1:-1].replace(" ", r"\x20").replace("=", r"\x3d")
