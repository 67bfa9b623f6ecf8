"""The ops of recurrent layers on the device: tokens of a segment one after the other, many channels or heads at once.

A program of the delta rule, or of a state space, holds `[Dk, VALUES]` of one head's state in registers for the whole of
its segment: a step that decodes reads and writes each state once. A long prompt is bound by the chain of its tokens,
not by arithmetic.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..plain.recurrent import HeadInputs
from ..state_rounds import StateRounds

ROWS, CHANNELS = 16, 64  # of a program
CONVOLUTION_REGISTERS = 96  # five programs of four warps; the compiler alone would spill to fit eight


def values_of(keys: int) -> int:
    """Values of a program that holds the state of n keys in registers."""
    return 32 if keys <= 128 else 16


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def take_segment(segments_ptr: tl.tensor) -> tl.tensor:
    """This program's segment: its first row, the row after its last, and the slots of the states read and written."""
    at = segments_ptr + 4 * tl.program_id(0).to(tl.int64)
    return tl.load(at), tl.load(at + 1), tl.load(at + 2), tl.load(at + 3)


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def convolve_rows(
    x_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    bias_ptr: tl.tensor,
    states_ptr: tl.tensor,
    out_ptr: tl.tensor,
    segments_ptr: tl.tensor,
    x_stride: tl.tensor,
    channels: tl.tensor,
    WIDTH: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_SILU: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
) -> None:
    KEPT: tl.constexpr = WIDTH - 1
    begin, end, read, write = take_segment(segments_ptr)
    first = begin + tl.program_id(1) * ROWS
    c = tl.program_id(2) * CHANNELS + tl.arange(0, CHANNELS)
    fits = c < channels
    rows = first + tl.arange(0, ROWS)
    total = tl.zeros((ROWS, CHANNELS), dtype=tl.float32)
    if HAS_BIAS:
        total += tl.load(bias_ptr + c, mask=fits, other=0.0)[None, :]
    for j in tl.static_range(WIDTH):
        source = rows - KEPT + j
        given = (source >= begin) & (source < end)
        x = tl.load(x_ptr + source[:, None] * x_stride + c[None, :], mask=given[:, None] & fits[None, :], other=0.0)
        place = read * KEPT + KEPT - (begin - source)  # negative without a state
        kept = (source < begin) & (place >= 0) & (rows < end)
        old = tl.load(
            states_ptr + place[:, None] * channels + c[None, :], mask=kept[:, None] & fits[None, :], other=0.0
        )
        weight = tl.load(weight_ptr + j * channels + c, mask=fits, other=0.0)
        total += weight[None, :] * (x.to(tl.float32) + old)
    if HAS_SILU:
        total = total / (1.0 + tl.exp(-total))
    inside = (rows < end)[:, None] & fits[None, :]
    tl.store(out_ptr + rows[:, None] * channels + c[None, :], total.to(out_ptr.dtype.element_ty), mask=inside)
    if tl.program_id(1) == 0:
        for j in tl.static_range(KEPT):
            input_row = end - KEPT + j + tl.zeros((CHANNELS,), dtype=tl.int64)
            is_new = fits & (input_row >= begin)
            new = tl.load(x_ptr + input_row * x_stride + c, mask=is_new, other=0.0).to(tl.float32)
            kept_row = read * KEPT + KEPT - (begin - input_row)
            is_kept = fits & (input_row < begin) & (kept_row >= 0)
            new += tl.load(states_ptr + kept_row * channels + c, mask=is_kept, other=0.0)
            tl.store(states_ptr + (write * KEPT + j) * channels + c, new, mask=fits)


@triton.jit  # type: ignore[untyped-decorator]
def step_heads(
    q_ptr: tl.tensor,
    k_ptr: tl.tensor,
    v_ptr: tl.tensor,
    a_ptr: tl.tensor,
    b_ptr: tl.tensor,
    rate_ptr: tl.tensor,
    step_bias_ptr: tl.tensor,
    skip_ptr: tl.tensor,
    states_ptr: tl.tensor,
    out_ptr: tl.tensor,
    segments_ptr: tl.tensor,
    q_stride: tl.tensor,
    k_stride: tl.tensor,
    v_stride: tl.tensor,
    a_stride: tl.tensor,
    b_stride: tl.tensor,
    heads: tl.tensor,
    repeats: tl.tensor,
    key_dim: tl.tensor,
    value_dim: tl.tensor,
    q_scale: tl.tensor,
    least: tl.tensor,
    most: tl.tensor,
    IS_DELTA: tl.constexpr,
    BY_KEY: tl.constexpr,
    KEYS: tl.constexpr,
    VALUES: tl.constexpr,
) -> None:
    head = tl.program_id(1).to(tl.int64)
    begin, end, read, write = take_segment(segments_ptr)
    i = tl.arange(0, KEYS)
    d = tl.program_id(2) * VALUES + tl.arange(0, VALUES)
    has_i, has_d = i < key_dim, d < value_dim
    inside = has_i[:, None] & has_d[None, :]
    place = i[:, None] * value_dim + d[None, :]
    source = (read * heads + head) * key_dim * value_dim + place  # negative without a state
    state = tl.load(states_ptr + source, mask=inside & (source >= 0), other=0.0)
    rate = tl.load(rate_ptr + head)
    if BY_KEY:
        step_bias = tl.load(step_bias_ptr + head * key_dim + i, mask=has_i, other=0.0)
    else:
        step_bias = tl.load(step_bias_ptr + head)
    key_head = head // repeats
    for row in range(begin, end):
        q = tl.load(q_ptr + row * q_stride + key_head * key_dim + i, mask=has_i, other=0.0).to(tl.float32)
        k = tl.load(k_ptr + row * k_stride + key_head * key_dim + i, mask=has_i, other=0.0).to(tl.float32)
        v = tl.load(v_ptr + row * v_stride + head * value_dim + d, mask=has_d, other=0.0).to(tl.float32)
        if BY_KEY:
            given = tl.load(a_ptr + row * a_stride + head * key_dim + i, mask=has_i, other=0.0).to(tl.float32)
        else:
            given = tl.load(a_ptr + row * a_stride + head).to(tl.float32)
        given += step_bias
        softplus = tl.where(given > 20.0, given, tl.log(1.0 + tl.exp(tl.minimum(given, 20.0))))
        taken = tl.maximum(tl.minimum(softplus, most), least)
        state = state * tl.exp(-rate * taken)[:, None] if BY_KEY else state * tl.exp(-rate * taken)
        if IS_DELTA:
            q = q * tl.rsqrt(tl.sum(q * q, 0) + 1e-6) * q_scale
            k = k * tl.rsqrt(tl.sum(k * k, 0) + 1e-6)
            learnt = 1.0 / (1.0 + tl.exp(-tl.load(b_ptr + row * b_stride + head).to(tl.float32)))
            change = (v - tl.sum(state * k[:, None], 0)) * learnt
        else:
            change = v * taken
        state = state + k[:, None] * change[None, :]
        out = tl.sum(state * q[:, None], 0)
        if not IS_DELTA:
            out += tl.load(skip_ptr + head) * v
        tl.store(out_ptr + (row * heads + head) * value_dim + d, out.to(out_ptr.dtype.element_ty), mask=has_d)
    tl.store(states_ptr + (write * heads + head) * key_dim * value_dim + place, state, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def step_channels(
    x_ptr: tl.tensor,
    a_ptr: tl.tensor,
    b_ptr: tl.tensor,
    c_ptr: tl.tensor,
    rate_ptr: tl.tensor,
    step_bias_ptr: tl.tensor,
    skip_ptr: tl.tensor,
    states_ptr: tl.tensor,
    out_ptr: tl.tensor,
    segments_ptr: tl.tensor,
    x_stride: tl.tensor,
    a_stride: tl.tensor,
    b_stride: tl.tensor,
    c_stride: tl.tensor,
    channels: tl.tensor,
    state_dim: tl.tensor,
    STATE: tl.constexpr,
    CHANNELS: tl.constexpr,
) -> None:
    begin, end, read, write = take_segment(segments_ptr)
    n = tl.arange(0, STATE)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    has_n, fits = n < state_dim, channel < channels
    inside = has_n[:, None] & fits[None, :]
    place = n[:, None] * channels + channel[None, :]
    source = read * state_dim * channels + place  # negative without a state
    state = tl.load(states_ptr + source, mask=inside & (source >= 0), other=0.0)
    rate = tl.load(rate_ptr + place, mask=inside, other=0.0)
    step_bias = tl.load(step_bias_ptr + channel, mask=fits, other=0.0)
    skip = tl.load(skip_ptr + channel, mask=fits, other=0.0)
    for row in range(begin, end):
        x = tl.load(x_ptr + row * x_stride + channel, mask=fits, other=0.0).to(tl.float32)
        given = tl.load(a_ptr + row * a_stride + channel, mask=fits, other=0.0).to(tl.float32) + step_bias
        b = tl.load(b_ptr + row * b_stride + n, mask=has_n, other=0.0).to(tl.float32)
        c = tl.load(c_ptr + row * c_stride + n, mask=has_n, other=0.0).to(tl.float32)
        step = tl.where(given > 20.0, given, tl.log(1.0 + tl.exp(tl.minimum(given, 20.0))))
        state = state * tl.exp(-rate * step[None, :]) + b[:, None] * (step * x)[None, :]
        out = tl.sum(state * c[:, None], 0) + skip * x
        tl.store(out_ptr + row * channels + channel, out.to(out_ptr.dtype.element_ty), mask=fits)
    tl.store(states_ptr + write * state_dim * channels + place, state, mask=inside)


def convolve(
    x: Tensor, weight: Tensor, bias: Tensor | None, states: Tensor, plan: StateRounds, *, silu: bool
) -> Tensor:
    channels = x.shape[1]
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    for segments in plan.rounds:
        grid = (len(segments), triton.cdiv(plan.longest, ROWS), triton.cdiv(channels, CHANNELS))
        convolve_rows[grid](
            x,
            weight,
            weight if bias is None else bias,
            states,
            out,
            segments,
            x.stride(0),
            channels,
            WIDTH=len(weight),
            HAS_BIAS=bias is not None,
            HAS_SILU=silu,
            ROWS=ROWS,
            CHANNELS=CHANNELS,
            maxnreg=CONVOLUTION_REGISTERS,
        )
    return out


def advance_heads(inputs: HeadInputs, states: Tensor, plan: StateRounds) -> Tensor:
    v = inputs.v
    num_rows, heads, value_dim = v.shape
    key_heads, key_dim = inputs.q.shape[1:]
    out = torch.empty(num_rows, heads, value_dim, dtype=v.dtype, device=v.device)
    rows = [x.flatten(1) for x in (inputs.q, inputs.k, v, inputs.a)]
    rows.append(rows[-1] if inputs.b is None else inputs.b)
    keys = triton.next_power_of_2(key_dim)
    values = values_of(keys)
    for segments in plan.rounds:
        step_heads[(len(segments), heads, triton.cdiv(value_dim, values))](
            *rows,
            inputs.rate,
            inputs.step_bias,
            inputs.rate if inputs.skip is None else inputs.skip,
            states,
            out,
            segments,
            *(x.stride(0) for x in rows),
            heads,
            heads // key_heads,
            key_dim,
            value_dim,
            key_dim**-0.5,
            *inputs.limits,
            IS_DELTA=inputs.b is not None,
            BY_KEY=inputs.a.dim() == 3,
            KEYS=keys,
            VALUES=values,
        )
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
    channels, state_dim = x.shape[1], rate.shape[0]
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    for segments in plan.rounds:
        step_channels[(len(segments), triton.cdiv(channels, CHANNELS))](
            x,
            a,
            b,
            c,
            rate,
            step_bias,
            skip,
            states,
            out,
            segments,
            *(each.stride(0) for each in (x, a, b, c)),
            channels,
            state_dim,
            STATE=triton.next_power_of_2(state_dim),
            CHANNELS=CHANNELS,
        )
    return out
