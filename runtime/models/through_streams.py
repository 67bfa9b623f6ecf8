"""The way through a decoder's layers with several streams of hidden states (`altup.py`), each layer with its own input.

Attention, MLP, cache and adapters are those of the decoder. Keeps nothing between calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from ...kernels import LoraPlan, ops
from ..parallel.ranks import Ranks
from .altup import StreamWeights
from .config import ModelConfig
from .layer_config import LayerConfig
from .layer_weights import LayerWeights
from .mlp import MlpRules, run_mlp
from .norms import Norm, apply_norm
from .step import AdaptedRows, KVTensors, StateStep, WindowStep


class Layers(Protocol):
    """What is needed of a decoder; see `Decoder`."""

    config: ModelConfig
    _layers: list[tuple[LayerConfig, LayerWeights]]
    _last_kept: int
    _final_norm: Norm
    _rules: MlpRules
    _ranks: Ranks

    def _mix(
        self,
        index: int,
        normed: Tensor,
        positions: Tensor,
        kv_cache: KVTensors,
        own: WindowStep,
        lora: LoraPlan | None,
        watch: Callable[[int, Tensor], None] | None,
        recurrent: StateStep | None,
        stops: bool,
    ) -> list[Tensor]: ...

    def _add_up(self, index: int, mixed: list[Tensor], lora: LoraPlan | None) -> Tensor: ...


def through_streams(
    decoder: Layers,
    weights: StreamWeights,
    x: Tensor,
    inputs: Tensor,
    positions: Tensor,
    kv_cache: KVTensors,
    plan: ops.AttentionPlan,
    slots: Tensor,
    rows: Tensor | None,
    adapted: AdaptedRows | None,
    watch: Callable[[int, Tensor], None] | None,
    recurrent: StateStep | None,
    windowed: WindowStep | None,
) -> Tensor:
    """As `Decoder.hidden_states`, of embeddings `[T, C]` and of the layers' inputs `[T, num_layers, size]`."""
    config, eps, last = decoder.config, decoder.config.rms_norm_eps, decoder.config.num_layers - 1
    assert config.altup is not None
    active, streams = config.altup.active, weights.split(x)
    lora = adapted.every if adapted is not None else None
    none_wanted = rows is not None and rows.shape[0] == 0
    for index, (spec, layer) in enumerate(decoder._layers):
        altup, layer_input = layer.altup, layer.layer_input
        assert altup is not None
        assert layer_input is not None
        own = windowed if windowed is not None and spec.window else WindowStep(plan, slots)
        stops = index == decoder._last_kept and none_wanted and plan.mass is None
        streams = altup.predict(streams, active, eps)
        normed = apply_norm(streams[active], layer.input_norm, eps)
        mixed = decoder._mix(index, normed, positions, kv_cache, own, lora, watch, recurrent, stops)
        if stops:
            return normed[:0]
        if index == last and rows is not None:
            mixed, normed = [part[rows] for part in mixed], normed[rows]
            streams, inputs = streams[:, rows], inputs[rows]
            lora = adapted.wanted if adapted is not None else None
        attended = apply_norm(decoder._ranks.sum(decoder._add_up(index, mixed, lora)), layer.post_attention_norm, eps)
        x = (streams[active] + attended + altup.residual(normed, eps)) * 0.5**0.5
        # a caller that wants the logits of all tokens may have padded the step
        padded = slots if rows is None else None
        made = run_mlp(apply_norm(x, layer.mlp_norm, eps), layer, decoder._rules, index, padded, lora, x)
        x = x + apply_norm(made, layer.post_mlp_norm, eps)
        streams = altup.correct(streams, x, active, eps)
        first = streams[active] if altup.scale is None else (streams[active] * altup.scale).to(x.dtype)
        streams[1:] += layer_input.of(first, inputs[:, index], decoder._rules.gate, eps)
    return apply_norm(weights.join(streams), decoder._final_norm, eps)
