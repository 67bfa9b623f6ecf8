"""A mixture of experts beside a layer's MLP: both take the residual, each through a norm of its own (Gemma 4).

::

    residual ─┬─ mlp_norm ─ MLP ─ norm ──────────────────────────────────────────┐
              ├─ norm · scales ─ router ─ choice ─ shares · scale of an expert ─┐ + ─ post_mlp_norm ─ + residual
              └─ norm ─ chosen experts ─────────────────────────────────────────┴─ norm ─┘

In fp32 on the CPU a row's bits depend on that row alone. Cost: that of the MLP and that of the mixture.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...kernels import ops
from ..parallel.ranks import Ranks
from .experts import ExpertRules, ExpertsWeights, mixture
from .norms import Norm, apply_norm, read_norm
from .reader import Reader


@dataclass(frozen=True, slots=True)
class BesideNorms:
    """Norms of a layer's mixture and of its MLP, fp32.

    Attributes:
        router: of what the router takes, its scales and 1 / sqrt(hidden_size) in the weight.
        given: of what experts take.
        mixed, dense: of what the mixture and the MLP make.
    """

    router: Tensor
    given: Norm
    mixed: Norm
    dense: Norm


def read_beside(reader: Reader, base: str) -> BesideNorms:
    """The tensors below `base` (`model.layers.<i>.`). Raises ModelError: one is missing or odd."""
    hidden = reader.config.hidden_size
    return BesideNorms(
        router=reader.tensor([f"{base}router.scale"], [hidden], []).float() * hidden**-0.5,
        given=read_norm(reader, f"{base}pre_feedforward_layernorm_2"),
        mixed=read_norm(reader, f"{base}post_feedforward_layernorm_2"),
        dense=read_norm(reader, f"{base}post_feedforward_layernorm_1"),
    )


def add_mixture(
    dense: Tensor,
    residual: Tensor,
    norms: BesideNorms,
    weights: ExpertsWeights,
    rules: ExpertRules,
    slots: Tensor | None,
    ranks: Ranks,
    eps: float,
) -> Tensor:
    """What an MLP made, `[T, C]`, and what the mixture makes of the residual; slots: as `mixture` has them.

    dense: of this rank's part. The norms of both see the sums of all ranks, which are one operation; so does what is
    returned.
    """
    scored = ops.rms_norm(residual.float(), norms.router, eps)
    mixed = mixture(apply_norm(residual, norms.given, eps), weights, rules, slots, ranks, scored)
    if ranks.size > 1:
        dense, mixed = ranks.sum(torch.stack([dense, mixed]))
    return apply_norm(dense, norms.dense, eps) + apply_norm(mixed, norms.mixed, eps)
