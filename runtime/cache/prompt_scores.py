"""Log-probabilities of prompt tokens, kept with the blocks that hold their KV.

A block has a number for each of its tokens, given all tokens before it, or nothing::

    block 17    tokens   Paris   is     the    ca
                scores   -0.31   -1.2   -0.04  none

So a score lives exactly as long as the KV of its token, and goes where that goes: into the tree, to requests that lease
the block, away with an eviction. Nothing is kept, and nothing costs anything, until the first score is asked for. What
is kept is the very float32 that was computed. The likeliest alternatives, where they were asked for too, are in
`prompt_alternatives`.

`PromptScores` knows block ids and offsets, and no tree; the functions below it take scores from requests, and give them
back. Memory: 4 bytes per token of the pool, and the alternatives.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ...radix import RadixTree, pack
from ..request import Request, TokenLogprob
from .prompt_alternatives import PromptAlternatives, Top


class PromptScores:
    """Scores by block of the pool."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self._num_blocks = num_blocks
        self._block_size = block_size
        self._rows: npt.NDArray[np.float32] | None = None
        self._alternatives = PromptAlternatives(block_size)

    @property
    def num_bytes(self) -> int:
        """Memory of what is kept."""
        return self._alternatives.num_bytes + (0 if self._rows is None else self._rows.nbytes)

    def forget(self, blocks: Sequence[int]) -> None:
        """These blocks will hold other tokens."""
        if self._rows is not None:
            self._rows[blocks] = np.nan
            self._alternatives.forget(blocks)

    def copy(self, source: int, target: int, num_tokens: int) -> None:
        """The first tokens of both blocks are alike; of the rest of `target` nothing is known."""
        if self._rows is not None:
            self._rows[target] = np.nan
            self._rows[target, :num_tokens] = self._rows[source, :num_tokens]
            self._alternatives.copy(source, target, num_tokens)

    def merge(self, source: int, target: int, num_tokens: int) -> None:
        """The first tokens of both blocks are alike: `target` learns what it does not have."""
        if self._rows is not None:
            mine, its = self._rows[target, :num_tokens], self._rows[source, :num_tokens]
            np.copyto(mine, its, where=np.isnan(mine))
            self._alternatives.merge(source, target, num_tokens)

    def write(self, blocks: Sequence[int], start: int, scores: Sequence[float], tops: Sequence[Top]) -> None:
        """Keeps the scores of the tokens from position `start` on of the sequence that `blocks` hold.

        tops: the alternatives to each; empty if none were asked for.
        """
        if self._rows is None:
            self._rows = np.full((self._num_blocks, self._block_size), np.nan, np.float32)
        positions = np.arange(start, start + len(scores))
        rows = np.asarray(blocks, np.int64)[positions // self._block_size]
        self._rows[rows, positions % self._block_size] = scores
        self._alternatives.write(blocks, start, [top for top in tops if top])

    def read(self, blocks: Sequence[int], start: int, end: int, num_top: int) -> list[tuple[float, Top]]:
        """Scores and `num_top` alternatives from position `start` on, up to `end` or the first that is not there."""
        if self._rows is None or end <= start:
            return []
        positions = np.arange(start, end)
        rows = np.asarray(blocks, np.int64)[positions // self._block_size]
        scores = self._rows[rows, positions % self._block_size]
        missing = np.flatnonzero(np.isnan(scores))
        found: list[float] = scores[: missing[0] if len(missing) else None].tolist()
        if not num_top:
            return [(score, ()) for score in found]
        return list(zip(found, self._alternatives.read(blocks, start, start + len(found), num_top), strict=False))


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
