"""Log-probabilities on a GPU: the sum of exponentials from the groups' summaries, and the likeliest tokens in order.

One pass over the logits (`triton.scores`, shared with sampling if both are wanted), then one small program per row,
which reads the row's summaries and, for each of the N likeliest tokens, the group of 128 that holds the next one.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..plain.sample import Logprobs
from .scores import GROUP, Summaries, load_raw, summarise_raw


# compiled once, whatever number of tokens is asked for and wherever a request's rows begin
@triton.jit(do_not_specialize=("num_top",), do_not_specialize_on_alignment=("token_ids_ptr",))  # type: ignore[untyped-decorator]  # triton has no types
def report_logprobs(
    logits_ptr: tl.tensor,  # [R, V]
    tops_ptr: tl.tensor,  # [R, G] fp32, of the raw logits
    masses_ptr: tl.tensor,
    token_ids_ptr: tl.tensor,  # [R] int64
    chosen_ptr: tl.tensor,  # [R] fp32
    top_ids_ptr: tl.tensor,  # [R, N] int64
    top_values_ptr: tl.tensor,  # [R, N] fp32
    logits_stride: tl.tensor,
    vocab_size: tl.tensor,
    num_groups: tl.tensor,
    num_top: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    """Log-probabilities of one row's token and of its likeliest tokens: the next one is in the group that leads."""
    row = tl.program_id(0).to(tl.int64)
    logits = logits_ptr + row * logits_stride
    g = tl.arange(0, BLOCK)
    rest = tl.load(tops_ptr + row * num_groups + g, mask=g < num_groups, other=float("-inf"))
    masses = tl.load(masses_ptr + row * num_groups + g, mask=g < num_groups, other=0.0)
    top = tl.max(rest, 0)
    log_mass = tl.log(tl.sum(masses * tl.exp(rest - top), 0))
    token = tl.load(token_ids_ptr + row)
    own = load_raw(logits, token, (token >= 0) & (token < vocab_size))
    tl.store(chosen_ptr + row, tl.where(token >= 0, own - top - log_mass, float("nan")))
    last, last_id = float("inf"), -1  # what was reported last; what follows it in the order is left
    for i in range(num_top):
        most = tl.max(rest, 0)
        group = tl.min(tl.where(rest == most, g, 2147483647), 0)
        n = group * GROUP + tl.arange(0, GROUP)
        x = load_raw(logits, n, n < vocab_size)
        is_left = (x < last) | ((x == last) & (n > last_id))
        last = most
        last_id = tl.min(tl.where(is_left & (x == most), n, 2147483647), 0)
        tl.store(top_ids_ptr + row * num_top + i, tl.where(most > float("-inf"), last_id, -1).to(tl.int64))
        tl.store(top_values_ptr + row * num_top + i, most - top - log_mass)
        is_left = (x < last) | ((x == last) & (n > last_id))
        rest = tl.where(g == group, tl.max(tl.where(is_left, x, float("-inf")), 0), rest)


def logprobs(logits: Tensor, token_ids: Tensor, num_top: int) -> Logprobs:
    """`reference.logprobs` on the device."""
    return report(logits, summarise_raw(logits) if len(logits) else None, token_ids, num_top)


def report(logits: Tensor, raw: Summaries | None, token_ids: Tensor, num_top: int) -> Logprobs:
    """Log-probabilities from the summaries of the raw logits (None: there are no rows)."""
    num_rows, vocab_size = logits.shape
    num_top = min(num_top, vocab_size)
    chosen = torch.empty(num_rows, dtype=torch.float32, device=logits.device)
    top_ids = torch.empty((num_rows, num_top), dtype=torch.int64, device=logits.device)
    top = torch.empty((num_rows, num_top), dtype=torch.float32, device=logits.device)
    if raw is not None:
        num_groups = raw.tops.shape[1]
        report_logprobs[(num_rows,)](
            logits,
            *raw,
            token_ids,
            chosen,
            top_ids,
            top,
            logits.stride(0),
            vocab_size,
            num_groups,
            num_top,
            BLOCK=triton.next_power_of_2(num_groups),
            num_warps=4,
            enable_fp_fusion=False,
        )
    return Logprobs(chosen, top_ids, top)
