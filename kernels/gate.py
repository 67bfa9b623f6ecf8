"""The activation of an MLP: how the output of its first projection, `gate | up`, becomes one number per pair.

::

    silu        silu(gate) · up                                 SwiGLU, Shazeer, arXiv 2002.05202
    gelu_tanh   gelu(gate, tanh approximation) · up             Gemma
    clamped     g · sigmoid(alpha · g) · (u + 1)                gpt-oss, arXiv 2508.10925
                g = min(gate, limit), u = up within ± limit
    squared     max(gate, 0)² · up                              BitNet b1.58, arXiv 2504.12285
    relu2       max(up, 0)²                                     Nemotron-H; there is no gate

It is data, not a function, so that every backend computes the same one in its own way. Knows no tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Gate:
    """One row of the table above; alpha and limit, both above 0, are those of "clamped"."""

    kind: Literal["silu", "gelu_tanh", "clamped", "squared", "relu2"] = "silu"
    alpha: float = 1.0
    limit: float = float("inf")


SILU = Gate()
