"""Linear maps of which each rank has a part of the inputs; the sum of the ranks' results is the map's.

Where a checkpoint asks for inputs that are rounded by each row's own step, which is as large as the largest of them, a
rank would have to know the inputs of the others. It is told that one number of each row: its weight gets columns of
zeros, and its inputs that number beside them, so that the product rounds by the step of the whole row::

    rank 0   x₀ x₁ │ most      w₀ w₁ │ 0        most = the largest of |x₀| |x₁| |x₂| |x₃|
    rank 1   x₂ x₃ │ most      w₂ w₃ │ 0
"""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from ...kernels import PLACES, Grouped, LinearWeight, LoraPlan, ops
from ..parallel.ranks import ALONE, Ranks

AT_QKV, AT_O, AT_GATE_UP, AT_DOWN = range(len(PLACES))  # of what adapters add to
NUM_COLUMNS = 32  # of zeros: a step of a GPU's kernel


def with_room(weight: Grouped, ranks: Ranks) -> Grouped:
    """A rank's part of a matrix, `[N, K]`, with columns for what `partial_linear` adds to its inputs, if it does."""
    if ranks.size == 1 or weight.input_step != 0:
        return weight
    return replace(weight, numbers=F.pad(weight.numbers, (0, NUM_COLUMNS)))


def partial_linear(x: Tensor, weight: LinearWeight, ranks: Ranks) -> Tensor:
    """What a rank's part of the inputs, `[T, K]`, adds to `[T, N]`."""
    room = weight.num_inputs - x.shape[1]
    if room:
        most = ranks.largest(x.abs().amax(1, keepdim=True))
        x = torch.cat([x, most.expand(-1, room)], 1)
    return ops.linear(x, weight)


def adapted_linear(
    x: Tensor, weight: LinearWeight, lora: LoraPlan | None, layer: int, place: int, ranks: Ranks = ALONE
) -> Tensor:
    """A linear map, and what adapters add to it. ranks: those that have a part of the inputs each."""
    out = partial_linear(x, weight, ranks)
    if lora is not None:
        ops.add_lora(out, x, lora, layer, place)
    return out
