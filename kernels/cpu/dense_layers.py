"""Layers of a plain decoder in one compiled call, on the CPU (`core/dense_layers.h`).

It calls the loops that `ops` would call one by one, with the same arguments, so every bit is the same; what it spares
is the caller's time between them, some 190 microseconds a layer where the processor's caches hold weights and no Python
(`bench/results/cpu_decode.txt`).

Knows tensors of keys and values; it knows no model, and nothing but RMS norms before attention and before a gated MLP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from ..._core import kernels as core
from ..gate import Gate
from ..linear_weight import LinearWeight
from .attention import STORED
from .elementwise import GATES
from .linear import form_of
from .panels import PANEL
from .readable import has_bytes, is_plain
from .threads import ONE_TEAM, num_cpu_threads
from .work import CpuWork

Scales = list[Tensor] | list[None]
LayersKV = tuple[list[Tensor], list[Tensor], Scales, Scales]
"""Keys and values of all layers, and the scales of both."""


@dataclass(frozen=True, slots=True)
class DenseLayer:
    """One layer; norms are fp32 weights. q_norm, k_norm: of each head, both or none. next_norm: of what follows it."""

    qkv: LinearWeight
    o: LinearWeight
    gate_up: LinearWeight
    down: LinearWeight
    q_norm: Tensor | None
    k_norm: Tensor | None
    mlp_norm: Tensor
    next_norm: Tensor

    def is_readable(self, head_dim: int) -> bool:
        """Whether the compiled call reads its weights."""
        maps = (self.qkv, self.o, self.gate_up, self.down)
        norms = [norm for norm in (self.q_norm, self.k_norm, self.mlp_norm, self.next_norm) if norm is not None]
        return (
            all(map(_is_readable, maps))
            and head_dim % 8 == 0
            and self.down.num_inputs % 8 == 0
            and (self.q_norm is None) == (self.k_norm is None)
            and is_plain(*norms)
        )


def _is_readable(weight: LinearWeight) -> bool:
    in_order = weight.groups is None or weight.groups.order is None
    return (weight.is_packed or weight.is_int8) and in_order and weight.num_outputs % PANEL == 0


class DenseLayers:
    """Layers that follow one another.

    Args:
        scale, soft_cap: of attention, as in `ops.attention`.
        eps: of all norms.

    Attributes:
        num_layers: how many they are.
    """

    def __init__(
        self,
        layers: Sequence[DenseLayer],
        *,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        gate: Gate,
        eps: float,
        scale: float,
        soft_cap: float,
    ) -> None:
        self.num_layers = len(layers)
        self._kept = layers  # the core knows addresses alone
        shape = (num_heads, num_kv_heads, head_dim, GATES[gate.kind])
        self._core = core.DenseLayers(*shape, gate.alpha, gate.limit, eps, scale, soft_cap)
        for layer in layers:
            qkv, o, gate_up, down = map(_map_of, (layer.qkv, layer.o, layer.gate_up, layer.down))
            norms = (layer.q_norm, layer.k_norm, layer.mlp_norm, layer.next_norm)
            self._core.add(qkv, o, gate_up, down, *[0 if norm is None else norm.data_ptr() for norm in norms])

    def run(
        self,
        normed: Tensor,
        residual: Tensor,
        positions: Tensor,
        slots: Tensor,
        cos_sin: Tensor | None,
        kv: LayersKV,
        work: CpuWork | None,
    ) -> int:
        """Takes what goes into the first layer, `[T, C]`, after its norm and before it; both are overwritten by what
        goes into the layer after the last, and keys and values of `positions` `[T]` are at `slots` `[T]` then.

        cos_sin: of `ops.apply_rope`; None: no positions. Returns how many layers it was: none, and nothing is changed,
        where the compiled call does not read these tensors.
        """
        keys, values, k_scales, v_scales = kv
        if work is None or not _are_readable(normed, residual, positions, slots, cos_sin):
            return 0
        if not _is_readable_cache(keys[0], values[0], k_scales[0], v_scales[0]):
            return 0
        layers = list(zip(keys, values, k_scales, v_scales, strict=True))[: self.num_layers]
        block_stride, head_stride, slot_stride, _ = keys[0].stride()
        self._core.run(
            ONE_TEAM,
            num_cpu_threads(),
            work.lists,
            normed.shape[0],
            positions.data_ptr(),
            slots.data_ptr(),
            0 if cos_sin is None else cos_sin.data_ptr(),
            0 if cos_sin is None else cos_sin.shape[1] // 2,
            [0 if tensor is None else tensor.data_ptr() for layer in layers for tensor in layer],
            block_stride,
            head_stride,
            slot_stride,
            keys[0].shape[2],
            STORED[keys[0].dtype],
            normed.data_ptr(),
            residual.data_ptr(),
        )
        return self.num_layers


def _are_readable(normed: Tensor, residual: Tensor, *others: Tensor | None) -> bool:
    """others: positions, slots and the table of turns."""
    table = others[-1]
    is_even = table is None or table.shape[1] % 16 == 0
    dense = (normed, residual, *others)
    return is_plain(normed, residual) and is_even and all(one is None or one.is_contiguous() for one in dense)


def _is_readable_cache(keys: Tensor, values: Tensor, k_scales: Tensor | None, v_scales: Tensor | None) -> bool:
    """Of one layer, as those of all others are."""
    if keys.stride() != values.stride():
        return False
    if k_scales is not None and v_scales is not None:
        return has_bytes(keys, values, k_scales, v_scales)
    return is_plain(keys, values)


def _map_of(weight: LinearWeight) -> core.Map:
    assert weight.bias is not None
    return core.Map(
        form_of(weight),
        weight.stored.data_ptr(),
        weight.packing,
        weight.bias.data_ptr(),
        0 if weight.scales is None else weight.scales.data_ptr(),
        weight.num_inputs,
        weight.stored.shape[0],
        -1.0 if weight.input_step is None else weight.input_step,
        weight.input_limit,
    )
