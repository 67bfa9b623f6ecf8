"""Ops of recurrent layers: tokens in, and a state that takes the place of the keys and values of all earlier tokens.

A *state* lies in a slot of a pool, `[num_slots, ...]` fp32, as blocks of KV do. `StateRounds` says for a step which
rows follow one another, from which slot their state comes, and where the state after them goes::

    round 0   rows 0 to 31    slot 5 → slot 9      a prompt up to a checkpoint, which others may read later
              row 40          slot 2 → slot 3      a request that decodes
    round 1   rows 32 to 39   slot 9 → slot 6      the rest of that prompt

A state is read and written in different slots, so a step that is computed again has the same outcome.

Every op has a twin in `plain/recurrent.py`, where its contract is. Tokens of a segment come one after the other, on all
paths: no bit depends on where a step begins or ends. Knows no requests, and not whose slots they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .plain import recurrent as reference
from .transfer import send

ZEROS = -1  # the slot that is read where nothing came before


@dataclass(frozen=True, slots=True)
class StateRounds:
    """The segments of a step: one tensor per round, `[S, 4]` int64: first row, row after the last, slots read, written.

    A round reads what earlier rounds have written. Attributes: longest: rows of the longest segment.
    """

    rounds: tuple[Tensor, ...]
    longest: int


def plan_states(rounds: Sequence[npt.NDArray[np.int64]], device: torch.device) -> StateRounds:
    """rounds: the segments of each, `[S, 4]`; none is empty."""
    longest = max((int((rows[:, 1] - rows[:, 0]).max()) for rows in rounds), default=0)
    return StateRounds(tuple(send(np.ascontiguousarray(rows), device) for rows in rounds), longest)


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None, states: Tensor, plan: StateRounds, *, silu: bool) -> Tensor:
    """A causal convolution of each channel by itself: x `[T, C]` -> `[T, C]`; changes states `[N, K - 1, C]`.

    weight `[K, C]`, bias `[C]`, fp32. See `reference.convolve`.
    """
    if x.is_cuda:
        from .triton import recurrent as triton_recurrent

        return triton_recurrent.convolve(x, weight, bias, states, plan, silu=silu)
    if x.shape[1] % 8 == 0:
        from .cpu import recurrent as cpu_recurrent

        return cpu_recurrent.convolve(x, weight, bias, states, plan, silu=silu)
    return reference.convolve(x, weight, bias, states, plan, silu=silu)


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
    """The gated delta rule: q, k `[T, Hk, Dk]`, v `[T, H, Dv]` -> `[T, H, Dv]`; changes states `[N, H, Dk, Dv]`.

    a, b `[T, H]` say how much is forgotten and learnt; rate, step_bias `[H]` fp32. See `reference.apply_delta_rule`.
    """
    if q.is_cuda:
        from .triton import recurrent as triton_recurrent

        return triton_recurrent.apply_delta_rule(q, k, v, a, b, rate, step_bias, states, plan)
    if q.shape[2] % 8 == 0 and v.shape[2] % 8 == 0:
        from .cpu import recurrent as cpu_recurrent

        return cpu_recurrent.apply_delta_rule(q, k, v, a, b, rate, step_bias, states, plan)
    return reference.apply_delta_rule(q, k, v, a, b, rate, step_bias, states, plan)
