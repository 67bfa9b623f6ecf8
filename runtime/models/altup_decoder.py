"""AltUpDecoder: a decoder whose layers compute one of several streams of hidden states (Gemma 3n; see `altup.py`).

Knows what `Decoder` knows. Attention, MLP, cache and adapters are those of `Decoder`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from ...kernels import ops
from .altup import StreamWeights
from .cut import Cut
from .decoder import Decoder
from .norms import apply_norm
from .step import AdaptedRows, KVTensors, StateStep, WindowStep


class AltUpDecoder(Decoder):
    """A loaded model with `config.altup`, whose layers have inputs of their own (`layer_inputs.py`)."""

    def __init__(self, cut: Cut, *, streams: StreamWeights, **parts: Any) -> None:
        """parts: as `Decoder` takes them."""
        super().__init__(cut, **parts)
        self._streams = streams
        self._own += [*streams.begin, *streams.end]

    def _through_layers(
        self,
        x: Tensor,
        positions: Tensor,
        kv_cache: KVTensors,
        plan: ops.AttentionPlan,
        slots: Tensor,
        rows: Tensor | None,
        adapted: AdaptedRows | None,
        watch: Callable[[int, Tensor], None] | None,
        recurrent: StateStep | None,
        windowed: WindowStep | None,
        inputs: Tensor | None = None,
    ) -> Tensor:
        config, eps, last = self.config, self.config.rms_norm_eps, len(self._layers) - 1
        assert config.altup is not None
        assert inputs is not None
        active, streams = config.altup.active, self._streams.split(x)
        lora = adapted.every if adapted is not None else None
        none_wanted = rows is not None and rows.shape[0] == 0
        for index, (spec, weights) in enumerate(self._layers):
            altup, layer_input = weights.altup, weights.layer_input
            assert altup is not None
            assert layer_input is not None
            own = windowed if windowed is not None and spec.window else WindowStep(plan, slots)
            stops = index == self._last_kept and none_wanted and plan.mass is None
            streams = altup.predict(streams, active, eps)
            normed = apply_norm(streams[active], weights.input_norm, eps)
            mixed = self._mix(index, normed, positions, kv_cache, own, lora, watch, recurrent, stops)
            if stops:
                return normed[:0]
            if index == last and rows is not None:
                mixed, normed, streams, inputs = (
                    [part[rows] for part in mixed],
                    normed[rows],
                    streams[:, rows],
                    inputs[rows],
                )
                lora = adapted.wanted if adapted is not None else None
            attended = apply_norm(self._ranks.sum(self._add_up(index, mixed, lora)), weights.post_attention_norm, eps)
            x = (streams[active] + attended + altup.residual(normed, eps)) * 0.5**0.5
            padded = slots if rows is None else None
            made = self._ranks.sum(self._mlp(index, apply_norm(x, weights.mlp_norm, eps), padded, lora))
            x = x + apply_norm(made, weights.post_mlp_norm, eps)
            streams = altup.correct(streams, x, active, eps)
            first = streams[active] if altup.scale is None else (streams[active] * altup.scale).to(x.dtype)
            streams[1:] += layer_input.of(first, inputs[:, index], self._gate, eps)
        return apply_norm(self._streams.join(streams), self._final_norm, eps)
