"""Ops of recurrent layers: tokens in, and a state that takes the place of the keys and values of all earlier tokens.

Every op has a twin in `plain/recurrent.py`, where its contract is. Tokens of a segment (`state_rounds.py`) come one
after the other, on all paths: no bit depends on where a step begins or ends.
"""

from __future__ import annotations

from torch import Tensor

from .cpu import recurrent as cpu_recurrent
from .plain import recurrent as reference
from .plain.recurrent import HeadInputs as HeadInputs
from .state_rounds import StateRounds


def convolve(
    x: Tensor, weight: Tensor, bias: Tensor | None, states: Tensor, plan: StateRounds, *, silu: bool
) -> Tensor:
    """A causal convolution of each channel by itself: x `[T, C]` -> `[T, C]`; changes states `[N, K - 1, C]`.

    weight `[K, C]`, bias `[C]`, fp32. See `reference.convolve`.
    """
    if x.is_cuda:
        from .triton import recurrent as triton_recurrent

        return triton_recurrent.convolve(x, weight, bias, states, plan, silu=silu)
    if x.shape[1] % 8 == 0:
        return cpu_recurrent.convolve(x, weight, bias, states, plan, silu=silu)
    return reference.convolve(x, weight, bias, states, plan, silu=silu)


def advance_heads(inputs: HeadInputs, states: Tensor, plan: StateRounds) -> Tensor:
    """The gated delta rule, or a selective state space: `[T, H, Dv]`; changes states `[N, H, Dk, Dv]`.

    See `reference.advance_heads`.
    """
    if inputs.q.is_cuda:
        from .triton import recurrent as triton_recurrent

        return triton_recurrent.advance_heads(inputs, states, plan)
    if inputs.q.shape[2] % 8 == 0 and inputs.v.shape[2] % 8 == 0:
        return cpu_recurrent.advance_heads(inputs, states, plan)
    return reference.advance_heads(inputs, states, plan)


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
    """A selective state space of each channel by itself: x `[T, C]` -> `[T, C]`; changes states `[N, S, C]`.

    a `[T, C]`: steps before their softplus; b, c `[T, S]`; rate `[S, C]`, step_bias, skip `[C]` fp32. See
    `reference.scan_channels`.
    """
    if x.is_cuda:
        from .triton import recurrent as triton_recurrent

        return triton_recurrent.scan_channels(x, a, b, c, rate, step_bias, skip, states, plan)
    if x.shape[1] % 8 == 0:
        return cpu_recurrent.scan_channels(x, a, b, c, rate, step_bias, skip, states, plan)
    return reference.scan_channels(x, a, b, c, rate, step_bias, skip, states, plan)
