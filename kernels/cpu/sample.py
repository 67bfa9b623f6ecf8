"""Masked sampling on the CPU: one compiled call per step, each row on its own (`core/sample.cpp`).

The chosen token is that of `plain.sample.sample`, up to the last bit of a logarithm or of a sum at a threshold.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..._core import kernels as core
from ..logit_edits import LogitEdits
from ..plain.sample import Logprobs, SamplingRows

_COLUMN_TYPES = (torch.int32, torch.float32, torch.int32, torch.float32, torch.float32, torch.int64, torch.int64)


def sample(
    logits: Tensor,
    mask_table: Tensor | None,
    rows: SamplingRows,
    edits: LogitEdits | None = None,
    num_top: int | None = None,
) -> tuple[Tensor, Logprobs | None]:
    num_rows, vocab_size = logits.shape
    token_ids = torch.empty(num_rows, dtype=torch.int64)
    raw = logits.float().contiguous()
    scores = raw if edits is None else _edited(raw, edits)
    mask = None if mask_table is None else mask_table.contiguous()
    rows = SamplingRows(*(each.to(dtype).contiguous() for each, dtype in zip(rows, _COLUMN_TYPES, strict=True)))
    core.sample_rows(
        scores.data_ptr(),
        num_rows,
        vocab_size,
        0 if mask is None else mask.data_ptr(),
        0 if mask is None else mask.shape[1],
        rows.mask_rows.data_ptr(),
        rows.temperature.data_ptr(),
        rows.top_k.data_ptr(),
        rows.top_p.data_ptr(),
        rows.min_p.data_ptr(),
        rows.seeds.data_ptr(),
        rows.positions.data_ptr(),
        token_ids.data_ptr(),
    )
    return token_ids, None if num_top is None else logprobs(raw, token_ids, num_top)


def logprobs(logits: Tensor, token_ids: Tensor, num_top: int) -> Logprobs:
    """See `plain.sample.logprobs`."""
    num_rows, vocab_size = logits.shape
    num_top = min(num_top, vocab_size)
    chosen = torch.empty(num_rows)
    top_ids, top = torch.empty((num_rows, num_top), dtype=torch.int64), torch.empty((num_rows, num_top))
    raw, token_ids = logits.float().contiguous(), token_ids.contiguous()
    pointers = (token_ids.data_ptr(), chosen.data_ptr(), top_ids.data_ptr(), top.data_ptr())
    core.report_rows(raw.data_ptr(), num_rows, vocab_size, *pointers, num_top)
    return Logprobs(chosen, top_ids, top)


def _edited(logits: Tensor, edits: LogitEdits) -> Tensor:
    """`plain.sample.edited`: a copy."""
    out = logits.clone()
    num_rows, vocab_size = out.shape
    counts, biases, drafted = (part.contiguous() for part in (edits.counts, edits.biases, edits.drafted))
    count_rows, bias_rows = edits.count_rows.contiguous(), edits.bias_rows.contiguous()
    repetition, presence, frequency = (
        part.contiguous() for part in (edits.repetition, edits.presence, edits.frequency)
    )
    core.edit_rows(
        out.data_ptr(),
        num_rows,
        vocab_size,
        counts.data_ptr() if len(counts) else 0,
        biases.data_ptr() if len(biases) else 0,
        count_rows.data_ptr(),
        bias_rows.data_ptr(),
        repetition.data_ptr(),
        presence.data_ptr(),
        frequency.data_ptr(),
        drafted.data_ptr(),
        drafted.shape[1],
    )
    return out
