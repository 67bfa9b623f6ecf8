"""Activations of MLPs without a gate, `down(f(up(x)))`: StarCoder 2, Nemotron, Arcee, Apertus, Phi, GPT-NeoX.

::

    relu2       max(x, 0)²                                                    So et al., arXiv 2109.08668
    gelu_tanh   x · sigmoid(√(8/π) · (x + 0.044715 x³))                       Hendrycks & Gimpel, arXiv 1606.08415
    gelu        x · (1 + erf(x / √2)) / 2
    xielu       a · x² + b · x                            where x > 0         Huang & Schlag, arXiv 2411.13010
                c · (exp(min(x, e)) - 1 - x) + b · x      elsewhere

In fp32 on the CPU a number's bits depend on nothing but that number: torch's own exp, tanh and erf take other
instructions for the last numbers of a tensor than for the others. So they are made of `ops.sigmoid` and of operations
that IEEE 754 rounds exactly.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ...kernels import ops
from .architecture import Curve
from .reader import Reader

# Abramowitz & Stegun, Handbook of Mathematical Functions, 7.1.26: erf to 1.5e-7
ERF_T, ERF = 0.3275911, (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)


def read_curve(reader: Reader, base: str) -> Tensor | None:
    """The learned numbers a, b, c, e of xIELU, fp32 `[4]`; None: the activation has none.

    Raises:
        ModelError: one is missing.
    """
    if reader.config.curve != "xielu":
        return None
    parts = (reader.scalar(f"{base}mlp.act_fn.{name}") for name in ("alpha_p", "alpha_n", "beta", "eps"))
    positive, negative, beta, eps = parts
    positive, negative = F.softplus(positive), F.softplus(negative)
    return torch.stack([positive, beta, beta + negative, eps])


def bend(x: Tensor, curve: Curve, learned: Tensor | None) -> Tensor:
    """The activation of every number: `[T, F]` -> `[T, F]`."""
    if curve == "relu2":
        return torch.relu(x).square()
    if curve == "relu":
        return torch.relu(x)
    wide = x.float()
    if curve == "silu":
        return (wide * ops.sigmoid(wide)).to(x.dtype)
    if curve == "gelu_tanh":
        return (wide * ops.sigmoid(math.sqrt(8 / math.pi) * (wide + 0.044715 * wide * wide * wide))).to(x.dtype)
    if curve == "gelu":
        return F.gelu(x) if x.is_cuda else _gelu(wide).to(x.dtype)
    assert learned is not None
    positive, beta, negative, eps = learned.unbind()
    below = _exp(torch.minimum(wide, eps)) - 1 - wide
    return (torch.where(wide > 0, positive * wide * wide, negative * below) + beta * wide).to(x.dtype)


def _exp(x: Tensor) -> Tensor:
    """Of numbers of at most 0."""
    share = ops.sigmoid(x)
    return share / (1 - share)


def _gelu(x: Tensor) -> Tensor:
    double = x.double().abs() / math.sqrt(2)
    t = 1 / (1 + ERF_T * double)
    series = torch.zeros_like(t)
    for factor in reversed(ERF):
        series = (series + factor) * t
    upper = series * _exp(-double * double) / 2  # the share of the normal distribution above |x|
    return (x.double() * torch.where(x > 0, 1 - upper, upper)).float()
