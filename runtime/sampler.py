"""Logits → tokens, under each request's parameters and constraint.

Every row of logits is decided on its own, from the same law and the same noise as if it had been reached one token at
a time: noise is a pure function of (seed, position, token id). So a drafted token is verified simply by deciding its
row and comparing, which is the exact speculative-sampling rule for a deterministic draft (Leviathan et al., arXiv
2211.17192, with a point mass as the draft's law: accept with probability p(draft), else draw from the rest), and output
does not depend on drafts, batch or cache.

Knows tensors and requests; constraints only through their cursors.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from ..errors import RequestError
from ..kernels import ops
from .batch import Batch, Extend
from .request import Request, TokenLogprob


@dataclass(slots=True)
class Choice:
    """What was decided for one extend.

    Attributes:
        token_ids: one per decided row, in order; empty while a prompt is still being computed. The first follows the
            last known token, each further one holds only if the draft agreed with all before.
        logprobs: one per token, if asked for.
        prompt_logprobs: of prompt tokens whose predecessor's logits this step computed.
        error: the request's constraint failed; nothing was decided.
    """

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprob] = field(default_factory=list)
    error: RequestError | None = None


@dataclass(slots=True)
class _Rows:
    """Per-row sampling arguments of a batch, gathered request by request."""

    logits_index: list[int] = field(default_factory=list)
    mask_row: list[int] = field(default_factory=list)
    temperature: list[float] = field(default_factory=list)
    top_k: list[int] = field(default_factory=list)
    top_p: list[float] = field(default_factory=list)
    min_p: list[float] = field(default_factory=list)
    seed: list[int] = field(default_factory=list)
    position: list[int] = field(default_factory=list)


class Sampler:
    """Chooses tokens for a batch. Stateless.

    Args:
        vocab_size: width of the logits.
        eos_ids: end tokens, forbidden before a request's `min_tokens`.
    """

    def __init__(self, vocab_size: int, eos_ids: tuple[int, ...], device: torch.device) -> None:
        self._num_words = -(-vocab_size // 32)
        self._eos_ids = list(eos_ids)
        self._device = device

    @torch.inference_mode()
    def choose(self, logits: torch.Tensor, batch: Batch) -> list[Choice]:
        """Decides every wanted row of `logits` `[R, vocab_size]`; may change `logits` (penalties)."""
        choices = [Choice() for _ in batch.extends]
        rows = _Rows()
        masks: list[npt.NDArray[np.int32]] = []
        decided: list[tuple[int, int]] = []
        first = 0
        for extend, choice in zip(batch.extends, choices, strict=True):
            num_decided = len(extend.draft) + 1 if extend.reaches_end else 0
            self._score(logits, first, extend, choice, num_decided)
            first += extend.num_logits
            if num_decided:
                num_decided = self._gather(extend, choice, first - num_decided, num_decided, rows, masks)
            decided.append((first - (len(extend.draft) + 1), num_decided))
        if not rows.logits_index:
            return choices
        token_ids = self._sample(self._penalised(logits, batch, decided), rows, masks)
        taken = 0
        for extend, choice, (row, num_decided) in zip(batch.extends, choices, decided, strict=True):
            choice.token_ids = token_ids[taken : taken + num_decided]
            taken += num_decided
            if extend.request.sampling.logprobs is not None and num_decided:
                scored = logits[row : row + num_decided]
                choice.logprobs = _logprobs(scored, choice.token_ids, extend.request.sampling.logprobs)
        return choices

    def _score(self, logits: torch.Tensor, first: int, extend: Extend, choice: Choice, num_decided: int) -> None:
        """Log-probabilities of the prompt tokens that follow the extend's scored rows."""
        num_scored = extend.num_logits - num_decided
        if extend.request.sampling.prompt_logprobs_from is None or num_scored <= 0:
            return
        position = max(extend.start, extend.logits_from) + 1
        followers = list(extend.request.token_ids[position : position + num_scored])
        top = extend.request.sampling.logprobs or 0
        choice.prompt_logprobs = _logprobs(logits[first : first + len(followers)], followers, top)

    def _gather(
        self,
        extend: Extend,
        choice: Choice,
        first: int,
        num_decided: int,
        rows: _Rows,
        masks: list[npt.NDArray[np.int32]],
    ) -> int:
        """Adds the rows of one extend; returns how many there are (fewer if the draft breaks the constraint)."""
        request = extend.request
        mask_rows = [-1] * num_decided
        if request.cursor is not None:
            try:
                own = self._masks(request, extend.draft)
            except Exception as error:
                choice.error = (
                    error
                    if isinstance(error, RequestError)
                    else RequestError(f"the constraint failed: {type(error).__name__}: {error}")
                )
                return 0
            num_decided = len(own)
            mask_rows = list(range(len(masks), len(masks) + num_decided))
            masks += own
        sampling = request.sampling
        for i in range(num_decided):
            rows.logits_index.append(first + i)
            rows.mask_row.append(mask_rows[i])
            rows.temperature.append(sampling.temperature)
            rows.top_k.append(max(sampling.top_k, 0))
            rows.top_p.append(sampling.top_p)
            rows.min_p.append(sampling.min_p)
            rows.seed.append(request.seed)
            rows.position.append(request.num_tokens + i)
        return num_decided

    def _masks(self, request: Request, draft: list[int]) -> list[npt.NDArray[np.int32]]:
        """One mask per row: at the cursor, then after each drafted token while the constraint allows it."""
        cursor = request.cursor
        assert cursor is not None
        masks = []
        num_advanced = 0
        remaining = request.remaining_tokens
        for token_id in (*draft, None):
            mask = np.zeros(self._num_words, np.int32)
            cursor.bitmask_within(mask[: cursor.constraint.vocabulary.num_words], remaining - num_advanced)
            masks.append(mask)
            if token_id is None or not cursor.advance(token_id):
                break
            num_advanced += 1
        cursor.rollback(num_advanced)
        return masks

    def _penalised(self, logits: torch.Tensor, batch: Batch, decided: list[tuple[int, int]]) -> torch.Tensor:
        """The logits with penalties, biases and `min_tokens` applied; a copy if any request has them."""
        if not any(extend.request.sampling.edits_logits for extend in batch.extends):
            return logits
        logits = logits.clone()
        for extend, (row, num_decided) in zip(batch.extends, decided, strict=True):
            request = extend.request
            if not request.sampling.edits_logits:
                continue
            for i in range(num_decided):
                _penalise(logits[row + i], request, extend.draft[:i])
                if request.num_output_tokens + i < request.sampling.min_tokens:
                    logits[row + i, self._eos_ids] = -torch.inf
        return logits

    def _sample(self, logits: torch.Tensor, rows: _Rows, masks: list[npt.NDArray[np.int32]]) -> list[int]:
        device = self._device
        index = torch.tensor(rows.logits_index, device=device)
        if len(rows.logits_index) != logits.shape[0]:
            logits = logits[index]
        chosen = ops.sample(
            logits,
            torch.from_numpy(np.stack(masks)).to(device) if masks else None,
            torch.tensor(rows.mask_row, dtype=torch.int32, device=device),
            torch.tensor(rows.temperature, dtype=torch.float32, device=device),
            torch.tensor(rows.top_k, dtype=torch.int32, device=device),
            torch.tensor(rows.top_p, dtype=torch.float32, device=device),
            torch.tensor(rows.min_p, dtype=torch.float32, device=device),
            torch.tensor(rows.seed, dtype=torch.int64, device=device),
            torch.tensor(rows.position, dtype=torch.int64, device=device),
        )
        token_ids: list[int] = chosen.tolist()
        return token_ids


def _penalise(logits: torch.Tensor, request: Request, draft: list[int]) -> None:
    """Applies one row's penalties in place: repetition (prompt and output), then presence and frequency (output)."""
    sampling = request.sampling
    output = Counter([*request.token_ids[request.num_prompt_tokens :], *draft])
    if sampling.repetition_penalty != 1.0:
        seen = torch.tensor(sorted({*request.token_ids, *draft}), device=logits.device)
        values = logits[seen]
        factor = sampling.repetition_penalty
        logits[seen] = torch.where(values > 0, values / factor, values * factor)
    if output and (sampling.presence_penalty or sampling.frequency_penalty):
        seen = torch.tensor(list(output), device=logits.device)
        counts = torch.tensor(list(output.values()), dtype=logits.dtype, device=logits.device)
        logits[seen] -= sampling.presence_penalty + sampling.frequency_penalty * counts
    for token_id, bias in sampling.logit_bias.items():
        logits[token_id] += bias


def _logprobs(logits: torch.Tensor, token_ids: list[int], num_top: int) -> list[TokenLogprob]:
    """Log-probabilities of `token_ids` (one per row) and of the `num_top` likeliest tokens."""
    scores = torch.log_softmax(logits[: len(token_ids)].float(), dim=-1)
    own = scores.gather(1, torch.tensor(token_ids, device=scores.device)[:, None])[:, 0].tolist()
    if not num_top:
        return [TokenLogprob(t, value) for t, value in zip(token_ids, own, strict=True)]
    values, ids = scores.topk(min(num_top, scores.shape[1]), dim=-1)
    tops = [tuple(zip(i, v, strict=True)) for i, v in zip(ids.tolist(), values.tolist(), strict=True)]
    return [TokenLogprob(t, value, top) for t, value, top in zip(token_ids, own, tops, strict=True)]
