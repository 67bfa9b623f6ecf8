"""Sparse activations of an MLP's gate: of each row's gates only those that stand out are kept (Gemma 3n).

::

    gate ← max(0, gate - (mean + z · deviation))      z: the normal distribution's quantile at the share that is cut

Several ranks have equal parts of the gates, and tell each other the mean and deviation of theirs, two numbers a token.
In fp32 on the CPU a row's bits depend on that row alone: sums of a row are made as LayerNorm makes them.
Sources: Spark Transformer's statistical top-k, arXiv 2506.06644; deviations of parts: Chan et al., "Updating formulae
and a pairwise algorithm for computing sample variances" (1979).
"""

from __future__ import annotations

from statistics import NormalDist

import torch
from torch import Tensor

from ..parallel.ranks import Ranks


def sparsen(gate_up: Tensor, share: float, ranks: Ranks) -> None:
    """Changes this rank's gates of an MLP, the first half of `[T, 2F]`, in place; nothing where no share is cut."""
    if not share:
        return
    gate = gate_up[:, : gate_up.shape[1] // 2]
    mean, deviation = moments(gate)
    if ranks.size > 1:
        mean, deviation = _of_all(torch.cat([mean, deviation], 1), ranks)
    cut = mean + NormalDist().inv_cdf(share) * deviation
    gate.copy_(torch.relu(gate.float() - cut))


def _of_all(own: Tensor, ranks: Ranks) -> tuple[Tensor, Tensor]:
    """Mean and deviation of what all ranks have, `[T, 1]` each, of those of one's equal part, `[T, 2]`."""
    parts, none = ranks.gather(own), own.new_zeros(len(own), 1)
    mean = sum((part[:, :1] for part in parts), none) / ranks.size
    spread = sum((part[:, 1:] ** 2 + (part[:, :1] - mean) ** 2 for part in parts), none)
    return mean, (spread / ranks.size).sqrt()


def moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each row of `[..., C]`, `[..., 1]` fp32."""
    wide = x.float().contiguous()
    _, mean, reciprocal = torch.native_layer_norm(wide, [x.shape[-1]], None, None, 0.0)
    return mean, 1 / reciprocal
