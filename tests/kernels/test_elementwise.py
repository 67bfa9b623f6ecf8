"""Norms, rope, gates and KV write: the CPU loops and the Triton kernels against the twins in plain torch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from phloem.kernels import Gate, ops
from phloem.kernels.plain import ops as reference

from . import lazy_triton as triton
from .rounding import assert_within, gamma, stored_bound, whole_numbers

GATES = {
    "silu": Gate(),
    "gelu": Gate("gelu_tanh"),
    "clamped": Gate("clamped", alpha=1.702, limit=7.0),
    "squared": Gate("squared"),
}


def write_on(path: str, k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor, *scales: Tensor) -> None:
    """`write_kv`; in Triton it is `place_heads` without queries, norms and turns."""
    if path == "triton":
        how = (None, None, 0.0)
        triton.heads.place_heads(k[:, :0], k, v, slots, *how, k_cache, v_cache, slots, *scales)
    else:
        ops.write_kv(k, v, k_cache, v_cache, slots, *scales)


def close(actual: Tensor, expected: Tensor) -> None:
    """Equal up to the roundings of either side, next to the largest number of the last axis.

    A number turned with another is at most as large as 1.5 times the larger of what they become. A sum of many squares
    is not among the roundings: whole numbers have exact ones, in any order.
    """
    most = expected.cpu().double().nan_to_num().abs().amax(-1, keepdim=True) if expected.numel() else 0.0
    off = 3 * 2 * gamma(24)
    if expected.dtype != torch.float32:
        off += 4 * torch.finfo(expected.dtype).eps
    assert_within(actual, expected, off * most)


@pytest.mark.parametrize("width", [8, 192, 200, 576])
def test_rms_norm(width: int, path: str, dtype: torch.dtype, place: torch.device) -> None:
    x, residual = whole_numbers(2, 3, width, most=9).to(dtype).to(place)
    weight = torch.randn(width, device=place).to(dtype)
    implementation = triton.norm if path == "triton" else ops
    close(implementation.rms_norm(x, weight, 1e-5), reference.rms_norm(x, weight, 1e-5))
    normed, total = implementation.add_rms_norm(x, residual, weight, 1e-5)
    expected, expected_total = reference.add_rms_norm(x, residual, weight, 1e-5)
    close(normed, expected)
    assert torch.equal(total, expected_total)


@pytest.mark.parametrize("num_heads", [1, 3, 4])
def test_rms_norm_of_heads_reads_them_where_a_projection_wrote_them(
    num_heads: int, path: str, dtype: torch.dtype, place: torch.device
) -> None:
    fused = torch.full((5, (num_heads + 2) * 24), torch.nan, device=place).to(dtype)
    heads = fused[:, 24 : (num_heads + 1) * 24].view(5, num_heads, 24)
    heads.copy_(whole_numbers(5, num_heads, 24))
    weight = torch.randn(24, device=place).to(dtype)
    implementation = triton.norm if path == "triton" else ops
    normed = implementation.rms_norm(heads, weight, 1e-5)
    assert normed.is_contiguous()
    close(normed, reference.rms_norm(heads, weight, 1e-5))


def test_rms_norm_takes_any_leading_axes() -> None:
    x, weight = whole_numbers(5, 3, 32), torch.randn(32)
    close(ops.rms_norm(x, weight, 1e-6), reference.rms_norm(x, weight, 1e-6))


@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "head_dim", "rotary"),
    [(6, 2, 32, 32), (3, 1, 64, 64), (17, 17, 48, 48), (4, 2, 96, 32)],
    ids=["nano", "gqa", "many odd heads", "partial"],
)
def test_rope_in_place_on_views(
    num_heads: int, num_kv_heads: int, head_dim: int, rotary: int, path: str, dtype: torch.dtype, place: torch.device
) -> None:
    fused = torch.randn(4, (num_heads + 2 * num_kv_heads) * head_dim, device=place).to(dtype)
    expected = fused.clone()
    positions = torch.tensor([0, 5, 499, 5], device=place)
    angles = torch.rand(500, rotary // 2, device=place) * 6.3
    cos_sin = torch.cat([angles.cos(), angles.sin()], -1)

    def heads(x: Tensor) -> tuple[Tensor, Tensor]:
        q, k, _ = x.split([num_heads * head_dim, num_kv_heads * head_dim, num_kv_heads * head_dim], -1)
        return q.unflatten(-1, (num_heads, head_dim)), k.unflatten(-1, (num_kv_heads, head_dim))

    implementation = triton.rope if path == "triton" else ops
    implementation.apply_rope(*heads(fused), positions, cos_sin)
    reference.apply_rope(*heads(expected), positions, cos_sin)
    close(fused, expected)


@pytest.mark.parametrize("width", [8, 64, 1100])
@pytest.mark.parametrize("gate", GATES.values(), ids=GATES)
def test_gated_activation(gate: Gate, width: int, path: str, dtype: torch.dtype, place: torch.device) -> None:
    gate_up = torch.randn(3, 2 * width, device=place) * 4
    gate_up[0, :4] = gate_up[1, width : width + 4] = torch.tensor([-100.0, 100.0, 0.0, -30.0])
    gate_up = gate_up.to(dtype)
    implementation = triton.gate if path == "triton" else ops
    opened, up = gate_up.cpu().double().chunk(2, -1)
    found, expected = implementation.gated(gate_up, gate), reference.gated(gate_up, gate)
    # tanh + 1 has the roundings of 1, however small the sum
    opened = opened.square() if gate.kind == "squared" else opened
    bound = 2 * gamma(16) * opened.abs() * (up.abs() + (gate.kind == "clamped"))
    if dtype != torch.float32:
        bound = 2 * stored_bound(bound, expected.cpu().double(), dtype)
    assert_within(found, expected, bound)


def test_what_is_no_number_passes_the_clamp(path: str, place: torch.device) -> None:
    gate_up = torch.zeros(2, 16, device=place)
    gate_up[0, 3] = gate_up[1, 11] = torch.nan
    implementation = triton.gate if path == "triton" else ops
    found = implementation.gated(gate_up, GATES["clamped"])
    assert found.isnan().nonzero().tolist() == [[0, 3], [1, 3]]


@pytest.mark.parametrize("block_size", [1, 16])
@pytest.mark.parametrize(("num_kv_heads", "head_dim"), [(2, 32), (3, 40), (1, 96)])
def test_write_kv_writes_its_slots_and_nothing_else(
    num_kv_heads: int, head_dim: int, block_size: int, path: str, dtype: torch.dtype, place: torch.device
) -> None:
    fused = torch.randn(4, 2 * num_kv_heads * head_dim, device=place).to(dtype)
    k, v = (x.unflatten(-1, (num_kv_heads, head_dim)) for x in fused.chunk(2, -1))
    shape = (48 // block_size, num_kv_heads, block_size, head_dim)
    caches = [torch.full(shape, torch.nan, device=place).to(dtype) for _ in range(4)]
    slots = torch.tensor([5, -1, 40, 0], device=place)
    write_on(path, k, v, *caches[:2], slots)
    reference.write_kv(k, v, caches[2], caches[3], slots)
    for written, expected in zip(caches[:2], caches[2:], strict=True):
        assert torch.equal(written.isnan(), expected.isnan())
        assert torch.equal(written.nan_to_num(), expected.nan_to_num())
        assert int((~written.isnan()).sum()) == 3 * num_kv_heads * head_dim


@pytest.mark.parametrize("name", ["rms_norm", *GATES])
def test_cpu_rows_have_the_same_bits_alone_and_in_a_batch(name: str) -> None:
    x, weight = torch.randn(33, 208), torch.randn(208)

    def run(rows: Tensor) -> Tensor:
        return ops.rms_norm(rows, weight, 1e-6) if name == "rms_norm" else ops.gated(rows, GATES[name])

    together = run(x)
    for t in (0, 7, 32):
        assert torch.equal(run(x[t : t + 1]), together[t : t + 1])
