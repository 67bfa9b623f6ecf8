"""Sparse activations of an MLP's gate: of each row's gates only those that stand out are kept (Gemma 3n).

::

    gate ← max(0, gate - (mean + z · deviation))      z: the normal distribution's quantile at the share that is cut

Source: Spark Transformer's statistical top-k, arXiv 2506.06644. In fp32 on the CPU a row's bits depend on that row
alone: sums of a row are made as LayerNorm makes them.
"""

from __future__ import annotations

from statistics import NormalDist

import torch
from torch import Tensor

from .json_file import Fields


def read_sparsity(fields: Fields, num_layers: int) -> list[float]:
    """By layer the share of gates that is cut, below 1; 0: none is. Raises ModelError: it is odd."""
    key = "activation_sparsity_pattern"
    if key not in fields:
        return [0.0] * num_layers
    found = fields.numbers(key)
    if len(found) != num_layers or not all(0.0 <= share < 1.0 for share in found):
        raise fields.odd(key, f"{num_layers} numbers of at least 0 and below 1")
    return list(found)


def sparsen(gate_up: Tensor, share: float) -> None:
    """Changes the gates of an MLP, the first half of `[T, 2F]`, in place; nothing where no share of them is cut."""
    if not share:
        return
    gate = gate_up[:, : gate_up.shape[1] // 2]
    mean, deviation = moments(gate)
    cut = mean + NormalDist().inv_cdf(share) * deviation
    gate.copy_(torch.relu(gate.float() - cut))


def moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each row of `[..., C]`, `[..., 1]` fp32."""
    wide = x.float().contiguous()
    _, mean, reciprocal = torch.native_layer_norm(wide, [x.shape[-1]], None, None, 0.0)
    return mean, 1 / reciprocal
