"""A mixture of experts: every path against float64, and a row's numbers against its neighbours."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from phloem.kernels import LinearWeights, mix_experts, pack_linears, reference

SHAPES = {  # tokens, experts, chosen, hidden, inner, gelu
    "a token": (1, 4, 2, 40, 24, False),
    "more experts than pairs": (3, 37, 2, 48, 16, False),
    "an expert for all": (21, 5, 1, 70, 9, True),
    "many rows": (90, 3, 2, 33, 80, False),
    "all experts": (6, 6, 6, 64, 40, True),
    "one expert": (5, 1, 1, 64, 16, False),
    "none": (0, 4, 2, 40, 24, False),
}


def problem(shape: tuple[int, int, int, int, int, bool], dtype: torch.dtype = torch.float32) -> tuple[Any, ...]:
    """(x, chosen, shares, gate and up `[E, 2F, C]`, down `[E, C, F]`, is_gelu); the last expert is chosen by nobody."""
    num_tokens, num_experts, num_chosen, hidden, inner, is_gelu = shape
    x = torch.randn(num_tokens, hidden).to(dtype)
    wanted = torch.rand(num_tokens, num_experts)
    if num_experts > num_chosen:
        wanted[:, -1] = -1.0
    chosen = wanted.topk(num_chosen).indices
    gate_up = (torch.randn(num_experts, 2 * inner, hidden) / hidden**0.5).to(dtype)
    down = (torch.randn(num_experts, hidden, inner) / inner**0.5).to(dtype)
    return x, chosen, torch.rand(num_tokens, num_chosen), gate_up, down, is_gelu


def exact(x: Tensor, chosen: Tensor, shares: Tensor, gate_up: Tensor, down: Tensor, is_gelu: bool) -> Tensor:
    """Every expert for every row, in float64; shares of those that were not chosen are zero."""
    weight = torch.zeros(len(x), len(down), dtype=torch.float64).scatter(1, chosen, shares.double())
    gate, up = torch.einsum("tc,enc->etn", x.double(), gate_up.double()).chunk(2, dim=-1)
    gated = up * (torch.nn.functional.gelu(gate, approximate="tanh") if is_gelu else torch.nn.functional.silu(gate))
    return torch.einsum("etf,ecf,te->tc", gated, down.double(), weight)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("op", [mix_experts, reference.mix_experts], ids=["op", "twin"])
def test_the_op_and_its_twin_agree_with_float64(op: Any, shape: tuple[int, int, int, int, int, bool]) -> None:
    x, chosen, shares, gate_up, down, is_gelu = problem(shape)
    found = op(x, chosen, shares, pack_linears(gate_up), pack_linears(down), is_gelu=is_gelu)
    expected = exact(x, chosen, shares, gate_up, down, is_gelu)
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("int8", [False, True], ids=["whole", "int8"])
def test_the_op_equals_its_twin_in_what_a_weight_is_kept_as(int8: bool) -> None:
    x, chosen, shares, gate_up, down, _ = problem((11, 5, 2, 48, 32, False))
    weights = [pack_linears(stack, int8=int8) for stack in (gate_up, down)]
    found, expected = (each(x, chosen, shares, *weights) for each in (mix_experts, reference.mix_experts))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_half_types_on_the_cpu_agree_with_float64() -> None:
    x, chosen, shares, gate_up, down, _ = problem((11, 5, 2, 48, 32, False), torch.bfloat16)
    found = mix_experts(x, chosen, shares, pack_linears(gate_up), pack_linears(down))
    assert found.dtype is torch.bfloat16
    torch.testing.assert_close(found.double(), exact(x, chosen, shares, gate_up, down, False), atol=4e-2, rtol=4e-2)


@pytest.mark.parametrize("int8", [False, True], ids=["whole", "int8"])
def test_a_rows_bits_do_not_depend_on_who_chose_the_same_experts(int8: bool) -> None:
    x, chosen, shares, gate_up, down, _ = problem((40, 5, 3, 48, 32, False))
    weights = [pack_linears(stack, int8=int8) for stack in (gate_up, down)]
    together = mix_experts(x, chosen, shares, *weights)
    for rows in (slice(0, 1), slice(7, 9), slice(3, 30), slice(39, 40)):
        assert torch.equal(mix_experts(x[rows], chosen[rows], shares[rows], *weights), together[rows])


def on_device(stack: Tensor, device: torch.device, row_tile: int = 0) -> LinearWeights:
    """Plain weights, as a GPU has them."""
    return LinearWeights((), stack.to(device), row_tile)


@pytest.mark.parametrize("row_tile", [0, 256], ids=["fast", "deterministic"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_triton_agrees_with_float64(
    shape: tuple[int, int, int, int, int, bool], row_tile: int, device: torch.device
) -> None:
    from phloem.kernels import triton_experts

    x, chosen, shares, gate_up, down, is_gelu = problem(shape)
    weights = (on_device(stack, device, row_tile) for stack in (gate_up, down))
    moved = (each.to(device) for each in (x, chosen, shares))
    found = triton_experts.mix_experts(*moved, *weights, is_gelu=is_gelu)
    expected = exact(x, chosen, shares, gate_up, down, is_gelu)
    torch.testing.assert_close(found.cpu().double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("num_tokens", [4, 100], ids=["narrow tiles", "wide tiles"])
def test_triton_in_bfloat16_agrees_with_float64(num_tokens: int, device: torch.device, bfloat16: torch.dtype) -> None:
    from phloem.kernels import triton_experts

    x, chosen, shares, gate_up, down, _ = problem((num_tokens, 4, 2, 160, 48, False), bfloat16)
    weights = (on_device(stack, device) for stack in (gate_up, down))
    found = triton_experts.mix_experts(*(each.to(device) for each in (x, chosen, shares)), *weights, is_gelu=False)
    expected = exact(x, chosen, shares, gate_up, down, False)
    torch.testing.assert_close(found.cpu().double(), expected, atol=4e-2, rtol=4e-2)


def test_rows_of_a_view_are_read_where_they_lie(device: torch.device) -> None:
    from phloem.kernels import triton_experts

    x, chosen, shares, gate_up, down, _ = problem((6, 4, 2, 40, 24, False))
    wide = torch.full((6, 100), torch.nan, device=device)
    wide[:, 30:70] = x.to(device)
    weights = [on_device(stack, device) for stack in (gate_up, down)]
    chosen, shares = chosen.to(device), shares.to(device)
    found = triton_experts.mix_experts(wide[:, 30:70], chosen, shares, *weights, is_gelu=False)
    assert torch.equal(found, triton_experts.mix_experts(x.to(device), chosen, shares, *weights, is_gelu=False))
