"""Streams: the several streams of hidden states of one step (`altup.py`), on their way through a decoder's layers.

Each layer computes the active one; the others are corrected by what it found. Knows no attention and no MLP.
"""

from __future__ import annotations

from torch import Tensor

from .altup import AltUpWeights, StreamWeights
from .config import ModelConfig
from .layer_weights import LayerWeights
from .mlp import MlpRules


class Streams:
    """Made for each step.

    Args:
        weights: what makes streams of embeddings, and one of them in the end.
        x: embeddings, `[T, C]`.
        inputs: of each layer, `[T, num_layers, size]`.
    """

    def __init__(self, weights: StreamWeights, x: Tensor, inputs: Tensor, config: ModelConfig, rules: MlpRules) -> None:
        assert config.altup is not None
        self._weights, self._active, self._eps = weights, config.altup.active, config.rms_norm_eps
        self._states, self._inputs, self._gate = weights.split(x), inputs, rules.gate

    def predict(self, layer: LayerWeights) -> Tensor:
        """What the layer computes, `[T, C]`: the active stream of those that it is expected to make."""
        self._states = _altup(layer).predict(self._states, self._active, self._eps)
        return self._states[self._active]

    def select(self, rows: Tensor) -> None:
        """Goes on with these rows alone."""
        self._states, self._inputs = self._states[:, rows], self._inputs[rows]

    def after_attention(self, layer: LayerWeights, attended: Tensor, normed: Tensor) -> Tensor:
        """The active stream after a layer's attention, `[T, C]`; normed: what attention was made of."""
        residual = _altup(layer).residual(normed, self._eps)
        total: Tensor = (self._states[self._active] + attended + residual) * 0.5**0.5
        return total

    def correct(self, layer: LayerWeights, index: int, x: Tensor) -> None:
        """Corrects all streams by what layer `index` found, `[T, C]`, and adds the layer's own input to the others."""
        altup, layer_input = _altup(layer), layer.layer_input
        assert layer_input is not None
        self._states = altup.correct(self._states, x, self._active, self._eps)
        first = self._states[self._active]
        first = first if altup.scale is None else (first * altup.scale).to(x.dtype)
        self._states[1:] += layer_input.of(first, self._inputs[:, index], self._gate, self._eps)

    def join(self) -> Tensor:
        """All streams as one, `[T, C]`."""
        return self._weights.join(self._states)


def _altup(layer: LayerWeights) -> AltUpWeights:
    assert layer.altup is not None
    return layer.altup
