"""What one HTTP request came to, and what its time was spent on; as a line of the log. Knows deltas, no HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..request import Delta, Usage

if TYPE_CHECKING:
    from .prepare import EngineCall

MAX_VALUE_CHARS = 200
OF_PROMPTS = ("prompt_tokens", "cached_tokens", "loaded_tokens")


@dataclass(slots=True)
class OutputRecord:
    """What is known of one output: when its first and its last delta came, and the last delta."""

    first_at: float
    last_at: float
    delta: Delta


class Part(NamedTuple):
    """A part of the time of one output: "queue" until it was admitted, "prefill" until its first token, "decode" until
    its last; or of a request: "compile", a constraint was compiled, or found compiled.

    Attributes:
        usage: that of the output, if the part is about what it counts.
        was_admitted: for "queue": whether the output was admitted at its end.
    """

    name: str
    began_at: float
    ended_at: float
    place: tuple[int, int] | None = None  # prompt and output
    usage: Usage | None = None
    was_admitted: bool = False


class RequestRecord:
    """Gathers while a request is answered; the line may be asked for at any moment, also of one that was cut off.

    Args:
        clock: seconds that do not go back, those of `Usage.admitted_at`.

    Attributes:
        asks_why: whether the record wants to know why no more of the prompts was cached, whatever the caller wants; to
            be set before `begin`. `usage` then has it too: an answer shows it if its caller asked (`explains`).
        request_id: under which the engine shall know what this request asks of it; None: under names of its own.
        began_at, asked_at, first_at, ended_at: when the request came, the engine was asked, a first token came, all was
            sent; None: not yet.
        error: code and param of the error that is the answer.
        calls: what the engine was asked.
        outputs: what came of it, by prompt and output.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.asks_why = False
        self.request_id: str | None = None
        self.began_at = clock()
        self.asked_at: float | None = None
        self.first_at: float | None = None
        self.ended_at: float | None = None
        self.error: dict[str, str | None] = {}
        self.calls: Sequence[EngineCall] = ()
        self.outputs: dict[tuple[int, int], OutputRecord] = {}

    def begin(self, calls: Sequence[EngineCall]) -> None:
        """The engine is asked now; called once at most."""
        self.calls = calls
        self.asked_at = self._clock()
        if self.request_id is not None:
            for number, call in enumerate(calls):
                call.options["request_id"] = self.request_id if not number else f"{self.request_id}-{number}"
        if self.asks_why:
            for call in calls:
                call.options["explain_cache"] = True

    def push(self, prompt: int, delta: Delta) -> None:
        """A delta of one output of a prompt arrived."""
        now = self._clock()
        if self.first_at is None:
            self.first_at = now
        output = self.outputs.get((prompt, delta.index))
        if output is None:
            self.outputs[prompt, delta.index] = OutputRecord(now, now, delta)
        else:
            output.last_at, output.delta = now, delta

    def fail(self, code: str | None, param: str | None) -> None:
        """The answer is an error; `param` may hold what the caller wrote."""
        self.error = {"code": code, "param": param}

    def end(self) -> None:
        """All was sent; what follows (a body that is not read) is not the answer's time."""
        if self.ended_at is None:
            self.ended_at = self._clock()

    def close(self, method: str, route: str | None, status: int, request_id: str) -> None:
        """The request is over, however it went; route: as it was declared, None if there is none. For records that send
        what they know somewhere (`tracing`); this one does not."""

    def usages(self) -> tuple[list[Usage], list[Usage]]:
        """Of the first output of each prompt, for what its outputs share; and of each output; as last reported."""
        usages = {place: self.outputs[place].delta.usage for place in sorted(self.outputs)}
        prompts: dict[int, Usage] = {}
        for (prompt, _), usage in usages.items():
            prompts.setdefault(prompt, usage)
        return list(prompts.values()), list(usages.values())

    def parts(self, ended_at: float) -> Iterator[Part]:
        """What the time up to `ended_at` was spent on. Of an output that never came, only that it waited is known."""
        for began, ended in sorted({span for call in self.calls for span in call.compiled}):
            yield Part("compile", began, ended)
        for prompt, call in enumerate(self.calls):
            assert self.asked_at is not None
            for index in range(call.sampling.n):
                place = prompt, index
                output = self.outputs.get(place)
                usage = output.delta.usage if output is not None else None
                if output is None or usage is None or usage.admitted_at is None:
                    yield Part("queue", self.asked_at, output.last_at if output else ended_at, place)
                    continue
                queued_at = usage.admitted_at - usage.queue_seconds
                yield Part("queue", queued_at, usage.admitted_at, place, was_admitted=True)
                yield Part("prefill", usage.admitted_at, output.first_at, place, usage)
                if output.last_at > output.first_at:
                    yield Part("decode", output.first_at, output.last_at, place, usage)

    def counts(self) -> dict[str, int]:
        """Tokens, as last reported; a prompt with several outputs counts once."""
        prompts, outputs = self.usages()
        found = {name: sum(getattr(usage, name) for usage in prompts) for name in OF_PROMPTS}
        return found | {"completion_tokens": sum(usage.completion_tokens for usage in outputs)}

    def line(self) -> str:
        """The error's code and place, tokens, and seconds, each only if there is one."""
        self.end()
        assert self.ended_at is not None
        shown = [f"{name}={_one_word(value)}" for name, value in self.error.items() if value]
        if self.outputs:
            shown += [f"{name}={count}" for name, count in self.counts().items() if count or name != "loaded_tokens"]
        if self.first_at is not None:
            shown.append(f"first_token={self.first_at - self.began_at:.3f}")
        return " ".join([*shown, f"seconds={self.ended_at - self.began_at:.3f}"])


def _one_word(value: str) -> str:
    """Printable characters without spaces, so that no value forges a field or a line."""
    return ascii(value[:MAX_VALUE_CHARS])[1:-1].replace(" ", r"\x20").replace("=", r"\x3d")
