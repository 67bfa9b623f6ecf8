"""A request's deltas, put together again into completions. Knows no engine."""

from __future__ import annotations

from ...errors import RequestError
from ..constrain.spec import ConstraintSpec
from ..request import Completion, Delta, FinishReason, SamplingParams, TokenLogprob


class Collector:
    """Gathers the `num_outputs` outputs of one request id."""

    def __init__(self, num_outputs: int, constraint: ConstraintSpec | None) -> None:
        self._constraint = constraint
        self._texts: list[list[str]] = [[] for _ in range(num_outputs)]
        self._token_ids: list[list[int]] = [[] for _ in range(num_outputs)]
        self._logprobs: list[list[TokenLogprob]] = [[] for _ in range(num_outputs)]
        self._last: list[Delta | None] = [None] * num_outputs
        self._num_open = num_outputs

    def push(self, delta: Delta) -> bool:
        """Adds a delta; returns True when every output has ended.

        Raises:
            RequestError: the delta's own, if the request failed.
        """
        if delta.error is not None:
            raise delta.error
        self._texts[delta.index].append(delta.text)
        self._token_ids[delta.index] += delta.token_ids
        self._logprobs[delta.index] += delta.logprobs
        if delta.finish_reason is not None:
            self._last[delta.index] = delta
            self._num_open -= 1
        return self._num_open == 0

    def completions(self) -> list[Completion]:
        """One completion per output, in order. Call it once `push` has returned True."""
        return [self._completion(index) for index in range(len(self._last))]

    def _completion(self, index: int) -> Completion:
        last = self._last[index]
        assert last is not None and last.finish_reason is not None, "the output has not ended"
        text = "".join(self._texts[index])
        parsed: object = None
        if self._constraint is not None and last.finish_reason is FinishReason.STOP:
            try:
                parsed = self._constraint.parse(text)
            except RequestError as error:  # kept for the reader; neither this text nor other outputs are lost
                parsed = error
        return Completion(
            request_id=last.request_id,
            index=index,
            text=text,
            token_ids=tuple(self._token_ids[index]),
            finish_reason=last.finish_reason,
            usage=last.usage,
            logprobs=tuple(self._logprobs[index]),
            prompt_logprobs=last.prompt_logprobs,
            parsed_or_error=parsed,
            stopped_by=last.stopped_by,
            vector=last.vector,
        )


def scoring_params(prefix_len: int) -> SamplingParams:
    """Generates nothing and reports the log-probability of every token from position `prefix_len` on."""
    return SamplingParams(max_tokens=0, temperature=0.0, prompt_logprobs_from=prefix_len)
