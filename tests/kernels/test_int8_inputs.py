"""int8 by int8: rows are rounded as the format says, sums are exact, and a row's bits are its own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from phloem.kernels import Gate, Grouped, LinearWeight, LinearWeights, device_grouped, ops, pack_grouped
from phloem.kernels.grouped import INPUT_LIMIT, stack
from phloem.kernels.plain import ops as reference
from phloem.kernels.plain.rounding import quantise_rows

from . import lazy_triton as triton
from .on_device import on_device

SHAPES = [(33, 40), (20, 1281), (70, 96)]
STEPS = [0.0, 0.02]
ROUNDINGS = [(0.0, INPUT_LIMIT), (0.0, 127.0), (0.02, INPUT_LIMIT)]


def random_weight(shape: tuple[int, int], input_step: float, input_limit: float = INPUT_LIMIT) -> Grouped:
    numbers = torch.randint(-128, 128, shape).to(torch.int8)
    return Grouped("int8", numbers, torch.rand(shape[0], 1) / 100, input_step=input_step, input_limit=input_limit)


def random_rows(num_rows: int, num_inputs: int) -> Tensor:
    x = torch.randn(num_rows, num_inputs) * torch.logspace(-3, 3, num_rows)[:, None]
    x[1] = 0
    x[2, :4] = torch.tensor([127.5, 0.5, 1.5, -2.5])  # ties, by their own step of 1
    x[2, 4:] = 0
    return x


def published(x: Tensor, weight: Grouped, bias: Tensor, input_step: float) -> Tensor:
    """`q = clamp(round(x / scale), -128, 127)`, in fp32; `scale` is `max |x| / (255 / 2)` in compressed-tensors and
    `max |x| / 127` in BitNet."""
    most = x.abs().amax(1, keepdim=True)
    scale = torch.tensor(input_step) if input_step else most / torch.tensor(weight.input_limit)
    whole = torch.clamp(torch.round(x / torch.where(scale == 0, 1.0, scale)), -128, 127)
    return (whole.double() * scale) @ weight.exact().T + bias


@pytest.fixture(params=SHAPES, ids=str)
def shape(request: pytest.FixtureRequest) -> tuple[int, int]:
    torch.manual_seed(4)
    found: tuple[int, int] = request.param
    return found


@pytest.mark.parametrize(("input_step", "input_limit"), ROUNDINGS)
def test_products_on_the_cpu_are_those_of_the_format(
    shape: tuple[int, int], input_step: float, input_limit: float
) -> None:
    weight, bias, x = random_weight(shape, input_step, input_limit), torch.randn(shape[0]), random_rows(25, shape[1])
    packed = pack_grouped(weight, bias, rounds_inputs=True)
    found = ops.linear(x, packed)
    torch.testing.assert_close(found.double(), published(x, weight, bias, input_step), rtol=4e-7, atol=1e-6)
    torch.testing.assert_close(found, reference.linear(x, packed), rtol=2e-7, atol=2e-7)
    assert torch.equal(packed.matrix(), weight.widen(torch.float32))
    for num_rows in (1, 2, 7):
        assert torch.equal(ops.linear(x[3 : 3 + num_rows], packed), found[3 : 3 + num_rows])


@pytest.mark.parametrize("spoilt", [torch.nan, torch.inf])
@pytest.mark.parametrize("input_step", STEPS)
def test_a_row_that_is_no_number_gives_none_and_spoils_no_other(input_step: float, spoilt: float) -> None:
    weight, x = random_weight((20, 40), input_step), torch.randn(3, 40)
    x[1, 7] = spoilt
    found = ops.linear(x, pack_grouped(weight))
    assert found[1].isnan().all()
    assert found[::2].isfinite().all()


def laid_out(weight: Grouped, bias: Tensor, device: torch.device) -> LinearWeight:
    stored, groups = device_grouped.lay_out(weight, torch.float16)
    return on_device(LinearWeight(stored, bias.half(), *weight.numbers.shape, True, groups=groups), device)


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_triton_rounds_to_the_same_numbers(
    shape: tuple[int, int], rounding: tuple[float, float], device: torch.device
) -> None:
    x = random_rows(9, shape[1]).to(device)
    for found, expected in zip(triton.int8.quantised(x, *rounding), quantise_rows(x, *rounding), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("num_rows", [0, 5, 70])
def test_triton_multiplies_as_the_twin(shape: tuple[int, int], num_rows: int, device: torch.device) -> None:
    weight = laid_out(random_weight(shape, 0.0), torch.randn(shape[0]), device)
    x = torch.randn(num_rows, shape[1]).half().to(device)
    found = triton.grouped.linear(x, weight)
    torch.testing.assert_close(found, reference.linear(x, weight), rtol=1e-3, atol=1e-3)
    if num_rows == 70:
        for first, count in ((0, 1), (33, 20), (5, 64)):
            assert torch.equal(triton.grouped.linear(x[first : first + count], weight), found[first : first + count])


@pytest.mark.parametrize(("num_tokens", "rounding"), [(0, ROUNDINGS[0]), (3, ROUNDINGS[2]), (17, ROUNDINGS[1])])
def test_triton_multiplies_rows_of_experts_as_the_twin(
    num_tokens: int, rounding: tuple[float, float], device: torch.device
) -> None:
    """Few rows for each expert, with biases, and many, without."""
    torch.manual_seed(num_tokens)
    num_experts, hidden, inner = 2, 160, 40
    x, chosen = torch.randn(num_tokens, hidden).half(), torch.rand(num_tokens, num_experts).topk(2).indices.int()
    kept = []
    for shape in ((2 * inner, hidden), (hidden, inner)):
        whole = stack([random_weight(shape, *rounding) for _ in range(num_experts)])
        assert whole is not None
        stored, groups = device_grouped.lay_out(whole, torch.float16)
        bias = torch.randn(num_experts, shape[0]).half() if num_tokens == 3 else None
        kept.append(LinearWeights((), stored.view(num_experts, shape[0], -1), 0, bias, groups=groups))
    shares = torch.rand(num_tokens, 2)
    rows = (on_device(each, device) for each in (x, chosen, shares, *kept))
    found = triton.experts.mix_experts(*rows, gate=Gate("silu"))
    expected = reference.mix_experts(x, chosen, shares, *kept, gate=Gate("silu"))
    torch.testing.assert_close(found.cpu(), expected, rtol=2e-3, atol=2e-3)
