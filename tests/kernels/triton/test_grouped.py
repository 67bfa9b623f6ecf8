"""Products with weights of few bits on the device: what the dequantised weights give, and every row as it is alone."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from phloem.kernels import Gate, Grouped, LinearWeight, device_grouped, launch
from phloem.kernels.grouped import Element, stack
from phloem.kernels.linear_weights import LinearWeights
from phloem.kernels.plain import ops as reference

from .. import lazy_triton as triton
from ..on_device import on_device
from ..rounding import assert_within, product_bound, stored_bound
from ..test_experts import Problem

# outputs, inputs, size of a group, rows
SHAPES = {
    "groups of 32": (70, 96, 32),
    "of 128": (48, 256, 128),
    "one, cut": (40, 1024, 1024),
    "of 192": (33, 384, 192),
}
ELEMENTS: tuple[Element, ...] = ("int4", "int8", "e4m3", "uint4")
COMPANIONS: dict[Element, str] = {"int4": "zeros", "int8": "zeros", "e4m3": "", "uint4": "offsets"}


def random_weight(element: Element, shape: tuple[int, int, int], *, companion: str) -> Grouped:
    num_outputs, num_inputs, size = shape
    middle = 8 if element in ("int4", "uint4") else 128
    numbers = torch.randint(-middle, middle, (num_outputs, num_inputs)).to(torch.int8)
    if element == "uint4":
        numbers += middle
    if element == "e4m3":
        numbers = torch.randn(num_outputs, num_inputs).mul(60).to(torch.float8_e4m3fn)
    scales = torch.rand(num_outputs, num_inputs // size).add(0.1).half() / num_inputs**0.5
    zeros = torch.randint(-middle, middle, scales.shape).to(torch.int8) if companion == "zeros" else None
    offsets = torch.randn(scales.shape) / num_inputs**0.5 if companion == "offsets" else None
    return Grouped(element, numbers, scales / middle, zeros, offsets=offsets)


def laid_out(weight: Grouped, dtype: torch.dtype, device: torch.device, *, row_tile: int = 0) -> LinearWeight:
    stored, groups = device_grouped.lay_out(weight, dtype)
    bias = torch.randn(len(stored)).to(dtype)
    return on_device(LinearWeight(stored, bias, *weight.numbers.shape, True, row_tile, groups=groups), device)


def device_linear(x: Tensor, weight: LinearWeight) -> Tensor:
    return triton.grouped.linear(x, weight)


KINDS: list[tuple[Element, str]] = [*COMPANIONS.items(), ("int4", ""), ("int8", ""), ("int8", "offsets")]
ROWS_AND_TYPES = list(itertools.product((5, 70), (torch.float16, torch.bfloat16)))


@pytest.mark.parametrize("at", range(len(SHAPES)), ids=SHAPES)
@pytest.mark.parametrize("kind", range(len(KINDS)), ids=["-".join(kind) for kind in KINDS])
def test_equals_the_dequantised_weights(kind: int, at: int, device: torch.device, bfloat16: torch.dtype) -> None:
    """A Latin square: every kind and every shape meets every number of rows in every type."""
    (element, companion), shape = KINDS[kind], list(SHAPES)[at]
    num_rows, dtype = ROWS_AND_TYPES[(kind + at) % len(ROWS_AND_TYPES)]
    weight = random_weight(element, SHAPES[shape], companion=companion)
    kept = laid_out(weight, dtype, device)
    x = torch.randn(num_rows, SHAPES[shape][1] + 16).to(dtype).to(device)[:, : SHAPES[shape][1]]
    assert kept.bias is not None
    exact, size = x.cpu().double() @ weight.exact().T + kept.bias.cpu().double(), weight.exact().abs()
    if weight.offsets is not None:  # numbers and offsets are summed apart
        size += 2 * weight.offsets.double().abs().repeat_interleave(weight.size, 1)
    bound = product_bound(x.cpu(), size, kept.bias.cpu(), more=8)
    assert_within(device_linear(x, kept), exact, stored_bound(bound, exact, dtype))
    assert device_linear(x[:0], kept).shape == (0, exact.shape[1])


@pytest.mark.parametrize("element", ELEMENTS)
def test_a_row_has_the_bits_that_it_has_alone(element: Element, device: torch.device) -> None:
    """In deterministic mode: few rows, whose inputs are cut among programs, and many, which walk all of them."""
    torch.manual_seed(3)
    shape = (40, 640, 128)
    weight = laid_out(random_weight(element, shape, companion=COMPANIONS[element]), torch.float16, device, row_tile=256)
    assert launch.linear_splits(shape[0], shape[1]) > 1
    x = torch.randn(70, shape[1]).half().to(device)
    together = device_linear(x, weight)
    for first, count in ((0, 1), (69, 1), (0, 64), (5, 65)):
        assert torch.equal(device_linear(x[first : first + count], weight), together[first : first + count])


@pytest.mark.parametrize(
    ("element", "num_tokens"), [*itertools.product(ELEMENTS, [40]), ("int4", 1), ("int8", 5), ("e4m3", 1), ("uint4", 5)]
)
def test_experts_and_their_twin_agree_with_float64(element: Element, num_tokens: int, device: torch.device) -> None:
    torch.manual_seed(num_tokens)
    num_experts, hidden, inner = 5, 128, 64
    kept: list[LinearWeights] = []
    for shape in ((2 * inner, hidden, 128), (hidden, inner, 32)):
        whole = stack([random_weight(element, shape, companion=COMPANIONS[element]) for _ in range(num_experts)])
        assert whole is not None
        stored, groups = device_grouped.lay_out(whole, torch.float16)
        kept.append(LinearWeights((), stored.view(num_experts, shape[0], -1), groups=groups))
    x, shares = torch.randn(num_tokens, hidden).half(), torch.rand(num_tokens, 2)
    chosen = torch.stack([torch.randperm(num_experts)[:2] for _ in range(num_tokens)])
    problem = Problem(x, chosen, shares, *(weights.matrices() for weights in kept), None, None, Gate("silu"))
    rows = (on_device(each, device) for each in (x, chosen.int(), shares, *kept))
    found = triton.experts.mix_experts(*rows, gate=Gate("silu"))
    exact, bound = problem.exact_and_bound()
    for each in (found, reference.mix_experts(x, chosen, shares, *kept, gate=Gate("silu"))):
        assert_within(each, exact, bound)
