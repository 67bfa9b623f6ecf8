"""A mixture of experts: every path against float64, and a row's numbers against its neighbours."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from phloem.kernels import Gate, LinearWeights, keep_mxfp4, mix_experts, pack_linears, reference, widen_mxfp4

SILU, GELU, CLAMPED = Gate(), Gate("gelu_tanh"), Gate("clamped", alpha=1.702, limit=0.7)
Shape = tuple[int, int, int, int, int, Gate, bool]
SHAPES: dict[str, Shape] = {  # tokens, experts, chosen, hidden, inner, gate, biases
    "a token": (1, 4, 2, 40, 24, SILU, False),
    "more experts than pairs": (3, 37, 2, 48, 16, SILU, True),
    "an expert for all": (21, 5, 1, 70, 9, GELU, True),
    "many rows": (90, 3, 2, 33, 80, CLAMPED, False),
    "all experts": (6, 6, 6, 64, 40, GELU, False),
    "one expert": (5, 1, 1, 64, 16, SILU, False),
    "gpt-oss": (11, 8, 4, 96, 72, CLAMPED, True),
    "none": (0, 4, 2, 40, 24, CLAMPED, True),
}


@dataclass(frozen=True)
class Problem:
    """Rows and their experts; the last expert is chosen by nobody, if there are others enough."""

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

    def exact(self) -> Tensor:
        """Every expert for every row, in float64; shares of those that were not chosen are zero."""
        x, gate_up, down = self.x.double(), self.gate_up.double(), self.down.double()
        share = torch.zeros(len(x), len(down), dtype=torch.float64).scatter(1, self.chosen, self.shares.double())
        inner = torch.einsum("tc,enc->etn", x, gate_up)
        if self.gate_up_bias is not None:
            inner = inner + self.gate_up_bias.double()[:, None]
        gate, up = inner.chunk(2, dim=-1)
        if self.gate.kind == "clamped":
            gate, up = gate.clamp(max=self.gate.limit), up.clamp(-self.gate.limit, self.gate.limit) + 1
            gate = gate * torch.sigmoid(gate * self.gate.alpha)
        else:
            gate = F.gelu(gate, approximate="tanh") if self.gate.kind == "gelu_tanh" else F.silu(gate)
        results = torch.einsum("etf,ecf->etc", gate * up, down)
        if self.down_bias is not None:
            results = results + self.down_bias.double()[:, None]
        return torch.einsum("etc,te->tc", results, share)

    def in_four_bits(self) -> tuple[Problem, tuple[LinearWeights, LinearWeights]]:
        """The problem with random weights in MXFP4, and these as a GPU keeps them."""

        def drawn(stack: Tensor, bias: Tensor | None) -> tuple[Tensor, LinearWeights]:
            num_experts, num_outputs, num_inputs = stack.shape
            shape = (num_experts, num_outputs, num_inputs // 32)
            blocks = torch.randint(0, 256, (*shape, 16), dtype=torch.uint8)
            scales = torch.randint(120, 126, shape, dtype=torch.uint8)
            return widen_mxfp4(blocks, scales, torch.bfloat16), keep_mxfp4(blocks, scales, bias)

        gate_up, kept_gate_up = drawn(self.gate_up, self.gate_up_bias)
        down, kept_down = drawn(self.down, self.down_bias)
        return replace(self, gate_up=gate_up, down=down), (kept_gate_up, kept_down)

    def run(self, op: Any, weights: Any, rows: slice = slice(None)) -> Tensor:
        x, chosen, shares = (each[rows] for each in (self.x, self.chosen, self.shares))
        found: Tensor = op(x, chosen, shares, *weights, gate=self.gate)
        return found

    def run_triton(self, device: torch.device, row_tile: int = 0) -> Tensor:
        """On plain weights, as a GPU has them."""
        from phloem.kernels import triton_experts

        def moved(x: Tensor | None) -> Any:
            return None if x is None else x.to(device)

        inputs = map(moved, (self.x, self.chosen, self.shares))
        both = ((self.gate_up, self.gate_up_bias), (self.down, self.down_bias))
        weights = (LinearWeights((), moved(stack), row_tile, moved(bias)) for stack, bias in both)
        return triton_experts.mix_experts(*inputs, *weights, gate=self.gate).cpu()


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("op", [mix_experts, reference.mix_experts], ids=["op", "twin"])
def test_the_op_and_its_twin_agree_with_float64(op: Any, shape: Shape) -> None:
    problem = Problem.random(shape)
    found = problem.run(op, problem.weights())
    torch.testing.assert_close(found.double(), problem.exact(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("int8", [False, True], ids=["whole", "int8"])
def test_the_op_equals_its_twin_in_what_a_weight_is_kept_as(int8: bool) -> None:
    problem = Problem.random((11, 5, 2, 48, 32, CLAMPED, True))
    weights = problem.weights(quantise="int8" if int8 else "none")
    found, expected = (problem.run(op, weights) for op in (mix_experts, reference.mix_experts))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("has_bias", [False, True], ids=["plain", "biases"])
def test_half_types_on_the_cpu_agree_with_float64(has_bias: bool) -> None:
    problem = Problem.random((11, 5, 2, 48, 32, SILU, has_bias), torch.bfloat16)
    found = problem.run(mix_experts, problem.weights())
    assert found.dtype is torch.bfloat16
    torch.testing.assert_close(found.double(), problem.exact(), atol=4e-2, rtol=4e-2)


@pytest.mark.parametrize("int8", [False, True], ids=["whole", "int8"])
def test_a_rows_bits_do_not_depend_on_who_chose_the_same_experts(int8: bool) -> None:
    problem = Problem.random((40, 5, 3, 48, 32, CLAMPED, True))
    weights = problem.weights(quantise="int8" if int8 else "none")
    together = problem.run(mix_experts, weights)
    for rows in (slice(0, 1), slice(7, 9), slice(3, 30), slice(39, 40)):
        assert torch.equal(problem.run(mix_experts, weights, rows), together[rows])


@pytest.mark.parametrize("row_tile", [0, 256], ids=["fast", "deterministic"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_triton_agrees_with_float64(shape: Shape, row_tile: int, device: torch.device) -> None:
    problem = Problem.random(shape)
    found = problem.run_triton(device, row_tile)
    torch.testing.assert_close(found.double(), problem.exact(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("num_tokens", [4, 100], ids=["narrow tiles", "wide tiles"])
def test_triton_in_bfloat16_agrees_with_float64(num_tokens: int, device: torch.device, bfloat16: torch.dtype) -> None:
    problem = Problem.random((num_tokens, 4, 2, 160, 48, CLAMPED, True), bfloat16)
    torch.testing.assert_close(problem.run_triton(device).double(), problem.exact(), atol=4e-2, rtol=4e-2)


def test_rows_of_a_view_are_read_where_they_lie(device: torch.device) -> None:
    problem = Problem.random((6, 4, 2, 40, 24, SILU, False))
    wide = torch.full((6, 100), torch.nan)
    wide[:, 30:70] = problem.x
    found = replace(problem, x=wide.to(device)[:, 30:70]).run_triton(device)
    assert torch.equal(found, problem.run_triton(device))


FOUR_BITS: dict[str, Shape] = {
    "gpt-oss": (11, 8, 4, 96, 64, CLAMPED, True),
    "a row": (1, 5, 3, 64, 32, CLAMPED, True),
    "many rows": (150, 3, 2, 160, 96, CLAMPED, True),
    "more depth than a tile": (3, 4, 2, 288, 160, SILU, False),
}


@pytest.mark.parametrize("row_tile", [0, 256], ids=["fast", "deterministic"])
@pytest.mark.parametrize("shape", FOUR_BITS.values(), ids=FOUR_BITS)
def test_triton_reads_four_bits_as_the_numbers_that_they_are(
    shape: Shape, row_tile: int, device: torch.device, bfloat16: torch.dtype
) -> None:
    """Against the kernel for plain weights of the same numbers: only the order of a row's sums may differ."""
    from phloem.kernels import triton_experts

    problem, kept = Problem.random(shape, bfloat16).in_four_bits()
    weights = [replace(each, row_tile=row_tile, **_on(device, each)) for each in kept]
    inputs = (each.to(device) for each in (problem.x, problem.chosen, problem.shares))
    found = triton_experts.mix_experts(*inputs, *weights, gate=problem.gate).cpu()
    exact = problem.exact()
    scale = float(exact.abs().max())
    torch.testing.assert_close(found.double(), exact, atol=2e-2 * scale, rtol=2e-2)
    plain = problem.run_triton(device, row_tile)
    assert float((found.float() - plain.float()).abs().max()) <= 2**-7 * scale


def _on(device: torch.device, weights: LinearWeights) -> dict[str, Tensor | None]:
    parts = {"stored": weights.stored, "bias": weights.bias, "scales": weights.scales}
    return {name: None if part is None else part.to(device) for name, part in parts.items()}


def test_the_op_and_its_twin_read_four_bits_too() -> None:
    problem, kept = Problem.random((11, 5, 2, 64, 32, CLAMPED, True), torch.bfloat16).in_four_bits()
    for op in (mix_experts, reference.mix_experts):
        assert torch.equal(problem.run(op, kept), problem.run(op, problem.weights()))
    matrices = kept[0].matrices()
    assert torch.equal(matrices, problem.gate_up)
    assert kept[0].num_bytes == problem.gate_up.numel() * 17 // 32 + 2 * matrices[..., 0].numel()
