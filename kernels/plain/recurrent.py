"""The reference of the ops of recurrent layers: token by token, in plain torch.

Same names and signatures as in `kernels/recurrent.py`. All is computed in fp32 and rounded to the type of the inputs
once, at the end; states stay fp32.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..state_rounds import StateRounds

NORM_EPS = 1e-6


def convolve(
    x: Tensor, weight: Tensor, bias: Tensor | None, states: Tensor, plan: StateRounds, *, silu: bool
) -> Tensor:
    """`out[t] = bias + sum over j of weight[j] * x[t - K + 1 + j]` (and SiLU), over the rows of a segment.

    What came before the segment's first row is its state, the last K - 1 inputs; zeros where there was nothing.
    """
    out = torch.empty_like(x)
    kept = states.shape[1]
    for segments in plan.rounds:
        for begin, end, read, write in segments.tolist():
            before = states[read] if read >= 0 else torch.zeros_like(states[0])
            rows = torch.cat([before, x[begin:end].float()])
            sums = torch.stack([rows[j : j + end - begin] * weight[j] for j in range(kept + 1)]).sum(0)
            sums = sums if bias is None else sums + bias
            out[begin:end] = (F.silu(sums) if silu else sums).to(x.dtype)
            states[write] = rows[len(rows) - kept :]
    return out


def apply_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    rate: Tensor,
    step_bias: Tensor,
    states: Tensor,
    plan: StateRounds,
) -> Tensor:
    """Gated DeltaNet (Yang et al., arXiv 2412.06464, equation 10): for each token and value head,

    `S = exp(-rate * softplus(a + step_bias)) S`, `S = S + k (x) sigmoid(b) (v - S^T k)`, `out = S^T q`.

    `a [T, H, Dk]` with a step_bias `[H, Dk]` makes a decay of each key (Kimi Delta Attention, arXiv 2510.26692).

    Queries and keys have length 1 (a millionth is added to the square), queries over sqrt(Dk) too; a key head serves
    H / Hk value heads that stand next to each other.
    """
    out = torch.empty_like(v)
    repeats = v.shape[1] // q.shape[1]
    queries, keys = (_of_length_one(x.float()).repeat_interleave(repeats, 1) for x in (q, k))
    queries = queries / q.shape[2] ** 0.5
    decay = torch.exp(-rate.view(-1, 1) * F.softplus(a.float() + step_bias).view(len(a), len(rate), -1))
    learnt = torch.sigmoid(b.float())
    for segments in plan.rounds:
        for begin, end, read, write in segments.tolist():
            state = states[read].clone() if read >= 0 else torch.zeros_like(states[0])
            for t in range(begin, end):
                state = state * decay[t, :, :, None]
                found = torch.einsum("hkv,hk->hv", state, keys[t])
                change = (v[t].float() - found) * learnt[t, :, None]
                state = state + keys[t][:, :, None] * change[:, None, :]
                out[t] = torch.einsum("hkv,hk->hv", state, queries[t]).to(v.dtype)
            states[write] = state
    return out


def scan_states(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    rate: Tensor,
    step_bias: Tensor,
    skip: Tensor,
    limits: tuple[float, float],
    states: Tensor,
    plan: StateRounds,
) -> Tensor:
    """Mamba 2 (Dao and Gu, arXiv 2405.21060): for each token and head, with d = softplus(a + step_bias) within limits,

    `S = exp(-rate * d) S + k (x) d v`, `out = S^T q + skip v`. q and k are called C and B there, and a key head, which
    serves H / Hk heads that stand next to each other, a group.
    """
    out = torch.empty_like(v)
    repeats = v.shape[1] // q.shape[1]
    queries, keys = (x.float().repeat_interleave(repeats, 1) for x in (q, k))
    steps = F.softplus(a.float() + step_bias).clamp(*limits)
    decay = torch.exp(-rate * steps)
    for segments in plan.rounds:
        for begin, end, read, write in segments.tolist():
            state = states[read].clone() if read >= 0 else torch.zeros_like(states[0])
            for t in range(begin, end):
                value = v[t].float()
                change = value * steps[t, :, None]
                state = state * decay[t, :, None, None] + keys[t][:, :, None] * change[:, None, :]
                out[t] = (torch.einsum("hkv,hk->hv", state, queries[t]) + skip[:, None] * value).to(v.dtype)
            states[write] = state
    return out


def scan_channels(
    x: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    rate: Tensor,
    step_bias: Tensor,
    skip: Tensor,
    states: Tensor,
    plan: StateRounds,
) -> Tensor:
    """Mamba (Gu and Dao, arXiv 2312.00752): for each token and channel, with d = softplus(a + step_bias),

    `S[n] = exp(-rate[n] * d) S[n] + b[n] d x`, `out = sum over n of c[n] S[n] + skip x`.
    """
    out = torch.empty_like(x)
    steps, inputs = F.softplus(a.float() + step_bias), x.float()
    for segments in plan.rounds:
        for begin, end, read, write in segments.tolist():
            state = states[read].clone() if read >= 0 else torch.zeros_like(states[0])
            for t in range(begin, end):
                given = b[t].float()[:, None] * (steps[t] * inputs[t])
                state = state * torch.exp(-rate * steps[t]) + given
                out[t] = (c[t].float() @ state + skip * inputs[t]).to(x.dtype)
            states[write] = state
    return out


def _of_length_one(x: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + NORM_EPS)
