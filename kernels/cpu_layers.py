"""All layers of a decoder but the last in one compiled call, for a step in fp32 on the CPU.

::

    layer   qkv ─(norms)─ rope ─ write KV ─ attention ─ o ─(norm)─ + ─ norm ─ gate, up ─ gated ─ down ─(norm)─ + ─ norm

A decode step of a small model is some ten short calls a layer, and to get from one to the next through Python takes a
third of the time. Here the same compiled loops are called one after the other by a compiled loop, on memory that is
taken once per step: **every bit is that of the ops called one by one**, so it does not matter who takes which way.
Products and attention that are worth it are shared out to the team of threads (`cpu_team`).

Weights, norms and shapes stand as addresses and numbers in one table, a row per layer, made when the model is loaded;
it holds the tensors, so that the addresses stay good. Knows the order of the ops and nothing else about a model. The
last layer is left to the caller, which may want few of its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numba import njit
from torch import Tensor

from . import cpu_linear, cpu_linear_grouped, cpu_linear_int8, cpu_lora, simd
from .compiled import compiled
from .cpu_attention import CHAINS, NO_SINKS, share_chains
from .cpu_attention_loops import KINDS, run_serial
from .cpu_elementwise import gate_rows, norm_rows, rotate_heads, scatter_bytes, scatter_heads
from .cpu_grouped import FIRST_ROUNDING
from .cpu_lora import add_loras
from .cpu_threads import WORTH_SHARING, thread_team
from .kv_format import FP8, KV_LIMITS
from .linear_weight import PANEL, LinearWeight, input_range
from .lora import PLACES, LoraPlan
from .work_list import AttentionPlan

# columns of a layer: addresses (0: there is none), strides and sizes
_LINEARS = PLACES
_NORMS = ("q_norm", "k_norm", "post_attention_norm", "mlp_norm", "post_mlp_norm")
_QKV, _O, _GATE_UP, _DOWN = range(0, 28, 7)  # stored, bias, scales, packing, inputs, panels, range of int8's inputs
_Q_NORM, _K_NORM, _POST_ATTENTION_NORM, _MLP_NORM, _POST_MLP_NORM, _NEXT_NORM, _ROPE, _HALF, _WINDOW = range(28, 37)
NUM_COLUMNS = 37
NO_SEGMENTS = np.empty((0, 3), np.int64)


class Layer(Protocol):
    """The weights of one layer; a norm may be missing but for `mlp_norm`. Without `qkv` or `down` no stack holds it."""

    @property
    def qkv(self) -> LinearWeight | None: ...
    @property
    def o(self) -> LinearWeight: ...
    @property
    def gate_up(self) -> LinearWeight | None: ...
    @property
    def down(self) -> LinearWeight | None: ...
    @property
    def mlp_norm(self) -> Tensor: ...


class LayerStack:
    """Layers that can be run in one call.

    Args:
        layers: at least one.
        next_norms: of each layer the norm that follows it, fp32.
        rope_tables, windows: of each layer; None, 0: it has none.
        heads: query heads, KV heads, dims of a head.
        factors: of the scores: the scale and the soft cap (0: none).
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        next_norms: Sequence[Tensor],
        rope_tables: Sequence[Tensor | None],
        windows: Sequence[int],
        *,
        heads: tuple[int, int, int],
        factors: tuple[float, float],
        eps: float,
        is_gelu: bool,
    ) -> None:
        self._held = (layers, next_norms, rope_tables)
        self._table = np.zeros((len(layers), NUM_COLUMNS), np.int64)
        for row, layer, norm, rope, window in zip(self._table, layers, next_norms, rope_tables, windows, strict=True):
            for first, name in zip((_QKV, _O, _GATE_UP, _DOWN), _LINEARS, strict=True):
                row[first : first + 7] = _describe(getattr(layer, name))
            for column, name in enumerate(_NORMS, _Q_NORM):
                weight = getattr(layer, name)
                row[column] = 0 if weight is None else weight.data_ptr()
            row[_NEXT_NORM], row[_WINDOW] = norm.data_ptr(), window
            if rope is not None:
                row[_ROPE], row[_HALF] = rope.data_ptr(), rope.shape[1] // 2
        self._heads, self._eps, self._is_gelu = heads, eps, is_gelu
        self._factors = (factors[0] * simd.LOG2_E, factors[1] * simd.LOG2_E)
        self._sizes = [max(int(row[first + 5]) * PANEL for row in self._table) for first in (_QKV, _O, _GATE_UP, _DOWN)]
        begins = np.array([_QKV, _O, _GATE_UP, _DOWN])
        has_int8 = bool(self._table[:, begins + 2].any())
        has_grouped = bool((self._table[:, begins + 3] & 7 >= FIRST_ROUNDING).any())
        self._tasks = (
            (cpu_linear.PANELS, True), (cpu_linear_int8.PANELS, has_int8), (cpu_linear_grouped.PANELS, has_grouped)
        )  # fmt: skip
        self._most_work = max(
            int(row[first + 4] * row[first + 5]) * PANEL for row in self._table for first in (_QKV, _O, _GATE_UP, _DOWN)
        )

    @staticmethod
    def can_hold(layers: Sequence[Layer], rope_tables: Sequence[Tensor | None], head_dim: int) -> bool:
        """Whether these are what the compiled loops read: packed weights of fp32, widths in whole vectors."""
        linears = [getattr(layer, name) for layer in layers for name in _LINEARS]
        norms = [getattr(layer, name) for layer in layers for name in _NORMS]
        return (
            all(weight is not None and (weight.is_packed or weight.is_int8) for weight in linears)
            and all(weight.num_inputs % 8 == 0 for weight in linears)
            and all(weight.groups is None or weight.groups.order is None for weight in linears)
            and all(norm is None or (norm.dtype is torch.float32 and norm.is_contiguous()) for norm in norms)
            and all(rope is None or (rope.shape[1] % 16 == 0 and rope.is_contiguous()) for rope in rope_tables)
            and head_dim % 8 == 0
        )

    def fits(self, plan: AttentionPlan, keys: Tensor, values: Tensor) -> bool:
        """Whether a step can go this way: by its KV."""
        if plan.cpu_work is None or keys.dtype not in KINDS or keys.stride() != values.stride():
            return False
        return keys.stride(-1) == 1 and keys.shape[-1] % 8 == 0

    def run(
        self,
        normed: Tensor,
        residual: Tensor,
        positions: Tensor,
        slots: Tensor,
        plan: AttentionPlan,
        keys: Sequence[Tensor],
        values: Sequence[Tensor],
        key_scales: Sequence[Tensor | None],
        value_scales: Sequence[Tensor | None],
        lora: LoraPlan | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The step through all these layers: normed, residual `[T, hidden]` → the same after them. Writes the KV.

        positions, slots `[T]` int64; keys, values and scales: of these layers, and of further ones, of a cache that
        `fits`. lora: whose rows go through adapters.
        """
        work = plan.cpu_work
        assert work is not None
        num_tokens, hidden = normed.shape
        num_heads, _, head_dim = self._heads
        kv = np.array(
            [
                [0 if tensor is None else tensor.data_ptr() for tensor in tensors]
                for tensors in zip(keys, values, key_scales, value_scales, strict=True)
            ][: len(self._table)],
            np.int64,
        )
        inner = int(self._table[0, _DOWN + 4])
        widths = (hidden, hidden, self._sizes[0], num_heads * head_dim, max(self._sizes[1], self._sizes[3]))
        memory = [torch.empty(num_tokens, width) for width in (*widths, self._sizes[2], inner)]
        memory[0].copy_(normed)
        memory[1].copy_(residual)
        positions, slots = positions.contiguous(), slots.contiguous()
        cache = keys[0]
        numbers = (
            *(tensor.data_ptr() for tensor in memory),
            positions.data_ptr(),
            slots.data_ptr(),
            num_tokens,
            hidden,
            inner,
            *self._heads,
            *cache.stride()[:3],
            cache.shape[2],
            KINDS[cache.dtype],
            2 * work.num_pairs * num_heads * head_dim >= WORTH_SHARING,
        )
        lists = (work.chain_starts, work.items, work.rows, work.positions, plan.block_tables)
        limit = KV_LIMITS.get(cache.dtype, 0.0)
        is_fp8 = cache.dtype == FP8
        lora_memory = () if lora is None else cpu_lora.scratch(lora)
        lora_places = tuple(part.data_ptr() for part in lora_memory) or (0, 0)
        segments = NO_SEGMENTS if lora is None else lora.table
        rest = (NO_SINKS, numbers, self._factors, self._eps, limit, is_fp8, self._is_gelu, segments, lora_places)
        with thread_team(self._most_work * num_tokens) as team:
            wanted = (*self._tasks, (CHAINS, team != 0))
            tasks = tuple(task.address if is_wanted else 0 for task, is_wanted in wanted)
            _run_layers(team, tasks, self._table, kv, *lists, *rest)
        return memory[0], memory[1]


def _describe(weight: LinearWeight) -> tuple[int, ...]:
    """The seven columns of a linear map."""
    assert weight.bias is not None
    scales = 0 if weight.scales is None else weight.scales.data_ptr()
    num_panels = weight.stored.shape[0]
    return (
        weight.stored.data_ptr(), weight.bias.data_ptr(), scales, weight.packing, weight.num_inputs, num_panels,
        input_range(weight.num_inputs),
    )  # fmt: skip


@njit
def _apply(team, tasks, layer, first, x, x_stride, out, num_rows):  # type: ignore[no-untyped-def]  # numba infers
    """A linear map whose columns begin at `first`; x_stride in bytes, rows of `out` in whole panels."""
    stored, bias, scales, packing = layer[first], layer[first + 1], layer[first + 2], layer[first + 3]
    depth, num_panels, limit = layer[first + 4], layer[first + 5], layer[first + 6]
    ours = team if num_rows * depth * num_panels * PANEL >= WORTH_SHARING else 0
    if scales != 0:
        shape = (num_rows, depth, num_panels, limit)
        cpu_linear_int8.all_panels(ours, tasks[1], x, x_stride, stored, scales, bias, out, *shape)
    elif packing & 7 >= FIRST_ROUNDING:
        sizes = (num_rows, depth, num_panels)
        cpu_linear_grouped.all_panels(ours, tasks[2], x, x_stride, stored, packing, bias, out, *sizes)
    else:
        cpu_linear.all_panels(ours, tasks[0], x, x_stride, stored, packing, bias, out, num_rows, depth, num_panels)


@njit
def _adapt(team, tasks, segments, memory, layer, place, x, x_stride, out, out_width):  # type: ignore[no-untyped-def]
    """What adapters add to a linear map; rows of `out` of out_width numbers."""
    if len(segments) > 0:
        add_loras(team, tasks[0], segments, layer, place, x, x_stride, out, 4 * out_width, memory[0], memory[1])


@njit
def _norm_heads(x, weight, num_tokens, num_heads, head_dim, token_stride, eps):  # type: ignore[no-untyped-def]
    """Norm each head in place."""
    for t in range(num_tokens):
        row = x + 4 * t * token_stride
        norm_rows(row, 0, 0, weight, row, num_heads, head_dim, head_dim, 0, head_dim, eps)


@compiled()
def _add(  # type: ignore[no-untyped-def]
    team, tasks, layer, index, segments, memory, linear, own_norm, norm, x, x_stride, projected, residual, normed,
    num_tokens, hidden, eps,
):  # fmt: skip
    """What a half of a layer ends with: the projection, normed if it has a norm of its own, joins the residual."""
    _apply(team, tasks, layer, linear, x, x_stride, projected, num_tokens)
    width = layer[linear + 5] * PANEL
    _adapt(team, tasks, segments, memory, index, linear // 7, x, x_stride, projected, width)
    if layer[own_norm] != 0:
        norm_rows(projected, 0, 0, layer[own_norm], projected, num_tokens, hidden, width, 0, width, eps)
    norm_rows(projected, residual, residual, layer[norm], normed, num_tokens, hidden, width, hidden, hidden, eps)


@compiled()
def _run_layers(  # type: ignore[no-untyped-def]
    team,
    tasks,
    table,
    kv,
    chain_starts,
    items,
    rows,
    row_positions,
    block_tables,
    sinks,
    numbers,
    factors,
    eps,
    limit,
    is_fp8,
    is_gelu,
    segments,
    memory,
):
    normed, residual, qkv, attended, projected, gate_up, gated, positions, slots = numbers[:9]
    num_tokens, hidden, inner, num_heads, num_kv_heads, head_dim = numbers[9:15]
    cache_block, cache_head, cache_slot, block_size, stored, is_attention_shared = numbers[15:21]
    for i in range(len(table)):
        layer = table[i]
        _apply(team, tasks, layer, _QKV, normed, 4 * hidden, qkv, num_tokens)
        token = layer[_QKV + 5] * PANEL
        _adapt(team, tasks, segments, memory, i, _QKV // 7, normed, 4 * hidden, qkv, token)
        k = qkv + 4 * num_heads * head_dim
        v = k + 4 * num_kv_heads * head_dim
        if layer[_Q_NORM] != 0:
            _norm_heads(qkv, layer[_Q_NORM], num_tokens, num_heads, head_dim, token, eps)
            _norm_heads(k, layer[_K_NORM], num_tokens, num_kv_heads, head_dim, token, eps)
        if layer[_ROPE] != 0:
            strides = (token, head_dim, token, head_dim)
            rotate_heads(qkv, k, positions, layer[_ROPE], num_tokens, num_heads, num_kv_heads, layer[_HALF], *strides)
        keys, values, key_scales, value_scales = kv[i, 0], kv[i, 1], kv[i, 2], kv[i, 3]
        shape = (num_tokens, num_kv_heads, head_dim, block_size)
        cache = (cache_block, cache_head, cache_slot)
        if key_scales != 0:
            scatter_bytes(k, keys, key_scales, slots, *shape, is_fp8, limit, token, head_dim, *cache)
            scatter_bytes(v, values, value_scales, slots, *shape, is_fp8, limit, token, head_dim, *cache)
        else:
            scatter_heads(k, v, keys, values, slots, *shape, token, head_dim, token, head_dim, *cache)
        attention = (
            qkv, token, head_dim, keys, values, cache_block, cache_head, cache_slot, block_size, attended, num_heads,
            num_kv_heads, head_dim, layer[_WINDOW], stored, key_scales, value_scales, num_tokens,
        )  # fmt: skip
        if team != 0 and is_attention_shared:
            share_chains(
                team, tasks[3], chain_starts, items, rows, row_positions, block_tables, sinks, attention, factors
            )
        else:
            run_serial(chain_starts, items, rows, row_positions, block_tables, sinks, attention, factors)
        size = 4 * num_heads * head_dim
        _add(
            team,
            tasks,
            layer,
            i,
            segments,
            memory,
            _O,
            _POST_ATTENTION_NORM,
            _MLP_NORM,
            attended,
            size,
            projected,
            residual,
            normed,
            num_tokens,
            hidden,
            eps,
        )
        _apply(team, tasks, layer, _GATE_UP, normed, 4 * hidden, gate_up, num_tokens)
        width = layer[_GATE_UP + 5] * PANEL
        _adapt(team, tasks, segments, memory, i, _GATE_UP // 7, normed, 4 * hidden, gate_up, width)
        gate_rows(gate_up, gated, num_tokens, inner, width, is_gelu)
        size = 4 * inner
        _add(
            team,
            tasks,
            layer,
            i,
            segments,
            memory,
            _DOWN,
            _POST_MLP_NORM,
            _NEXT_NORM,
            gated,
            size,
            projected,
            residual,
            normed,
            num_tokens,
            hidden,
            eps,
        )
