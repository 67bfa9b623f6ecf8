"""The deltas of one answer, gathered per output, for answers that are not streamed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, field

from ..request import Delta, FinishReason, TokenLogprob, Usage
from .metrics import RequestClock


@dataclass(slots=True)
class Output:
    """One finished output."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    prompt_logprobs: tuple[TokenLogprob, ...] = ()
    reason: FinishReason | None = None
    usage: Usage = field(default_factory=Usage)
    stopped_by: str | int | None = None

    def push(self, delta: Delta, eos_ids: Collection[int]) -> None:
        self.text += delta.text
        self.token_ids += delta.token_ids
        self.logprobs += shown_logprobs(delta, eos_ids)
        self.prompt_logprobs = delta.prompt_logprobs or self.prompt_logprobs
        self.reason = delta.finish_reason
        self.usage = delta.usage
        self.stopped_by = delta.stopped_by


def shown_logprobs(delta: Delta, eos_ids: Collection[int]) -> tuple[TokenLogprob, ...]:
    """Without the end token that closes a message, of `eos_ids`: it has no text."""
    logprobs = delta.logprobs
    if delta.finish_reason is FinishReason.STOP and logprobs and logprobs[-1].token_id in eos_ids:
        return logprobs[:-1]
    return logprobs


async def gather(
    deltas: AsyncIterator[tuple[int, Delta]], num_calls: int, n: int, eos_ids: Collection[int], clock: RequestClock
) -> list[list[Output]]:
    """All outputs, `n` for each call, in order."""
    outputs = [[Output() for _ in range(n)] for _ in range(num_calls)]
    async for call, delta in deltas:
        clock.tick(call * n + delta.index, delta)
        outputs[call][delta.index].push(delta, eos_ids)
    clock.end()
    return outputs
