"""Adapters on the device: right, and every row as it is alone."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor

from phloem.kernels import FixedBuffer, LinearWeight, LoraLayers, LoraSegment, LoraWeight
from phloem.kernels.lora import RANK_STEP, LoraPlan, cut_tiles, plan_lora
from phloem.kernels.plain import ops as reference

from .. import lazy_triton as triton
from ..rounding import whole_numbers

OUTPUTS = 150
NUM_ROWS = 41


def device_add(out: Tensor, x: Tensor, plan: LoraPlan) -> Tensor:
    out = out.clone()
    triton.lora.add_lora(out, x, plan, 1, 2)
    return out


def plain(matrix: Tensor) -> LinearWeight:
    """Stored as it is, as on a GPU, in fp32 too."""
    return LinearWeight(matrix, None, *matrix.shape, has_bias=False)


def adapter(
    depth: int, ranks: tuple[int, ...], dtype: torch.dtype, device: torch.device, *, is_whole: bool = True
) -> LoraLayers:
    """A part for each rank, of outputs that lie apart, in multiples of `RANK_STEP` as `pack_lora` fills them up.

    is_whole: -1, 0 and 1 at random, times powers of two: no sum of theirs with such rows is rounded before the end.
    """
    draw = partial(whole_numbers, most=1) if is_whole else torch.randn
    size = OUTPUTS // len(ranks)
    downs, ups, scales = [], [], []
    for index, rank in enumerate(ranks):
        filled = -(-rank // RANK_STEP) * RANK_STEP
        down, up = torch.zeros(filled, depth), torch.zeros(size - 1, filled)
        down[:rank] = draw(rank, depth)
        up[:, :rank] = draw(size - 1, rank)
        downs.append(down)
        ups.append(plain(up.to(dtype).to(device)))
        scales += [2.0**index] * filled
    weight = LoraWeight(
        plain(torch.cat(downs).to(dtype).to(device)),
        torch.tensor(scales, device=device),
        tuple(ups),
        tuple(size * index for index in range(len(ranks))),
    )
    return LoraLayers([[None] * 4, [None, None, weight, None]], device)


def plan_of(segments: list[LoraSegment], device: torch.device) -> LoraPlan:
    plan = plan_lora(segments, device)
    assert plan is not None
    return replace(plan, tiles=torch.from_numpy(cut_tiles(plan.segments)).to(device))


@pytest.mark.parametrize(("depth", "dtype"), [(1100, torch.float32), (72, torch.float16), (1100, torch.bfloat16)])
def test_equals_the_twin_and_leaves_other_rows_alone(
    depth: int, dtype: torch.dtype, device: torch.device, bfloat16: torch.dtype
) -> None:
    adapters = [adapter(depth, ranks, dtype, device) for ranks in ((4,), (1, 16, 40), (256, 8))]
    segments = [LoraSegment(0, 1, adapters[0]), LoraSegment(3, 20, adapters[1]), LoraSegment(20, 23, adapters[2])]
    segments += [LoraSegment(25, NUM_ROWS, adapters[0])]
    plan = plan_of(segments, device)
    x = whole_numbers(NUM_ROWS, depth + 16, most=1).to(dtype).to(device)[:, :depth]
    out = whole_numbers(NUM_ROWS, OUTPUTS).to(dtype).to(device)
    expected = out.clone()
    reference.add_lora(expected, x, plan, 1, 2)
    found = device_add(out, x, plan)
    assert torch.equal(found, expected)
    for rows in (slice(1, 3), slice(23, 25)):
        assert torch.equal(found[rows], out[rows])


@pytest.mark.parametrize("element", [torch.float32, torch.float16], ids=str)
def test_a_row_has_the_bits_that_it_has_alone(element: torch.dtype, device: torch.device) -> None:
    layers = adapter(1100, (5, 20), element, device, is_whole=False)
    x, out = (
        torch.randn(NUM_ROWS, 1100).div(33).to(element).to(device),
        torch.randn(NUM_ROWS, OUTPUTS).to(element).to(device),
    )
    together = device_add(out, x, plan_of([LoraSegment(0, NUM_ROWS, layers)], device))
    for begin, end in ((0, 1), (15, 16), (16, 17), (40, 41), (5, 30)):
        alone = device_add(out[begin:end], x[begin:end], plan_of([LoraSegment(0, end - begin, layers)], device))
        assert torch.equal(alone, together[begin:end])


def test_the_launches_of_one_step_compute_the_next(device: torch.device) -> None:
    """As a captured graph does: the same launches, of other adapters and other rows in the same buffer."""
    adapters = [adapter(72, ranks, torch.float32, device) for ranks in ((4, 16), (16, 9), (1, 2))]
    buffer = FixedBuffer(torch.int64, device, size=3 * NUM_ROWS)

    def planned(*segments: tuple[int, int, int]) -> LoraPlan:
        plan = plan_lora([LoraSegment(begin, end, adapters[which]) for begin, end, which in segments], device, buffer)
        assert plan is not None
        return plan

    x, out = whole_numbers(NUM_ROWS, 72).to(device), torch.empty(NUM_ROWS, OUTPUTS, device=device)
    first = planned((0, 1, 0), (1, 30, 1), (30, NUM_ROWS, 2))
    for segments in (((2, 3, 1), (5, 9, 0), (9, 10, 2)), ((0, NUM_ROWS, 2),), ((7, 40, 0), (40, 41, 2))):
        plan = planned(*segments)
        assert plan.signature == first.signature
        out.copy_(whole_numbers(*out.shape))
        expected = out.clone()
        reference.add_lora(expected, x, plan, 1, 2)
        triton.lora.add_lora(out, x, replace(first, segments=()), 1, 2)
        assert torch.equal(out, expected)


def test_a_place_without_a_weight_adds_nothing(device: torch.device) -> None:
    plan = plan_of([LoraSegment(0, 3, adapter(72, (4,), torch.float32, device))], device)
    out, x = torch.randn(3, OUTPUTS, device=device), torch.randn(3, 72, device=device)
    for layer, place in ((0, 2), (1, 0)):
        result = out.clone()
        triton.lora.add_lora(result, x, plan, layer, place)
        assert torch.equal(result, out)
