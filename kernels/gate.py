"""How a gated MLP joins what its first projection makes, `gate | up`, into one number for each pair.

::

    silu        silu(gate) · up                                 SwiGLU, Shazeer, arXiv 2002.05202
    gelu_tanh   gelu(gate, tanh approximation) · up             Gemma
    clamped     g · sigmoid(alpha · g) · (u + 1)                gpt-oss, arXiv 2508.10925
                g = min(gate, limit), u = up within ± limit

It is data and no function, so that whoever computes it, in whatever place, knows what is wanted. Knows no tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Gate:
    """One row of the table above; alpha and limit, both above 0, are those of "clamped"."""

    kind: Literal["silu", "gelu_tanh", "clamped"] = "silu"
    alpha: float = 1.0
    limit: float = float("inf")


SILU = Gate()
