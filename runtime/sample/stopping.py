"""When an output ends: end tokens, stop tokens and strings, a complete constraint, an exhausted budget.

Knows one request at a time; it knows no tensors and no scheduler.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...errors import RequestError
from ..request import FinishReason, Request


def append_decided(request: Request, token_ids: Sequence[int], eos_ids: Collection[int]) -> FinishReason | None:
    """Appends decided tokens one by one until the request ends; returns why it ended, or None if it goes on.

    Tokens after the end are dropped. The constraint's cursor, the text and the counts move along.

    Raises:
        RequestError: there is no token, since the model's logits were no numbers or the constraint allows none, or the
            constraint forbids it (both a fault of ours); the request is lost, not the engine.
    """
    if request.max_tokens == 0:
        return FinishReason.LENGTH
    cursor = request.cursor
    for token_id in token_ids:
        if token_id < 0:
            raise _without_token(request)
        if cursor is not None and not cursor.advance(token_id):
            raise RequestError(f"token {token_id} was chosen against the constraint")
        request.token_ids.append(token_id)
        if request.thought is not None:
            request.thought.push(token_id)
        request.usage.completion_tokens += 1
        reason = _reason_to_stop(request, token_id, eos_ids)
        if reason is not None:
            return reason
    return None


def _without_token(request: Request) -> RequestError:
    """Why no token was chosen: the constraint allows none where the request stands, or the logits are no numbers."""
    if request.cursor is not None and not request.cursor.row_within(request.remaining_tokens).any():
        return RequestError(
            f"the constraint allows no token here, with {request.remaining_tokens} tokens left; this is an internal "
            "fault of the constraint, not of the model: please report it, and try a larger max_tokens"
        )
    return RequestError(
        "the model's logits are not numbers here, so there is no next token; if it is loaded as float16, "
        'dtype="bfloat16" or "float32" has the range that this text needs'
    )


def _reason_to_stop(request: Request, token_id: int, eos_ids: Collection[int]) -> FinishReason | None:
    sampling, cursor = request.sampling, request.cursor
    num_output = request.num_output_tokens
    past_minimum = num_output > sampling.min_tokens
    ends = token_id in sampling.stop_token_ids or (token_id in eos_ids and not sampling.ignore_eos)
    must_stop = cursor is not None and cursor.must_stop
    if (ends and past_minimum) or (must_stop and cursor is not None and cursor.is_finished):
        return FinishReason.STOP
    if request.output.push(token_id, check_stop=past_minimum) or must_stop:
        return FinishReason.STOP
    if num_output < request.max_tokens:
        return None
    return FinishReason.STOP if cursor is not None and cursor.is_accepting else FinishReason.LENGTH
