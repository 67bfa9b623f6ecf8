"""The ops of recurrent layers on the CPU: one compiled loop each (`core/recurrent.cpp`), shared out to the threads.

Inputs of other types are widened to fp32, and outputs rounded to theirs. Widths are multiples of 8.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..._core import kernels as core
from ..plain.recurrent import HeadInputs
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


def advance_heads(inputs: HeadInputs, states: Tensor, plan: StateRounds) -> Tensor:
    v, skip, (num_rows, heads, value_dim) = inputs.v, inputs.skip, inputs.v.shape
    queries, keys, values, forgets = (_rows(x.flatten(1)) for x in (inputs.q, inputs.k, v, inputs.a))
    learns = forgets if inputs.b is None else _rows(inputs.b)
    if queries.stride(0) != keys.stride(0):
        queries, keys = queries.contiguous(), keys.contiguous()
    out = torch.empty(num_rows, heads, value_dim)
    learns_at, skip_at = (0 if inputs.b is None else learns.data_ptr()), (0 if skip is None else skip.data_ptr())
    given = (queries.data_ptr(), keys.data_ptr(), values.data_ptr(), forgets.data_ptr(), learns_at)
    constants = (inputs.rate.data_ptr(), inputs.step_bias.data_ptr(), skip_at, *inputs.limits)
    places = (states.data_ptr(), out.data_ptr())
    strides = (queries.stride(0), values.stride(0), forgets.stride(0), learns.stride(0))
    shape = (heads, *inputs.q.shape[1:], value_dim, inputs.a.dim() == 3)
    for segments in plan.rounds:
        rows = (segments.data_ptr(), len(segments), num_rows)
        core.advance_heads(ONE_TEAM, num_cpu_threads(), *given, *constants, *places, *rows, *strides, *shape)
    return out.to(v.dtype)


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


def _rows(x: Tensor) -> Tensor:
    """fp32, with a dense last axis."""
    x = x.float()
    return x if x.stride(-1) == 1 else x.contiguous()
