"""How far a result in floating point may be from the exact one on any machine, from its operands.

A library takes a sum in the order that suits the processor, the shape and the threads, with fused multiply-adds or
without. Whatever it does, a sum of n products is off by at most `gamma(n) * sum |a| |b|` (Higham, Accuracy and
Stability of Numerical Algorithms, 2nd edition, section 3.1). So a test takes its bound from the operands, not from what
one machine was seen to do. Sharper still are whole numbers so small that no sum of them is rounded: there equal bits
are right in every order, and a test that can should use them.
"""

from __future__ import annotations

import torch
from torch import Tensor


def gamma(count: float, dtype: torch.dtype = torch.float32) -> float:
    """The relative error of `count` roundings: `n u / (1 - n u)`, u half of eps (Higham, lemma 3.1)."""
    most = count * torch.finfo(dtype).eps / 2
    assert most < 0.5, "too many roundings for a bound"
    return most / (1 - most)


def product_bound(x: Tensor, matrix: Tensor, bias: Tensor | None = None, *, more: int = 0) -> Tensor:
    """The most that `x @ matrix.T + bias` of fp32 sums may be off, `[T, N]` float64; more: other roundings."""
    size = x.double().abs() @ matrix.double().abs().T
    size = size if bias is None else size + bias.double().abs()
    return gamma(x.shape[1] + 1 + more) * size


def stored_bound(bound: Tensor, exact: Tensor, dtype: torch.dtype) -> Tensor:
    """`bound` of results that are then rounded to `dtype`, where they may be subnormal."""
    kind = torch.finfo(dtype)
    return bound + kind.eps / 2 * (exact.abs() + bound) + kind.smallest_normal * kind.eps / 2


def assert_within(found: Tensor, exact: Tensor, bound: Tensor | float) -> None:
    """`|found - exact| <= bound` for every number; what is no number in `exact` is none in `found`."""
    found, exact = found.cpu().double(), exact.cpu().double()
    assert found.shape == exact.shape
    off = (found - exact).abs().masked_fill(found.isnan() & exact.isnan(), 0.0)
    off = off.masked_fill(found == exact, 0.0)  # infinities
    if not (off <= bound).all():
        share = (off / torch.as_tensor(bound).clamp(min=1e-300)).nan_to_num(torch.inf).flatten()
        at = int(share.argmax())
        values = f"{float(found.flatten()[at])!r} for {float(exact.flatten()[at])!r}"
        raise AssertionError(f"{int((~(off <= bound)).sum())} of {off.numel()} are off, most number {at}: {values}")


def whole_numbers(*shape: int, most: int = 4) -> Tensor:
    """Random whole numbers from -most to most, fp32."""
    return torch.randint(-most, most + 1, shape).float()


def fused_sums(x: Tensor, matrix: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x @ matrix.T + bias`, fp32 `[T, N]`, as one chain of fused multiply-adds each, from the bias through the inputs.

    Bit by bit as a processor does it: in float64 a product is exact, and a sum rounded to odd (Boldo and Melquiond,
    2008) is then rounded to fp32 as the exact sum would be.
    """
    x, matrix = x.double(), matrix.double()
    total = torch.zeros(len(x), len(matrix)) if bias is None else bias.float().expand(len(x), -1)
    for column, weights in zip(x.unbind(1), matrix.unbind(1), strict=True):
        product, before = column[:, None] * weights, total.double()
        after = product + before
        shift = after - product
        lost = (product - (after - shift)) + (before - shift)  # of the sum, exactly (Knuth's TwoSum)
        bits = after.view(torch.int64)
        step = torch.where((lost > 0) == (after > 0), 1, -1)
        is_even = bits % 2 == 0
        total = (bits + torch.where((lost != 0) & is_even, step, 0)).view(torch.float64).float()
    return total
