"""The reference of the ops of recurrent layers: token by token, in plain torch.

Same names and signatures as in `kernels/recurrent.py`. All is computed in fp32 and rounded to the type of the inputs
once, at the end; states stay fp32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..state_rounds import StateRounds

NORM_EPS = 1e-6


@dataclass(frozen=True, slots=True)
class HeadInputs:
    """What moves the states of heads on, matrices `[H, Dk, Dv]`: numbers of T tokens, and constants of a layer in fp32.

    Attributes:
        q, k: `[T, Hk, Dk]`; a key head serves H / Hk heads that stand next to each other.
        v: `[T, H, Dv]`.
        a: `[T, H]`, how much is forgotten; `[T, H, Dk]`: of each key (Kimi Delta Attention, arXiv 2510.26692).
        rate, step_bias: `[H]`; step_bias `[H, Dk]` with such an a.
        b: `[T, H]`, how much is learnt by the delta rule; None: it is a state space.
        skip: `[H]`, of a state space alone.
        limits: between which `softplus(a + step_bias)` is kept.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    a: Tensor
    rate: Tensor
    step_bias: Tensor
    b: Tensor | None = None
    skip: Tensor | None = None
    limits: tuple[float, float] = (0.0, math.inf)


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


def advance_heads(inputs: HeadInputs, states: Tensor, plan: StateRounds) -> Tensor:
    """`[T, H, Dv]`; changes states `[N, H, Dk, Dv]`. For each token and head, with `d = softplus(a + step_bias)`,

    `S = exp(-rate * d) S`, `S = S + k (x) sigmoid(b) (v - S^T k)`, `out = S^T q` by the gated delta rule (Yang et al.,
    arXiv 2412.06464, equation 10), where queries and keys have length 1 (a millionth is added to the square) and
    queries are divided by sqrt(Dk) too; and as a state space (Mamba 2: Dao and Gu, arXiv 2405.21060, where q and k are
    called C and B, and a key head a group)

    `S = exp(-rate * d) S + k (x) d v`, `out = S^T q + skip v`.
    """
    v, skip, learnt = inputs.v, inputs.skip, None
    out, queries, keys = torch.empty_like(v), inputs.q.float(), inputs.k.float()
    if inputs.b is not None:
        queries, keys, learnt = _of_length_one(queries), _of_length_one(keys), torch.sigmoid(inputs.b.float())
        queries = queries / queries.shape[2] ** 0.5
    queries, keys = (x.repeat_interleave(v.shape[1] // x.shape[1], 1) for x in (queries, keys))
    steps = F.softplus(inputs.a.float() + inputs.step_bias).clamp(*inputs.limits)
    decay = torch.exp(-inputs.rate.view(-1, 1) * steps.view(*v.shape[:2], -1))
    for segments in plan.rounds:
        for begin, end, read, write in segments.tolist():
            state = states[read].clone() if read >= 0 else torch.zeros_like(states[0])
            for t in range(begin, end):
                state, value = state * decay[t, :, :, None], v[t].float()
                if learnt is None:
                    change = value * steps[t, :, None]
                else:
                    change = (value - torch.einsum("hkv,hk->hv", state, keys[t])) * learnt[t, :, None]
                state = state + keys[t][:, :, None] * change[:, None, :]
                found = torch.einsum("hkv,hk->hv", state, queries[t])
                out[t] = (found if skip is None else found + skip[:, None] * value).to(v.dtype)
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
