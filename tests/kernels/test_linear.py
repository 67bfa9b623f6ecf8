"""The linear op against its twin, and its promise: a row's bits depend on the row and the weight alone."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.kernels import ops
from phloem.kernels.cpu.mxfp4 import lay_out, take_apart
from phloem.kernels.cpu.threads import ONE_TEAM, use_threads
from phloem.kernels.linear_weight import Quantise, input_range, pack_mxfp4
from phloem.kernels.mxfp4 import widen
from phloem.kernels.plain import ops as reference

from .rounding import assert_within, fused_sums, gamma, product_bound, whole_numbers

SHAPES = {
    "square": (192, 192),
    "wide": (48, 1024),
    "deep": (1536, 64),
    "odd": (37, 131),
    "one": (1, 1),
    "half": (8, 24),
}


def weight_of(depth: int, num_outputs: int, *, bias: bool, short: bool = False) -> ops.LinearWeight:
    generator = torch.Generator().manual_seed(depth + num_outputs)
    matrix = torch.randn(num_outputs, depth, generator=generator) / depth**0.5
    if short:
        matrix = matrix.to(torch.bfloat16).float()
    return ops.pack_linear(matrix, torch.randn(num_outputs, generator=generator) if bias else None)


@pytest.mark.parametrize("short", [False, True], ids=["whole", "short"])
@pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_output_is_one_chain_of_fused_multiply_adds(shape: str, bias: bool, short: bool) -> None:
    """To the last bit, for every number of rows; the twin, in whatever order, is as close as the order lets it be."""
    weight = weight_of(*SHAPES[shape], bias=bias, short=short)
    assert weight.is_short == short
    x, matrix = torch.randn(100, weight.num_inputs), weight.matrix()
    added = weight.bias[: weight.num_outputs] if bias and weight.bias is not None else None
    together = ops.linear(x, weight)
    assert torch.equal(together[5:9], fused_sums(x[5:9], matrix, added))
    exact = x.double() @ matrix.double().T + (0.0 if added is None else added.double())
    for found in (together, reference.linear(x, weight)):
        assert_within(found, exact, product_bound(x, matrix, added))
    for num_rows in (*range(15), 17, 31, 64, 99):
        found = ops.linear(x[:num_rows], weight)
        assert found.shape == (num_rows, weight.num_outputs)
        assert torch.equal(found, together[:num_rows])


def test_weights_that_bf16_holds_exactly_give_the_bits_of_fp32_from_half_the_bytes() -> None:
    matrix, bias = torch.randn(131, 37).to(torch.bfloat16).float(), torch.randn(131)
    short = ops.pack_linear(matrix, bias)
    whole = ops.pack_linear(torch.cat([matrix, torch.full((1, 37), 0.1)]), torch.cat([bias, bias[:1]]))
    assert (short.is_short, whole.is_short) == (True, False)
    x = torch.randn(20, 37)
    for num_rows in range(1, 20):
        assert torch.equal(ops.linear(x[:num_rows], short), ops.linear(x[:num_rows], whole)[:, :131])
    assert torch.equal(short.matrix(), matrix)
    ids = torch.tensor([0, 130, 16, 15, 8, 7, 0])
    assert torch.equal(short.rows(ids), matrix[ids])
    assert short.dtype == torch.float32
    assert short.num_bytes == 2 * 131 * 37 + 4 * 131


@settings(deadline=None)
@given(
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    bits=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=5),
    places=st.lists(st.integers(0, 1599), min_size=1, max_size=5),
)
def test_a_packed_weight_is_the_weight_bit_by_bit(size: tuple[int, int], bits: list[int], places: list[int]) -> None:
    matrix = torch.randn(size).to(torch.bfloat16)
    for place, word in zip(places, bits, strict=False):  # signed zeros, infinities and what is no number among them
        matrix.view(torch.int16).view(-1)[place % matrix.numel()] = word % 65536 - 32768
    halves = ops.pack_linear(matrix, matrix[:, 0], dtype=torch.float32)
    widened = ops.pack_linear(matrix.float(), matrix[:, 0].float())
    x = torch.randn(3, size[1])
    assert torch.equal(ops.linear(x, halves).view(torch.int32), ops.linear(x, widened).view(torch.int32))
    assert halves.is_short and widened.is_short
    assert torch.equal(halves.stored.view(torch.int16), widened.stored.view(torch.int16))
    assert torch.equal(halves.matrix().view(torch.int32), matrix.float().view(torch.int32))
    wide = matrix.float()
    wide.view(torch.int32).view(-1)[places[0] % matrix.numel()] ^= 1 + bits[0] % 65535
    kept = ops.pack_linear(wide)
    assert not kept.is_short
    assert torch.equal(kept.matrix().view(torch.int32), wide.view(torch.int32))


@settings(deadline=None)
@given(rows=st.lists(st.integers(0, 19), min_size=1, max_size=30))
def test_rows_may_stand_anywhere_with_any_neighbours(rows: list[int]) -> None:
    weight = weight_of(37, 131, bias=True)
    x = torch.randn(20, 37, generator=torch.Generator().manual_seed(0))
    assert torch.equal(ops.linear(x[rows], weight), ops.linear(x, weight)[rows])


def test_rows_may_have_gaps_between_them() -> None:
    weight = weight_of(37, 131, bias=False)
    wide = torch.randn(9, 50)
    assert torch.equal(ops.linear(wide[:, 5:42], weight), ops.linear(wide[:, 5:42].contiguous(), weight))


@pytest.fixture
def two_threads() -> Iterator[None]:
    use_threads(2)
    yield
    use_threads(None)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("quantise", ["none", "int8"])
def test_threads_do_not_change_a_bit(quantise: Quantise) -> None:
    weight, x = ops.pack_linear(torch.randn(1000, 300), torch.randn(1000), quantise=quantise), torch.randn(40, 300)
    assert ONE_TEAM.take(2)  # the team is taken: alone
    alone = ops.linear(x, weight)
    ONE_TEAM.give_back()
    assert torch.equal(ops.linear(x, weight), alone)


@pytest.mark.usefixtures("two_threads")
def test_a_team_is_for_one_caller_at_a_time() -> None:
    assert ONE_TEAM.take(2)
    assert not ONE_TEAM.take(2)
    ONE_TEAM.give_back()
    assert ONE_TEAM.take(2)
    ONE_TEAM.give_back()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_types_are_kept_as_they_are(dtype: torch.dtype) -> None:
    """torch multiplies them, in an order of its own: whole numbers below 256, of which no half type rounds a sum."""
    matrix, bias, x = (whole_numbers(*shape, most=2).to(dtype) for shape in ((131, 37), (131,), (5, 37)))
    weight = ops.pack_linear(matrix, bias)
    assert weight.stored is matrix
    assert torch.equal(ops.linear(x, weight), reference.linear(x, weight))


@pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
def test_tiled_products_equal_the_twin_and_each_other(bias: bool) -> None:
    matrix, added, x = (whole_numbers(*shape, most=2).to(torch.bfloat16) for shape in ((131, 37), (131,), (40, 37)))
    weight = ops.pack_linear(matrix, added if bias else None, row_tile=16)
    together = ops.linear(x, weight)
    assert torch.equal(together, reference.linear(x, weight))
    for num_rows in (0, 1, 2, 15, 16, 17, 33):
        assert torch.equal(ops.linear(x[:num_rows], weight), together[:num_rows])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_matrix_rows_and_bytes_are_those_of_the_weight(dtype: torch.dtype) -> None:
    matrix, bias = torch.randn(131, 37).to(dtype), torch.randn(131).to(dtype)
    weight = ops.pack_linear(matrix, bias)
    assert torch.equal(weight.matrix(), matrix)
    ids = torch.tensor([0, 130, 16, 15, 0])
    assert torch.equal(weight.rows(ids), matrix[ids])
    assert weight.num_bytes == matrix.nbytes + bias.nbytes
    assert ops.pack_linear(matrix).num_bytes == matrix.nbytes


@pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("shape", SHAPES)
def test_int8_equals_the_twin_for_every_number_of_rows(shape: str, bias: bool) -> None:
    plain = weight_of(*SHAPES[shape], bias=bias)
    weight = ops.pack_linear(plain.matrix(), plain.bias[: plain.num_outputs] if bias else None, quantise="int8")
    x = torch.randn(50, weight.num_inputs)
    x[7] = 0.0
    together = ops.linear(x, weight)
    assert torch.equal(together, reference.linear(x, weight)), "sums of whole numbers are exact in any order"
    for num_rows in (*range(9), 13, 31):
        assert torch.equal(ops.linear(x[:num_rows], weight), together[:num_rows])
    # a weight is off by half a step at most, an input by half of its own
    step = weight.scales[: weight.num_outputs].double()
    most = x.abs().amax(1, keepdim=True).double()
    exact = x.double() @ plain.matrix().double().T + (plain.bias[: plain.num_outputs].double() if bias else 0.0)
    inputs = most / input_range(weight.num_inputs) * plain.matrix().double().abs().sum(1)
    bound = 0.51 * (x.double().abs().sum(1, keepdim=True) * step + inputs) + 1e-6
    assert ((together - exact).abs() <= bound).all()


@pytest.mark.parametrize("quantise", ["none", "int8", "int4"])
@pytest.mark.parametrize(("depth", "place"), [(256, 17), (256, 255), (43, 3), (43, 42)])
def test_what_is_no_number_makes_no_number_of_its_row_and_of_no_other(
    quantise: Quantise, depth: int, place: int
) -> None:
    """Else logits that are none would be taken for some, and the text for the model's."""
    weight, x = ops.pack_linear(torch.randn(40, depth), quantise=quantise), torch.randn(6, depth)
    expected = ops.linear(x, weight)
    for value in (math.nan, math.inf, -math.inf):
        x[2, place] = value
        found = ops.linear(x, weight)
        assert not found[2].isfinite().any()
        assert torch.equal(found[[0, 1, 3, 4, 5]], expected[[0, 1, 3, 4, 5]])


def test_int8_sums_do_not_leave_int32() -> None:
    weight = ops.pack_linear(torch.ones(16, 70_001), quantise="int8")
    out = ops.linear(torch.full((1, 70_001), -3.0), weight)
    assert_within(out, torch.full((1, 16), -210_003.0), gamma(8) * 210_003)


def test_int8_rows_and_bytes() -> None:
    matrix = torch.randn(131, 37)
    matrix[5] = 0.0
    weight = ops.pack_linear(matrix, torch.randn(131), quantise="int8")
    ids = torch.tensor([0, 130, 16, 5, 0])
    assert torch.equal(weight.rows(ids), weight.matrix()[ids])
    assert (weight.matrix() - matrix).abs().max() <= 0.51 * matrix.abs().max() / 127
    assert weight.matrix()[5].eq(0).all()
    assert weight.num_bytes == 131 * (37 + 4 + 4)
    assert weight.dtype == torch.float32


def test_int8_is_refused_where_nothing_computes_it() -> None:
    with pytest.raises(ValueError, match=r"int8 weights are for fp32 on the CPU, not for torch\.bfloat16"):
        ops.pack_linear(torch.randn(16, 16).to(torch.bfloat16), quantise="int8")


@pytest.mark.parametrize("int8", [False, True], ids=["whole", "int8"])
def test_a_map_per_head_is_the_linear_op_of_every_head(int8: bool) -> None:
    matrices, x = torch.randn(3, 21, 40), torch.randn(7, 3, 56)[..., 8:48]  # a slice of what a head has
    quantise: Quantise = "int8" if int8 else "none"
    weight = ops.pack_linears(matrices, quantise=quantise)
    found = ops.linear_heads(x, weight)
    twin = reference.linear_heads(x, weight)
    for head, matrix in enumerate(matrices):
        bound = 0.0 if int8 else 2 * product_bound(x[:, head], matrix)
        assert_within(found[:, head], twin[:, head], bound)
        assert torch.equal(found[:, head], ops.linear(x[:, head], ops.pack_linear(matrix, quantise=quantise)))
    assert weight.num_bytes == sum(ops.pack_linear(matrix, quantise=quantise).num_bytes for matrix in matrices)


@pytest.mark.parametrize("row_tile", [0, 4])
def test_a_map_per_head_in_half_types_equals_the_twin(row_tile: int) -> None:
    matrices, x = (whole_numbers(*shape, most=2).to(torch.bfloat16) for shape in ((3, 21, 40), (11, 3, 40)))
    weight = ops.pack_linears(matrices, row_tile=row_tile)
    found = ops.linear_heads(x, weight)
    assert torch.equal(found, reference.linear_heads(x, weight))
    assert weight.num_bytes == matrices.nbytes
    if row_tile:
        for num_rows in (0, 1, 3, 4, 9):
            assert torch.equal(ops.linear_heads(x[:num_rows], weight), found[:num_rows])


FOUR_BIT_SHAPES = {"square": (192, 192), "wide": (64, 1000), "deep": (1536, 64), "one panel": (32, 5)}


@pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("shape", FOUR_BIT_SHAPES)
def test_weights_in_four_bits_give_the_bits_of_the_same_numbers_in_more(shape: str, bias: bool) -> None:
    """For every number of rows."""
    depth, num_outputs = FOUR_BIT_SHAPES[shape]
    blocks = torch.randint(0, 256, (num_outputs, depth // 32, 16), dtype=torch.uint8)
    scales = torch.randint(115, 130, (num_outputs, depth // 32), dtype=torch.uint8)
    added = torch.randn(num_outputs) if bias else None
    matrix = widen(blocks, scales, torch.float32)
    kept, wide = pack_mxfp4(blocks, scales, added), ops.pack_linear(matrix, added)
    assert kept.is_mxfp4 and not wide.is_mxfp4
    assert torch.equal(kept.matrix(), matrix)
    assert torch.equal(kept.rows(torch.tensor([0, 4])), matrix[[0, 4]])
    assert kept.num_bytes == blocks.numel() + scales.numel() + 4 * num_outputs * bias
    x = torch.randn(100, depth)
    assert_within(ops.linear(x, kept), reference.linear(x, kept), 2 * product_bound(x, matrix, added))
    for num_rows in (*range(15), 17, 31, 64, 99):
        assert torch.equal(ops.linear(x[:num_rows], kept), ops.linear(x[:num_rows], wide))


def test_every_number_in_four_bits_is_exact_under_every_scale() -> None:
    """The smallest scale makes subnormal numbers; the largest three make numbers that fp32 does not hold."""
    numbers = torch.arange(16, dtype=torch.uint8)
    blocks = (numbers | numbers.flip(0) << 4).expand(252, 1, 16)
    scales = torch.arange(252, dtype=torch.uint8)[:, None]
    stored, matrix = lay_out(blocks, scales), widen(blocks, scales, torch.float32)
    assert all(torch.equal(one[:252], other) for one, other in zip(take_apart(stored), (blocks, scales), strict=True))
    weight = pack_mxfp4(blocks, scales)
    for num_rows in (1, 2, 3, 32):  # each kind of tile: an input of 1 brings a weight, zeros bring nothing
        for begin in range(0, 32, num_rows):
            rows = torch.eye(32)[begin : begin + num_rows]
            assert torch.equal(ops.linear(rows, weight), matrix.T[begin : begin + num_rows])


@pytest.mark.parametrize("is_short", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize(("num_outputs", "num_inputs"), [(1, 1), (33, 7), (160, 64)])
def test_rows_of_packed_weights_are_those_of_the_matrix(num_outputs: int, num_inputs: int, is_short: bool) -> None:
    matrix = torch.randn(num_outputs, num_inputs)
    if is_short:
        matrix = matrix.bfloat16().float()
    weight = ops.pack_linear(matrix)
    assert weight.is_short == is_short
    for indices in (torch.randint(num_outputs, (9,)), torch.arange(num_outputs), torch.empty(0, dtype=torch.int64)):
        assert torch.equal(weight.rows(indices), matrix[indices])
    past_the_end = 16 * -(-num_outputs // 16)
    for index in (-1, past_the_end):
        with pytest.raises(IndexError, match=f"{index}.* is not among {past_the_end}"):
            weight.rows(torch.tensor([0, index]))
