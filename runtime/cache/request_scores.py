"""Log-probabilities of a request's prompt: from the request into what is kept with its blocks, and back.

Knows requests and `PromptScores`; it knows no tree. Cost: O(tokens that were computed).
"""

from __future__ import annotations

from ...radix import RadixTree, pack
from ..request import Request, TokenLogprob
from .prompt_scores import PromptScores


def keep_scores(scores: PromptScores, request: Request, start: int) -> None:
    """Keeps those of the prompt tokens that have been computed from position `start` on."""
    wanted = request.sampling.prompt_logprobs_from
    if wanted is None:
        return
    start = max(start, wanted)
    scored = request.prompt_logprobs[start - wanted : max(0, request.num_computed_tokens - wanted)]
    if scored:
        scores.write(request.blocks, start, [one.logprob for one in scored], [one.top for one in scored])


def recall_scores(scores: PromptScores, tree: RadixTree, request: Request) -> None:
    """Gives a waiting request those of its prompt that are kept, from the next it needs on."""
    wanted = request.sampling.prompt_logprobs_from
    if wanted is None:
        return
    start = wanted + len(request.prompt_logprobs)
    prompt = request.token_ids[: request.num_prompt_tokens]
    if start < len(prompt):
        match = tree.match(pack(prompt), request.namespace)
        end = match.num_tokens + match.num_partial_tokens
        blocks, num_top = [*match.blocks, match.partial_block], request.sampling.logprobs or 0
        for score, top in scores.read(blocks, start, end, num_top):
            token_id = prompt[wanted + len(request.prompt_logprobs)]
            request.prompt_logprobs.append(TokenLogprob(token_id, score, top))
