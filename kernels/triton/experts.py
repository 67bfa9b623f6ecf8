"""A mixture of experts on the device: products of rows with the weights of the expert that each of them chose.

The host does not know which experts were chosen, and must not wait for it: the whole step may be a captured graph. So
(row, expert) pairs are sorted on the device, and programs find their tiles by themselves (`triton/tiles.py`). Gate and
up-projection read rows of tokens and leave them sorted; the projection down puts its rows back, a row for each pair,
and `sum_choices` adds them up in the order of the choice.

A row is summed over the inputs in one order, whatever other rows are in its tile, so its bits depend on the shape of
the tile alone.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..device_grouped import span_of
from ..gate import Gate
from ..launch import (
    ExpertsConfig,
    experts_config,
    grouped_experts_config,
    int8_experts_config,
    most_registers,
    mxfp4_config,
)
from ..linear_weights import LinearWeights
from ..plain import ops as reference
from .gate import gated
from .grouped import multiply_grouped_tiles
from .int8 import multiply_int8_tiles, quantised
from .mxfp4 import multiply_mxfp4_tiles
from .route import sorted_pairs
from .tiles import take_tile

SUM_BLOCK = 1024


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def multiply_tiles(
    x_ptr: tl.tensor,  # [., depth] rows of tokens, or of sorted pairs
    weight_ptr: tl.tensor,  # [num_experts, num_outputs, depth]
    bias_ptr: tl.tensor,  # [num_experts, num_outputs]
    out_ptr: tl.tensor,  # [num_pairs, num_outputs]
    order_ptr: tl.tensor,  # [num_pairs] int32: pair of a sorted place
    starts_ptr: tl.tensor,  # [num_experts + 1] int32
    tiles_ptr: tl.tensor,  # [num_experts + 1] int32
    x_stride: tl.tensor,
    num_experts: tl.tensor,
    num_outputs: tl.tensor,
    depth: tl.tensor,
    NUM_CHOSEN: tl.constexpr,  # pairs of a token
    IN_ORDER: tl.constexpr,  # x has a row per token and out one per sorted place; else a sorted one, and one per pair
    HAS_BIAS: tl.constexpr,
    BLOCK_EXPERTS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_OUTPUTS: tl.constexpr,
    BLOCK_DEPTH: tl.constexpr,
    STAGES: tl.constexpr,
) -> None:
    expert, place, is_there = take_tile(starts_ptr, tiles_ptr, num_experts, BLOCK_EXPERTS, BLOCK_ROWS)
    if expert < num_experts:
        pair = tl.load(order_ptr + place, mask=is_there, other=0)
        row = pair // NUM_CHOSEN if IN_ORDER else place
        n = tl.program_id(1) * BLOCK_OUTPUTS + tl.arange(0, BLOCK_OUTPUTS)
        k = tl.arange(0, BLOCK_DEPTH)
        # outputs past the end are computed from the last one's weights and not stored
        output = expert.to(tl.int64) * num_outputs + tl.minimum(n, num_outputs - 1)
        x_at = x_ptr + tl.where(is_there, row, 0).to(tl.int64)[:, None] * x_stride + k[None, :]
        weight_at = weight_ptr + output[:, None] * depth + k[None, :]
        acc = tl.zeros([BLOCK_ROWS, BLOCK_OUTPUTS], tl.float32)
        for begin in tl.range(0, depth, BLOCK_DEPTH, num_stages=STAGES):
            is_inside = k[None, :] < depth - begin
            x = tl.load(x_at + begin, mask=is_inside, other=0.0)
            weight = tl.load(weight_at + begin, mask=is_inside, other=0.0)
            acc = tl.dot(x, tl.trans(weight), acc, input_precision="ieee")
        if HAS_BIAS:
            acc += tl.load(bias_ptr + output).to(tl.float32)[None, :]
        to = (place if IN_ORDER else pair).to(tl.int64)
        mask = is_there[:, None] & (n < num_outputs)[None, :]
        tl.store(out_ptr + to[:, None] * num_outputs + n[None, :], acc.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def sum_choices(
    results_ptr: tl.tensor,  # [T * NUM_CHOSEN, width]
    shares_ptr: tl.tensor,  # [T, NUM_CHOSEN] fp32
    out_ptr: tl.tensor,  # [T, width]
    width: tl.tensor,
    NUM_CHOSEN: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    token = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    mask = c < width
    total = tl.zeros([COLUMNS], tl.float32)
    for index in tl.static_range(NUM_CHOSEN):
        pair = token * NUM_CHOSEN + index
        share = tl.load(shares_ptr + pair)
        result = tl.load(results_ptr + pair * width + c, mask=mask, other=0.0).to(tl.float32)
        total += tl.where(share != 0.0, share * result, 0.0)  # an expert of another device has none, and no result
    tl.store(out_ptr + token * width + c, total.to(out_ptr.dtype.element_ty), mask=mask)


def _config(weights: LinearWeights, num_pairs: int, itemsize: int, *, deterministic: bool) -> ExpertsConfig:
    if weights.groups is not None and weights.groups.input_step is not None:
        return int8_experts_config(num_pairs, weights.num_maps, deterministic=deterministic)
    if weights.groups is not None:
        step = span_of(weights.groups.size)
        return grouped_experts_config(num_pairs, weights.num_maps, step, deterministic=deterministic)
    if weights.scales is not None:
        return mxfp4_config(num_pairs, weights.num_maps, deterministic=deterministic)
    return experts_config(num_pairs, weights.num_maps, itemsize, deterministic=deterministic)


def mix_experts(
    x: Tensor, chosen: Tensor, shares: Tensor, gate_up: LinearWeights, down: LinearWeights, *, gate: Gate
) -> Tensor:
    """`ops.mix_experts` on the device; nothing of it waits for the host or depends on which experts were chosen."""
    num_tokens, hidden = x.shape
    num_chosen = chosen.shape[1]
    assert gate_up.stored is not None
    num_experts, num_inner, _ = gate_up.stored.shape
    num_pairs = num_tokens * num_chosen
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    if not num_pairs:
        return out
    itemsize, deterministic = x.element_size(), gate_up.row_tile > 0
    config = _config(gate_up, num_pairs, itemsize, deterministic=deterministic)
    order, starts, tiles = sorted_pairs(chosen, num_experts, config.block_rows)
    num_tiles = num_pairs // config.block_rows + min(num_pairs, num_experts)
    inner = torch.empty((num_pairs, num_inner), dtype=x.dtype, device=x.device)
    results = torch.empty((num_pairs, hidden), dtype=x.dtype, device=x.device)

    def multiply(rows: Tensor, weights: LinearWeights, to: Tensor, *, in_order: bool) -> None:
        assert weights.stored is not None
        num_outputs = weights.stored.shape[1]
        # tiles of as many rows, whatever the form of the weights
        config = _config(weights, num_pairs, itemsize, deterministic=deterministic)
        kernel, stored, sizes = multiply_tiles, [weights.stored], list[int]()
        constants: dict[str, object] = {}
        if weights.scales is not None:
            kernel, stored = multiply_mxfp4_tiles, [weights.stored, weights.scales]
        elif weights.groups is not None and weights.groups.input_step is not None:
            assert weights.groups.factors is not None
            rows, steps = quantised(rows, weights.groups.input_step, weights.groups.input_limit)
            kernel, stored = multiply_int8_tiles, [weights.stored.view(torch.int8), weights.groups.factors, steps]
            constants["maxnreg"] = most_registers(config.num_warps)
        elif weights.groups is not None and weights.groups.factors is not None:
            factors = weights.groups.factors
            kernel, stored = multiply_grouped_tiles, [weights.stored, factors.view(torch.int32)]
            sizes = [weights.stored.shape[2], weights.groups.size]
            constants = {"ELEMENT": weights.groups.element, "HAS_ZEROS": factors.dtype is torch.int32}
            constants["HAS_OFFSETS"] = weights.groups.has_offsets
            constants["maxnreg"] = most_registers(config.num_warps)  # or the compiler may spill, to fit another program
        kernel[(num_tiles, triton.cdiv(num_outputs, config.block_outputs))](
            rows,
            *stored,
            weights.stored if weights.bias is None else weights.bias,
            to,
            order,
            starts,
            tiles,
            rows.stride(0),
            num_experts,
            num_outputs,
            rows.shape[1],
            *sizes,
            **constants,
            NUM_CHOSEN=num_chosen,
            IN_ORDER=in_order,
            HAS_BIAS=weights.bias is not None,
            BLOCK_EXPERTS=triton.next_power_of_2(num_experts),
            BLOCK_ROWS=config.block_rows,
            BLOCK_OUTPUTS=config.block_outputs,
            BLOCK_DEPTH=config.block_depth,
            STAGES=config.num_stages,
            num_warps=config.num_warps,
            num_stages=config.num_stages,
        )

    multiply(x, gate_up, inner, in_order=True)
    made = reference.gated(inner, gate) if gate.kind == "relu2" else gated(inner, gate)
    multiply(made, down, results, in_order=False)
    sum_choices[(num_tokens, triton.cdiv(hidden, SUM_BLOCK))](
        results, shares, out, hidden, NUM_CHOSEN=num_chosen, COLUMNS=SUM_BLOCK, num_warps=4, enable_fp_fusion=False
    )
    return out
