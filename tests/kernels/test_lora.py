"""Adapters of low rank in a step: the fast paths against their twin, and a row's bits whatever else is in the step."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.kernels import LoraLayers, LoraPart, LoraSegment, narrow_segments, ops, pack_lora, plan_lora
from phloem.kernels.cpu.threads import use_threads
from phloem.kernels.plain import ops as reference

from .rounding import whole_numbers

CPU = torch.device("cpu")
DEPTH, OUTPUTS = 40, 77  # neither in whole panels
NUM_LAYERS = 2


def parts_of(seed: int, ranks: tuple[int, ...], *, short: bool = False, is_whole: bool = False) -> list[LoraPart]:
    """A part for each rank, of outputs that lie apart; short: in numbers of bf16; is_whole: in whole numbers."""
    generator = torch.Generator().manual_seed(seed)
    size = OUTPUTS // len(ranks)
    parts = []
    for index, rank in enumerate(ranks):
        down = torch.randn(rank, DEPTH, generator=generator) / DEPTH**0.5
        up = torch.randn(size - 1, rank, generator=generator) / rank**0.5
        if short:
            down, up = down.to(torch.bfloat16).float(), up.to(torch.bfloat16).float()
        if is_whole:
            down, up = (2 * down * DEPTH**0.5).round(), (2 * up * rank**0.5).round()
            if not short:
                down[0, 0] = up[0, 0] = 257.0
        parts.append(LoraPart(down, up, 2.0**index if is_whole else 0.3 + index, index * size))
    return parts


def adapter(seed: int, *ranks: int, **options: bool) -> LoraLayers:
    """One with a weight at place 1 of its last layer, and nowhere else."""
    weight = pack_lora(parts_of(seed, ranks, **options), CPU, torch.float32)
    return LoraLayers([[None] * 4, [None, weight, None, None]], CPU)


ADAPTERS = [adapter(0, 4), adapter(1, 1, 8, 21), adapter(2, 16, 3), adapter(3, 64, short=True)]
# no sum of theirs is rounded
WHOLE = [adapter(4, 4, 9, short=True, is_whole=True), adapter(5, 1, 8, 21, is_whole=True)]


def adapted(segments: list[LoraSegment], out: torch.Tensor, x: torch.Tensor, how: object = ops) -> torch.Tensor:
    plan, result = plan_lora(segments, CPU), out.clone()
    assert plan is not None
    how.add_lora(result, x, plan, NUM_LAYERS - 1, 1)  # type: ignore[attr-defined]
    return result


def segments_of(lengths: list[tuple[int, int]], adapters: list[LoraLayers]) -> tuple[list[LoraSegment], int]:
    """Segments of given lengths with the adapter of that number, -1: none; and the number of rows."""
    segments, end = [], 0
    for length, which in lengths:
        if which >= 0 and length:
            segments.append(LoraSegment(end, end + length, adapters[which]))
        end += length
    return segments, end


@settings(deadline=None, max_examples=30)
@given(lengths=st.lists(st.tuples(st.integers(0, 40), st.integers(-1, 1)), min_size=1, max_size=6))
def test_whole_numbers_give_the_bits_of_the_twin(lengths: list[tuple[int, int]]) -> None:
    segments, num_rows = segments_of(lengths, WHOLE)
    x, out = whole_numbers(num_rows, DEPTH), whole_numbers(num_rows, OUTPUTS)
    if segments:
        assert torch.equal(adapted(segments, out, x), adapted(segments, out, x, reference))


@settings(deadline=None, max_examples=60)
@given(lengths=st.lists(st.tuples(st.integers(0, 40), st.integers(-1, 3)), min_size=1, max_size=6))
def test_a_segment_has_the_bits_that_it_has_alone_and_leaves_other_rows(lengths: list[tuple[int, int]]) -> None:
    segments, end = segments_of(lengths, ADAPTERS)
    generator = torch.Generator().manual_seed(end)
    x, out = torch.randn(end, DEPTH, generator=generator), torch.randn(end, OUTPUTS, generator=generator)
    if plan_lora(segments, CPU) is None:
        assert not segments
        return
    found = adapted(segments, out, x)
    is_adapted = torch.zeros(end, dtype=torch.bool)
    for one in segments:
        is_adapted[one.begin : one.end] = True
        alone = adapted([LoraSegment(0, one.end - one.begin, one.layers)], *(t[one.begin : one.end] for t in (out, x)))
        assert torch.equal(found[one.begin : one.end], alone)
    assert torch.equal(found[~is_adapted], out[~is_adapted])


@pytest.mark.parametrize("which", range(len(ADAPTERS)))
def test_a_rows_bits_are_its_own(which: int) -> None:
    x, out = torch.randn(300, DEPTH), torch.randn(300, OUTPUTS)
    together = adapted([LoraSegment(0, 300, ADAPTERS[which])], out, x)
    for row in (0, 1, 127, 128, 299):
        alone = adapted([LoraSegment(0, 1, ADAPTERS[which])], out[row : row + 1], x[row : row + 1])
        assert torch.equal(alone[0], together[row])


def test_threads_change_no_bit() -> None:
    layers = [[pack_lora([LoraPart(torch.randn(32, 512), torch.randn(640, 32), 0.7, 0)], CPU, torch.float32)]]
    segment = LoraSegment(3, 250, LoraLayers([[*row, None, None, None] for row in layers], CPU))
    plan = plan_lora([segment], CPU)
    assert plan is not None
    x, out = torch.randn(260, 512), torch.randn(260, 640)
    found = []
    for num_threads in (1, 3):
        use_threads(num_threads)
        result = out.clone()
        ops.add_lora(result, x, plan, 0, 0)
        found.append(result)
    use_threads(None)
    assert torch.equal(*found)


def test_a_place_without_a_weight_adds_nothing() -> None:
    plan = plan_lora([LoraSegment(0, 3, ADAPTERS[0])], CPU)
    assert plan is not None
    out = torch.randn(3, OUTPUTS)
    for layer, place in ((0, 1), (1, 0), (1, 3)):
        result = out.clone()
        ops.add_lora(result, torch.randn(3, DEPTH), plan, layer, place)
        assert torch.equal(result, out)


def test_rows_and_outputs_may_have_gaps_between_them() -> None:
    x, out = torch.randn(9, DEPTH + 8), torch.randn(9, OUTPUTS + 5)
    expected = adapted([LoraSegment(2, 9, ADAPTERS[1])], out[:, :OUTPUTS].contiguous(), x[:, :DEPTH].contiguous())
    assert torch.equal(adapted([LoraSegment(2, 9, ADAPTERS[1])], out[:, :OUTPUTS], x[:, :DEPTH]), expected)


def test_half_types_are_rounded_once_at_the_end() -> None:
    x, out = torch.randn(5, DEPTH).to(torch.bfloat16), torch.randn(5, OUTPUTS).to(torch.bfloat16)
    wide = adapted([LoraSegment(1, 5, ADAPTERS[1])], out.float(), x.float())
    assert torch.equal(adapted([LoraSegment(1, 5, ADAPTERS[1])], out, x), wide.to(torch.bfloat16))


def test_numbers_that_bf16_holds_take_half_the_bytes() -> None:
    whole, short = (pack_lora(parts_of(7, (16,), short=short), CPU, torch.float32) for short in (False, True))
    assert short.num_bytes < whole.num_bytes * 2 / 3


@given(rows=st.sets(st.integers(0, 29)), cuts=st.lists(st.integers(0, 30), min_size=2, max_size=2).map(sorted))
def test_segments_of_the_rows_that_are_left(rows: set[int], cuts: list[int]) -> None:
    left = torch.tensor(sorted(rows), dtype=torch.int64).numpy()
    (one,) = narrow_segments([LoraSegment(*cuts, ADAPTERS[0])], left)
    assert left[one.begin : one.end].tolist() == [row for row in sorted(rows) if cuts[0] <= row < cuts[1]]
