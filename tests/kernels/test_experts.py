"""A mixture of experts: every path against float64, and a row's numbers against its neighbours."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from phloem.kernels import Gate, LinearWeights, keep_mxfp4, pack_linears
from phloem.kernels.linear_weight import input_range
from phloem.kernels.mxfp4 import widen
from phloem.kernels.ops import mix_experts
from phloem.kernels.plain import ops as reference

from . import lazy_triton as triton
from .on_device import on_device
from .rounding import assert_within, gamma, stored_bound

SILU, GELU, CLAMPED = Gate(), Gate("gelu_tanh"), Gate("clamped", alpha=1.702, limit=0.7)
Shape = tuple[int, int, int, int, int, Gate, bool]
SHAPES: dict[str, Shape] = {  # tokens, experts, chosen, hidden, inner, gate, biases
    "a token": (1, 4, 2, 40, 24, SILU, False),
    "more experts than pairs": (3, 37, 2, 48, 16, SILU, True),
    "an expert for all": (21, 5, 1, 70, 9, GELU, True),
    "many rows": (70, 3, 2, 33, 80, CLAMPED, False),
    "all experts": (6, 6, 6, 64, 40, GELU, False),
    "one expert": (5, 1, 1, 64, 16, SILU, False),
    "gpt-oss": (11, 8, 4, 96, 72, CLAMPED, True),
    "none": (0, 4, 2, 40, 24, CLAMPED, True),
}


def half_steps(x: Tensor) -> Tensor:
    """The most by which int8 weights round an input of each row, `[..., 1]`."""
    return 0.501 * x.abs().amax(-1, keepdim=True) / input_range(x.shape[-1])


@dataclass(frozen=True)
class Problem:
    """Rows and their experts; the last expert is chosen by no row, if there are others enough."""

    x: Tensor
    chosen: Tensor
    shares: Tensor
    gate_up: Tensor  # [E, 2F, C]
    down: Tensor  # [E, C, F]
    gate_up_bias: Tensor | None
    down_bias: Tensor | None
    gate: Gate

    @staticmethod
    def random(shape: Shape, dtype: torch.dtype = torch.float32) -> Problem:
        num_tokens, num_experts, num_chosen, hidden, inner, gate, has_bias = shape
        wanted = torch.rand(num_tokens, num_experts)
        if num_experts > num_chosen:
            wanted[:, -1] = -1.0
        return Problem(
            torch.randn(num_tokens, hidden).to(dtype),
            wanted.topk(num_chosen).indices,
            torch.rand(num_tokens, num_chosen),
            (torch.randn(num_experts, 2 * inner, hidden) / hidden**0.5).to(dtype),
            (torch.randn(num_experts, hidden, inner) / inner**0.5).to(dtype),
            torch.randn(num_experts, 2 * inner).to(dtype) if has_bias else None,
            torch.randn(num_experts, hidden).to(dtype) if has_bias else None,
            gate,
        )

    def weights(self, **options: Any) -> tuple[LinearWeights, LinearWeights]:
        """As the CPU keeps them."""
        return pack_linears(self.gate_up, self.gate_up_bias, **options), pack_linears(
            self.down, self.down_bias, **options
        )

    def exact_and_bound(self, *, rounds_inputs: bool = False) -> tuple[Tensor, Tensor]:
        """Every expert for every row, in float64, and how far a path may be off that stores rows in the type of `x`.

        Shares of those that were not chosen are zero. The gates of `gate.py` grow by 1.13 of their input at most, and
        are a few roundings away from their formula. rounds_inputs: as int8 weights round those of each product.
        """
        x, gate_up, down = self.x.double(), self.gate_up.double(), self.down.double()
        kind, hidden, inner = self.x.dtype, x.shape[1], down.shape[2]
        added, added_down = (
            torch.zeros(1, 1).double() if bias is None else bias.double()[:, None]
            for bias in (self.gate_up_bias, self.down_bias)
        )
        share = torch.zeros(len(x), len(down), dtype=torch.float64).scatter(1, self.chosen, self.shares.double())

        both = torch.einsum("tc,enc->etn", x, gate_up) + added
        size = torch.einsum("tc,enc->etn", x.abs(), gate_up.abs()) + added.abs()
        steps = rounds_inputs * half_steps(x)[None] * gate_up.abs().sum(-1)[:, None]
        both_off = stored_bound(gamma(hidden + 1) * size + steps, both, kind)
        gate, up = both.chunk(2, dim=-1)
        gate_off, up_off = both_off.chunk(2, dim=-1)
        if self.gate.kind == "clamped":
            gate, up = gate.clamp(max=self.gate.limit), up.clamp(-self.gate.limit, self.gate.limit) + 1
            opened = gate * torch.sigmoid(gate * self.gate.alpha)
        else:
            opened = F.gelu(gate, approximate="tanh") if self.gate.kind == "gelu_tanh" else F.silu(gate)
        rows = opened * up
        off = 1.13 * gate_off * (up.abs() + up_off) + opened.abs() * up_off + gamma(16) * gate.abs() * up.abs()
        off = stored_bound(off, rows, kind)

        results = torch.einsum("etf,ecf->etc", rows, down) + added_down
        size = torch.einsum("etf,ecf->etc", rows.abs() + off, down.abs()) + added_down.abs()
        steps = rounds_inputs * half_steps(rows.abs() + off) * down.abs().sum(-1)[:, None]
        results_off = torch.einsum("etf,ecf->etc", off, down.abs()) + gamma(inner + 1) * size + steps
        results_off = stored_bound(results_off, results, kind)
        total = torch.einsum("etc,te->tc", results, share)
        size = torch.einsum("etc,te->tc", results.abs() + results_off, share)
        total_off = torch.einsum("etc,te->tc", results_off, share) + gamma(2 * self.chosen.shape[1]) * size
        return total, stored_bound(total_off, total, kind)

    def check(self, found: Tensor, **options: bool) -> None:
        """Whether `found` is the answer, to what the orders of its sums may change."""
        assert_within(found, *self.exact_and_bound(**options))

    def in_four_bits(self) -> tuple[Problem, tuple[LinearWeights, LinearWeights]]:
        """The problem with random weights in MXFP4, and these as a GPU keeps them."""

        def drawn(stack: Tensor, bias: Tensor | None) -> tuple[Tensor, LinearWeights]:
            num_experts, num_outputs, num_inputs = stack.shape
            shape = (num_experts, num_outputs, num_inputs // 32)
            blocks = torch.randint(0, 256, (*shape, 16), dtype=torch.uint8)
            scales = torch.randint(120, 126, shape, dtype=torch.uint8)
            return widen(blocks, scales, torch.bfloat16), keep_mxfp4(blocks, scales, bias)

        gate_up, kept_gate_up = drawn(self.gate_up, self.gate_up_bias)
        down, kept_down = drawn(self.down, self.down_bias)
        return replace(self, gate_up=gate_up, down=down), (kept_gate_up, kept_down)

    def run(self, op: Any, weights: Any, rows: slice = slice(None)) -> Tensor:
        x, chosen, shares = (each[rows] for each in (self.x, self.chosen, self.shares))
        found: Tensor = op(x, chosen, shares, *weights, gate=self.gate)
        return found

    def run_triton(self, device: torch.device, row_tile: int = 0) -> Tensor:
        """On plain weights, as a GPU has them."""

        both = ((self.gate_up, self.gate_up_bias), (self.down, self.down_bias))
        weights = [on_device(LinearWeights((), stack, row_tile, bias), device) for stack, bias in both]
        found: Tensor = on_device(self, device).run(triton.experts.mix_experts, weights)
        return found.cpu()


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("op", [mix_experts, reference.mix_experts], ids=["op", "twin"])
def test_the_op_and_its_twin_agree_with_float64(op: Any, shape: Shape) -> None:
    problem = Problem.random(shape)
    problem.check(problem.run(op, problem.weights()))


@pytest.mark.parametrize("int8", [False, True], ids=["whole", "int8"])
def test_the_op_and_its_twin_multiply_what_a_weight_is_kept_as(int8: bool) -> None:
    problem = Problem.random((11, 5, 2, 48, 32, CLAMPED, True))
    weights = problem.weights(quantise="int8" if int8 else "none")
    kept = replace(problem, gate_up=weights[0].matrices(), down=weights[1].matrices())
    for op in (mix_experts, reference.mix_experts):
        kept.check(kept.run(op, weights), rounds_inputs=int8)


@pytest.mark.parametrize("has_bias", [False, True], ids=["plain", "biases"])
def test_half_types_on_the_cpu_agree_with_float64(has_bias: bool) -> None:
    problem = Problem.random((11, 5, 2, 48, 32, SILU, has_bias), torch.bfloat16)
    found = problem.run(mix_experts, problem.weights())
    assert found.dtype is torch.bfloat16
    problem.check(found)


@pytest.mark.parametrize("int8", [False, True], ids=["whole", "int8"])
def test_a_rows_bits_do_not_depend_on_who_chose_the_same_experts(int8: bool) -> None:
    problem = Problem.random((40, 5, 3, 48, 32, CLAMPED, True))
    weights = problem.weights(quantise="int8" if int8 else "none")
    together = problem.run(mix_experts, weights)
    for rows in (slice(0, 1), slice(7, 9), slice(3, 30), slice(39, 40)):
        assert torch.equal(problem.run(mix_experts, weights, rows), together[rows])


@pytest.mark.parametrize(
    ("name", "row_tile"),
    [*((name, 0) for name in SHAPES), ("a token", 256), ("many rows", 256), ("gpt-oss", 256), ("none", 256)],
)
def test_triton_agrees_with_float64(name: str, row_tile: int, device: torch.device) -> None:
    problem = Problem.random(SHAPES[name])
    problem.check(problem.run_triton(device, row_tile))


@pytest.mark.parametrize("num_tokens", [4, 70], ids=["narrow tiles", "wide tiles"])
def test_triton_in_bfloat16_agrees_with_float64(num_tokens: int, device: torch.device, bfloat16: torch.dtype) -> None:
    problem = Problem.random((num_tokens, 4, 2, 160, 48, CLAMPED, True), bfloat16)
    problem.check(problem.run_triton(device))


def test_experts_without_a_gate(device: torch.device) -> None:
    problem = Problem.random((7, 4, 2, 40, 24, Gate("relu2"), False))
    problem = replace(problem, gate_up=problem.gate_up[:, :24].contiguous())
    made = torch.relu(torch.einsum("tc,efc->tef", problem.x, problem.gate_up)).square()
    each = torch.einsum("tef,ecf->tec", made, problem.down)
    chosen = each.gather(1, problem.chosen[:, :, None].expand(-1, -1, 40))
    expected = (chosen * problem.shares[:, :, None]).sum(1)
    for op in (mix_experts, reference.mix_experts):
        torch.testing.assert_close(problem.run(op, problem.weights()), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(problem.run_triton(device), expected, rtol=1e-4, atol=1e-4)


def test_rows_of_a_view_are_read_where_they_lie(device: torch.device) -> None:
    problem = Problem.random((6, 4, 2, 40, 24, SILU, False))
    wide = torch.full((6, 100), torch.nan)
    wide[:, 30:70] = problem.x
    found = replace(problem, x=wide.to(device)[:, 30:70]).run_triton(device)
    assert torch.equal(found, problem.run_triton(device))


FOUR_BITS: dict[str, Shape] = {
    "gpt-oss": (11, 8, 4, 96, 64, CLAMPED, True),
    "a row": (1, 5, 3, 64, 32, CLAMPED, True),
    "many rows": (70, 3, 2, 96, 64, CLAMPED, True),
    "more depth than a tile": (3, 4, 2, 288, 160, SILU, False),
}


@pytest.mark.parametrize(
    ("name", "row_tile"),
    [("gpt-oss", 0), ("a row", 0), ("more depth than a tile", 0), ("many rows", 256), ("a row", 256)],
)
def test_triton_reads_four_bits_as_the_numbers_that_they_are(
    name: str, row_tile: int, device: torch.device, bfloat16: torch.dtype
) -> None:
    """Against the kernel for plain weights of the same numbers: only the order of a row's sums may differ."""
    problem, kept = Problem.random(FOUR_BITS[name], bfloat16).in_four_bits()
    weights = [on_device(replace(each, row_tile=row_tile), device) for each in kept]
    problem.check(on_device(problem, device).run(triton.experts.mix_experts, weights))
    problem.check(problem.run_triton(device, row_tile))


def test_the_op_and_its_twin_read_four_bits_too() -> None:
    problem, kept = Problem.random((11, 5, 2, 64, 32, CLAMPED, True), torch.bfloat16).in_four_bits()
    for op in (mix_experts, reference.mix_experts):
        problem.check(problem.run(op, kept))
    matrices = kept[0].matrices()
    assert torch.equal(matrices, problem.gate_up)
    assert kept[0].num_bytes == problem.gate_up.numel() * 17 // 32 + 2 * matrices[..., 0].numel()
