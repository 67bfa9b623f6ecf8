"""Products of deterministic mode on the device: right, and every row as it is alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from phloem.kernels import LinearWeight, launch
from phloem.kernels.plain import ops as reference

from .. import lazy_triton as triton
from ..rounding import whole_numbers

SHAPES = {"square": (192, 192), "deep, cut": (1100, 70), "wide": (48, 330), "odd": (37, 131), "one": (1, 1)}


def device_linear(x: Tensor, weight: LinearWeight) -> Tensor:
    return triton.linear.linear(x, weight)


def weight_of(depth: int, num_outputs: int, dtype: torch.dtype, device: torch.device, *, bias: bool) -> LinearWeight:
    """Stored as it is, as on a GPU, in fp32 too."""
    return stored_as_is(torch.randn(num_outputs, depth), torch.randn(num_outputs) if bias else None, dtype, device)


def stored_as_is(matrix: Tensor, bias: Tensor | None, dtype: torch.dtype, device: torch.device) -> LinearWeight:
    num_outputs, depth = matrix.shape
    own = None if bias is None else bias.to(dtype).to(device)
    return LinearWeight(matrix.to(dtype).to(device), own, num_outputs, depth, bias is not None, row_tile=256)


@pytest.mark.parametrize(("num_rows", "bias"), [(0, True), (1, False), (5, True), (64, False), (65, True)])
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_the_twin(shape: str, num_rows: int, bias: bool, dtype: torch.dtype, device: torch.device) -> None:
    """To the last bit: sums of whole numbers that fp32 does not round are rounded once, to the type, on either side."""
    depth, num_outputs = SHAPES[shape]
    weight = stored_as_is(
        whole_numbers(num_outputs, depth), whole_numbers(num_outputs) if bias else None, dtype, device
    )
    wide = torch.full((num_rows, depth + 3), torch.nan).to(dtype).to(device)
    x = wide[:, :depth]
    x.copy_(whole_numbers(num_rows, depth))
    assert torch.equal(device_linear(x, weight), reference.linear(x, weight))


def test_few_rows_are_cut_into_splits_and_many_walk_them() -> None:
    few, many = (launch.linear_config(num_rows, 2) for num_rows in (64, 65))
    assert few.splits and not many.splits
    assert few.block_depth == many.block_depth
    assert many.block_rows == 2 * few.block_rows
    assert launch.linear_splits(70, 1100) > 1
    assert launch.linear_splits(4096, 4096) == 8
    assert launch.linear_splits(128256, 4096) == 1


@pytest.mark.parametrize("shape", ["deep, cut", "wide"])
@pytest.mark.parametrize("element", [torch.float32, torch.float16], ids=str)
def test_a_row_has_the_bits_that_it_has_alone(shape: str, element: torch.dtype, device: torch.device) -> None:
    torch.manual_seed(3)
    weight = weight_of(*SHAPES[shape], element, device, bias=True)
    x = torch.randn(70, SHAPES[shape][0]).to(element).to(device)
    together = device_linear(x, weight)
    for first, count in ((0, 1), (33, 1), (69, 1), (0, 64), (5, 65), (40, 7)):
        assert torch.equal(device_linear(x[first : first + count], weight), together[first : first + count])


def test_a_split_less_has_other_bits(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the test above would not see the splits."""
    torch.manual_seed(4)
    weight = weight_of(600, 70, torch.float32, device, bias=False)
    x = torch.randn(3, 600, device=device)
    assert launch.linear_splits(70, 600) == 2
    found = device_linear(x, weight)
    monkeypatch.setattr(triton.linear, "linear_splits", lambda *_: 1)
    assert not torch.equal(device_linear(x, weight), found)
