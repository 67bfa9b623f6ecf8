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
