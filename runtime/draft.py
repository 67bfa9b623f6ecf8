"""Drafts: runs of tokens believed to come next, and what becomes of them.

A draft rides along with the next forward; the sampler decides every row by itself, and the drafted tokens that were
decided the same are kept::

    forward      known[-1]   d0   d1   d2
    decided          d0      d1    x          d0 and d1 were right, x is the token after them
    accepted         2

The sources are the constraint's forced text, canonically tokenised (the compressed FSM of SGLang, without its
retokenisation), and between such runs what earlier requests wrote at the same places of the same constraint. The law of
the output does not depend on either. A drafted token costs a row of the forward, so it is drafted only if it is likely
enough to be right (`odds`). This module knows requests and cursors, no tensors.
"""

from __future__ import annotations

from collections.abc import Sequence

from .config import JumpMode
from .request import Request

LOOK_EVERY = 8  # tokens


def next_draft(request: Request, jump: JumpMode, max_draft_tokens: int, price: float) -> list[int]:
    """What to verify in the request's next forward. Canonical forced text joins the output at once instead, unseen.

    Stop strings, `min_tokens` and log-probabilities need every token decided, so they go the verified way.

    Args:
        price: see `odds.price`.
    """
    if jump == "off":
        return []
    if jump == "verified":
        return guess(request, max_draft_tokens, price)
    draft, sampling = propose(request, max_draft_tokens), request.sampling
    if sampling.stop or sampling.min_tokens or sampling.logprobs is not None:
        return draft
    return _take(request, draft)


def _take(request: Request, draft: list[int]) -> list[int]:
    """Appends the draft to the output; returns what is left to be decided, since deciding is what ends a request."""
    for index, token_id in enumerate(draft):
        cursor = request.cursor
        assert cursor is not None and cursor.advance(token_id), "a draft broke its constraint"
        if cursor.must_stop:
            cursor.rollback(1)
            return draft[index:]
        request.token_ids.append(token_id)
        request.output.push(token_id)
        request.usage.completion_tokens += 1
        request.usage.drafted_tokens += 1
        request.usage.jumped_tokens += 1
    return []


def propose(request: Request, max_draft_tokens: int) -> list[int]:
    """Forced tokens from the request's constraint.

    Never so many that no token is left to be decided, or too few to complete the text.
    """
    remaining = request.remaining_tokens
    limit = min(max_draft_tokens, remaining - 1)
    if request.cursor is None or limit <= 0:
        return []
    return request.cursor.draft_within(remaining)[:limit]


def guess(request: Request, max_draft_tokens: int, price: float) -> list[int]:
    """As `propose`, and likely tokens besides: only for drafts that are verified, and as far as they are worth it.

    Where nothing is worth it, one token is looked at now and then, and at the beginning, to see whether it would have
    been right.
    """
    cursor, odds = request.cursor, request.odds
    if cursor is None or odds is None:
        return []
    remaining = request.remaining_tokens
    likely = cursor.guess_within(remaining, min(max_draft_tokens, remaining - 1), odds, price)
    draft = list(likely.token_ids)
    if not draft and (remaining % LOOK_EVERY == 0 or request.num_output_tokens < LOOK_EVERY):
        likely = cursor.guess_within(remaining, 1)
    request.likely = likely
    return draft


def num_accepted(draft: Sequence[int], decided: Sequence[int]) -> int:
    """How many leading tokens of the draft were decided the same."""
    count = 0
    for drafted, token_id in zip(draft, decided, strict=False):
        if drafted != token_id:
            break
        count += 1
    return count
