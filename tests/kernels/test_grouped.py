"""Weights of few bits in groups on the CPU: the very numbers in every layout, and the products that meet them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from phloem.kernels import Grouped, LinearWeight, device_grouped, ops, pack_grouped, pack_linear
from phloem.kernels.cpu.threads import WORTH_SHARING
from phloem.kernels.grouped import Element, round_to_int4, stack

from .rounding import assert_within, gamma, product_bound

# element, zeros or offsets, an order of inputs; outputs, inputs, size of a group
KINDS: dict[str, tuple[Element, str, bool]] = {
    "int4": ("int4", "", False),
    "int4, zeros": ("int4", "zeros", False),
    "int4, zeros, ordered": ("int4", "zeros", True),
    "int8, zeros": ("int8", "zeros", False),
    "e4m3": ("e4m3", "", False),
    "uint4, offsets": ("uint4", "offsets", False),
    "int8, offsets": ("int8", "offsets", False),
}
SHAPES = {"groups of 32": (40, 96, 32), "of 8": (33, 56, 8), "of 128": (131, 256, 128), "one": (17, 192, 192)}
ROWS = [1, 2, 3, 4, 5, 7, 12, 13, 25]


def random_weight(kind: str, shape: str) -> Grouped:
    element, besides, is_ordered = KINDS[kind]
    num_outputs, num_inputs, size = SHAPES[shape]
    middle = 8 if element == "int4" else 128
    numbers = torch.randint(-middle, middle, (num_outputs, num_inputs)).to(torch.int8)
    if element == "uint4":
        numbers = torch.randint(0, 16, (num_outputs, num_inputs)).to(torch.int8)
    if element == "e4m3":
        numbers = torch.arange(num_outputs * num_inputs).to(torch.uint8).view(num_outputs, -1)
        numbers[numbers & 0x7F == 0x7F] = 0  # what is no number
        numbers = numbers.view(torch.float8_e4m3fn)
    scales = torch.rand(num_outputs, num_inputs // size) * 0.1
    zeros = torch.randint(-middle, middle, scales.shape).to(torch.int8) if besides == "zeros" else None
    offsets = torch.randn(scales.shape) * 0.1 if besides == "offsets" else None
    order = torch.randperm(num_inputs) if is_ordered else None
    return Grouped(element, numbers, scales.half() if besides else scales, zeros, order, offsets)


@pytest.fixture(params=[(kind, shape) for kind in KINDS for shape in SHAPES], ids="-".join)
def weight(request: pytest.FixtureRequest) -> Grouped:
    torch.manual_seed(5)
    return random_weight(*request.param)


def test_every_layout_holds_the_very_numbers(weight: Grouped) -> None:
    wide = weight.widen(torch.float32)
    # a sum with an offset is rounded as the larger of both is
    most = 0.0 if weight.offsets is None else 6e-8 * float(weight.offsets.abs().max())
    torch.testing.assert_close(wide.double(), weight.exact(), atol=most, rtol=6e-8)
    rows = torch.randint(0, len(wide), (9,))
    assert torch.equal(weight[rows].widen(torch.float32), wide[rows])
    for rounds_inputs in (False, True):
        packed = pack_grouped(weight, rounds_inputs=rounds_inputs)
        assert torch.equal(packed.matrix(), wide)
        assert torch.equal(packed.rows(rows), wide[rows])
    if device_grouped.fits(weight):
        stored, groups = device_grouped.lay_out(weight, torch.bfloat16)
        apart = device_grouped.take_apart(stored, groups)
        assert torch.equal(replace(apart, order=weight.order).widen(torch.float32), wide)
        if weight.order is None:
            assert torch.equal(device_grouped.rows(stored, groups, rows), wide[rows].bfloat16())


def test_a_product_has_the_bits_of_the_same_numbers_in_fp32(weight: Grouped) -> None:
    bias = torch.randn(len(weight.numbers))
    wide, order = weight.widen(torch.float32), weight.order
    packed = pack_grouped(weight, bias)
    plain = pack_linear(wide if order is None else wide[:, order], bias)
    assert packed.num_bytes < plain.num_bytes
    for num_rows in ROWS:
        x = torch.randn(num_rows, wide.shape[1])
        assert torch.equal(ops.linear(x, packed), ops.linear(x if order is None else x[:, order], plain))


def most_error(x: Tensor, weight: Grouped, size: int) -> Tensor:
    """How far a product may be off, `[T, N]`: half a step for every input of a group, and rounding of the sums."""
    order = torch.arange(x.shape[1]) if weight.order is None else weight.order
    rows, matrix = x.double()[:, order], weight.exact()[:, order].abs()
    if weight.offsets is not None:  # numbers and offsets are summed apart
        apart = weight.offsets.double().abs().repeat_interleave(weight.size, 1)
        matrix = 2 * apart + matrix
    steps = rows.abs().view(len(x), -1, size).amax(-1) / min(32767, (2**31 - 1) // (512 * size))
    steps = steps.repeat_interleave(size, 1)
    return (0.51 * steps) @ matrix.T + product_bound(rows, matrix, more=8)


def test_inputs_that_are_rounded_change_a_product_by_half_a_step_each(weight: Grouped) -> None:
    bias = torch.randn(len(weight.numbers))
    packed = pack_grouped(weight, bias, rounds_inputs=True)
    assert packed.groups is not None
    if weight.element == "e4m3":
        assert not packed.groups.rounds_inputs
        return
    x = torch.randn(25, packed.num_inputs) * torch.logspace(-3, 3, packed.num_inputs)
    x[3] = 0
    found, exact = ops.linear(x, packed), x.double() @ weight.exact().T + bias.double()
    assert_within(found, exact, most_error(x, weight, packed.groups.size) + gamma(4) * bias.abs())
    assert torch.equal(found[3], bias)
    for num_rows in ROWS:
        assert torch.equal(ops.linear(x[:num_rows], packed), found[:num_rows])


@pytest.mark.parametrize("rounds_inputs", [False, True])
def test_threads_change_no_bit(rounds_inputs: bool) -> None:
    torch.manual_seed(6)
    weight = pack_grouped(round_to_int4(torch.randn(1040, 512), 32), rounds_inputs=rounds_inputs)
    x, threads = torch.randn(9, 512), torch.get_num_threads()
    assert WORTH_SHARING < 1040 * 512 * 9
    found = []
    for count in (1, 3):
        torch.set_num_threads(count)
        found.append(ops.linear(x, weight))
    torch.set_num_threads(threads)
    assert torch.equal(*found)


def test_rounding_to_four_bits_is_off_by_half_a_step() -> None:
    torch.manual_seed(7)
    matrix = torch.randn(20, 96)
    matrix[3] = 0
    rounded = round_to_int4(matrix, 32)
    steps = rounded.scales.abs().repeat_interleave(32, 1)
    off = (rounded.widen(torch.float32) - matrix).abs()
    farthest = matrix.view(20, 3, 32).abs().argmax(-1, keepdim=True)
    # the end that is not the farther one may lie up to a whole step beyond 7
    assert (off <= 1.001 * steps).all()
    assert (off > 0.501 * steps).float().mean() < 0.02
    assert off.view(20, 3, 32).gather(-1, farthest).amax() < 1e-6


def test_what_differs_in_form_is_not_stacked() -> None:
    torch.manual_seed(8)
    plain, zeros, ordered = (
        random_weight(kind, "groups of 32") for kind in ("int4", "int4, zeros", "int4, zeros, ordered")
    )
    eight = random_weight("int8, zeros", "groups of 32")
    finer = plain.regrouped(8)
    whole = stack([plain, zeros, finer])
    assert whole is not None
    assert (whole.size, whole.numbers.shape) == (8, (120, 96))
    expected = torch.cat([part.widen(torch.float32) for part in (plain, zeros, plain)])
    assert torch.equal(whole.widen(torch.float32), expected)
    assert stack([plain, ordered]) is None
    assert (
        stack([ordered, replace(ordered, order=ordered.order.flip(0) if ordered.order is not None else None)]) is None
    )
    assert stack([plain, random_weight("e4m3", "groups of 32")]) is None
    assert stack([eight, random_weight("int8, offsets", "groups of 32")]) is None


def test_four_bits_beside_eight_become_eight() -> None:
    torch.manual_seed(9)
    four, offset, eight = (random_weight(kind, "groups of 32") for kind in ("int4", "uint4, offsets", "int8, offsets"))
    whole = stack([four, offset, eight.regrouped(16)])
    assert whole is not None
    assert (whole.element, whole.size) == ("int8", 16)
    assert torch.equal(
        whole.widen(torch.float32), torch.cat([part.widen(torch.float32) for part in (four, offset, eight)])
    )


def test_an_embedding_of_four_bits_has_no_row_beyond_its_end() -> None:
    weight: LinearWeight = pack_linear(torch.randn(20, 32), quantise="int4")
    with pytest.raises(IndexError, match="is not among 32"):
        weight.rows(torch.tensor([32]))
