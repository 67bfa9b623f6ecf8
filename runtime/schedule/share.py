"""A request's share of a step: which of its tokens are computed, given how many the step has room for.

Knows one request at a time; it knows no blocks and no other requests.
"""

from __future__ import annotations

from ..execute.batch import Extend
from ..kv_compress.budget import most_at_once
from ..request import Request

MOST_SCORED = 512  # tokens of a prompt in one step whose log-probabilities are wanted: each takes a row of logits


def share(request: Request, budget: int) -> Extend | None:
    """What the request needs next, its draft included, within `budget` tokens; None if there is no room."""
    is_scored = scores_prompt(request)
    num_tokens = min(request.num_uncomputed_tokens, budget, MOST_SCORED if is_scored else budget)
    most = most_at_once(request, request.num_computed_tokens)
    if most is not None:
        budget = min(budget, most)
        num_tokens = min(num_tokens, budget)
    if num_tokens <= 0:
        return None
    draft: list[int] = []
    if num_tokens == request.num_uncomputed_tokens:
        room = min(budget - num_tokens, request.remaining_tokens - 1)
        if request.switches_at is not None:  # what lies beyond is decided by other keys
            room = min(room, request.switches_at - request.num_tokens)
        draft = request.draft[: max(0, room)]
    logits_from = request.num_tokens - 1
    wanted = request.sampling.prompt_logprobs_from
    if wanted is not None and is_scored:
        logits_from = min(logits_from, wanted + len(request.prompt_logprobs) - 1)
    if request.readout is not None:
        logits_from = request.readout.first_wanted
    return Extend(request, request.num_computed_tokens, num_tokens, draft, logits_from)


def share_after(extend: Extend, span: slice, budget: int) -> Extend | None:
    """What follows an extend without a draft that is still under way; None if nothing does, as far as is known.

    Args:
        span: which of the step's tokens are decided for the extend.
    """
    request, start = extend.request, extend.end
    most = most_at_once(request, start)
    if most is not None:
        budget = min(budget, most)
    if start < request.num_tokens:
        num_tokens = min(request.num_tokens - start, budget)
        return Extend(request, start, num_tokens, [], request.num_tokens - 1) if num_tokens > 0 else None
    goes_on = span.start < span.stop and request.remaining_tokens > 1
    if request.switches_at is not None and start >= request.switches_at:  # its keys are computed again first
        goes_on = False
    return Extend(request, start, 1, [], start, unread=span.start) if goes_on and budget > 0 else None


def scores_prompt(request: Request) -> bool:
    """Whether it waits for log-probabilities of its prompt."""
    wanted = request.sampling.prompt_logprobs_from
    return wanted is not None and len(request.prompt_logprobs) < request.num_prompt_tokens - wanted


def waits_for_rows(request: Request) -> bool:
    """Whether what it needs of the next step is known only when rows of the step before are read: log-probabilities of
    its prompt, or hidden states of more than its last token."""
    readout = request.readout
    reads_more = readout is not None and readout.first_wanted < request.num_prompt_tokens - 1
    return reads_more or scores_prompt(request)
