"""What is reported of a request after a step: what it has said since the last report, or why it has failed.

Knows requests; it knows no scheduler and no caller. Cost: O(new tokens).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...errors import DeadlineExceeded, RequestError
from ..cache.cache_explanation import explain_to_caller
from ..request import Delta, FinishReason, Request


def new_delta(request: Request, show: Callable[[Sequence[int]], str]) -> Delta:
    """What was not reported yet; it counts as reported then. show: tokens as text, for explanations."""
    if request.explain_cache and request.usage.cache_explanation is None:
        request.usage.cache_explanation = explain_to_caller(
            request.found,
            request.token_ids[: request.num_prompt_tokens],
            request.usage.cached_tokens,
            show,
        )
    first = request.num_delivered
    token_ids = tuple(request.token_ids[request.num_prompt_tokens + first :])
    request.num_delivered = first + len(token_ids)
    return Delta(
        request.request_id,
        request.index,
        request.output.take(),
        token_ids,
        request.finish_reason,
        request.usage,
        tuple(request.logprobs[first:]) if request.logprobs else (),
        tuple(request.prompt_logprobs) if request.finish_reason is not None else (),
        stopped_by=request.stopped_by,
        vector=request.readout.vector if request.readout is not None and request.finish_reason is not None else None,
        token_notes=tuple(request.notes[first:]) if request.notes is not None else (),
    )


def error_delta(request: Request, error: RequestError) -> Delta:
    """The last one of a request that has failed."""
    request.finish_reason = FinishReason.ERROR
    return Delta(request.request_id, request.index, "", (), FinishReason.ERROR, request.usage, error=error)


def late_error(request: Request) -> DeadlineExceeded:
    """Its deadline has passed while it waited."""
    text = f"deadline_seconds: not begun within {request.deadline_seconds:g} s; the server is busy"
    return DeadlineExceeded(text, param="deadline_seconds")
