"""The ops of recurrent layers on the CPU: one compiled loop each (`core/recurrent.cpp`), shared out to the threads.

Inputs of other types are widened to fp32, and outputs rounded to theirs. Widths are multiples of 8.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..._core import kernels as core
from ..state_rounds import StateRounds
from .threads import ONE_TEAM, num_cpu_threads


def convolve(
    x: Tensor, weight: Tensor, bias: Tensor | None, states: Tensor, plan: StateRounds, *, silu: bool
) -> Tensor:
    rows, (num_rows, channels) = _rows(x), x.shape
    out = torch.empty(num_rows, channels)
    bias_at = 0 if bias is None else bias.data_ptr()
    pointers = (rows.data_ptr(), weight.data_ptr(), bias_at, states.data_ptr(), out.data_ptr())
    for segments in plan.rounds:
        shape = (num_rows, rows.stride(0), channels, len(weight), silu)
        core.convolve(ONE_TEAM, num_cpu_threads(), *pointers, segments.data_ptr(), len(segments), *shape)
    return out.to(x.dtype)


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
    return _advance(q, k, v, a, b, rate, step_bias, None, (0.0, math.inf), states, plan)


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
    return _advance(q, k, v, a, None, rate, step_bias, skip, limits, states, plan)


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
    inputs, steps, keys, queries = (_rows(each) for each in (x, a, b, c))
    if keys.stride(0) != queries.stride(0):
        keys, queries = keys.contiguous(), queries.contiguous()
    num_rows, channels = inputs.shape
    out = torch.empty(num_rows, channels)
    given = (inputs.data_ptr(), steps.data_ptr(), keys.data_ptr(), queries.data_ptr())
    constants, places = (rate.data_ptr(), step_bias.data_ptr(), skip.data_ptr()), (states.data_ptr(), out.data_ptr())
    strides = (inputs.stride(0), steps.stride(0), keys.stride(0))
    for segments in plan.rounds:
        rows = (segments.data_ptr(), len(segments), num_rows)
        core.advance_channels(
            ONE_TEAM, num_cpu_threads(), *given, *constants, *places, *rows, *strides, channels, rate.shape[0]
        )
    return out.to(x.dtype)


def _advance(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor | None,
    rate: Tensor,
    step_bias: Tensor,
    skip: Tensor | None,
    limits: tuple[float, float],
    states: Tensor,
    plan: StateRounds,
) -> Tensor:
    num_rows, heads, value_dim = v.shape
    _, key_heads, key_dim = q.shape
    queries, keys, values = (_rows(x.flatten(1)) for x in (q, k, v))
    forgets = _rows(a.flatten(1))
    learns = forgets if b is None else _rows(b)
    if queries.stride(0) != keys.stride(0):
        queries, keys = queries.contiguous(), keys.contiguous()
    out = torch.empty(num_rows, heads, value_dim)
    learns_at, skip_at = (0 if b is None else learns.data_ptr()), (0 if skip is None else skip.data_ptr())
    inputs = (queries.data_ptr(), keys.data_ptr(), values.data_ptr(), forgets.data_ptr(), learns_at)
    constants, places = (rate.data_ptr(), step_bias.data_ptr(), skip_at), (states.data_ptr(), out.data_ptr())
    strides = (queries.stride(0), values.stride(0), forgets.stride(0), learns.stride(0))
    shape, by_key = (heads, key_heads, key_dim, value_dim), a.dim() == 3
    for segments in plan.rounds:
        rows = (segments.data_ptr(), len(segments), num_rows)
        core.advance_heads(
            ONE_TEAM,
            num_cpu_threads(),
            *inputs,
            *constants,
            limits[0],
            limits[1],
            *places,
            *rows,
            *strides,
            *shape,
            by_key,
        )
    return out.to(v.dtype)


def _rows(x: Tensor) -> Tensor:
    """fp32, with a dense last axis."""
    x = x.float()
    return x if x.stride(-1) == 1 else x.contiguous()
