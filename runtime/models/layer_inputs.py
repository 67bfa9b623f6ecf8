"""Inputs of each layer that come from the token itself: a second embedding, with a row for every layer (Gemma 3n).

::

    token ─ second embedding ─┐
                              + ─ an input of each layer ─┐
    embedding ─ down ─ norm ──┘                           × ─ up ─ norm ─ added to hidden states
                                   hidden ─ gate ─ GELU ──┘

All layers' inputs are made once a step, `[T, num_layers, size]`. Of several ranks each makes those of its own layers,
whole, and all gather them: they have the bits of one rank. In fp32 on the CPU a row's bits depend on that row alone.
Cost: a product of `num_layers · size` rows a step, and two of `size` in each layer; a gather of the inputs a step.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ...kernels import Gate, LinearWeight, ops
from ..parallel.ranks import Ranks
from .config import ModelConfig
from .layer_config import LAYER_TABLE
from .norms import rounded, scaled
from .part import whole_ones
from .reader import Reader


@dataclass(frozen=True, slots=True)
class InputEmbedding:
    """What makes the inputs of all layers, or of those of a rank."""

    table: LinearWeight  # rows of tokens, each num_layers · size
    projection: LinearWeight  # hidden_size -> num_layers · size
    norm: Tensor  # [size]

    @property
    def parts(self) -> tuple[LinearWeight, LinearWeight, Tensor]:
        return self.table, self.projection, self.norm

    def of(self, token_ids: Tensor, x: Tensor, model: ModelConfig, ranks: Ranks) -> Tensor:
        """`[T, num_layers, size]`, of tokens and their embeddings `[T, C]`; a token beyond the table counts as 0."""
        config = model.layer_inputs
        assert config is not None
        known = token_ids.masked_fill(token_ids >= config.vocab_size, 0)
        rows = (self.table.rows(known) * rounded(config.size**0.5, x.dtype)).view(len(x), -1, config.size)
        projected = scaled(ops.linear(x, self.projection), x.shape[1] ** -0.5).view(rows.shape)
        own = scaled(ops.rms_norm(projected, self.norm, model.rms_norm_eps) + rows, 0.5**0.5)
        return own if ranks.size == 1 else _of_all_layers(own, model.num_layers, ranks)


def _of_all_layers(own: Tensor, num_layers: int, ranks: Ranks) -> Tensor:
    """`[T, num_layers, size]` on every rank, of a rank's own layers; some have one fewer, and fill up."""
    counts = [whole_ones(num_layers, rank, ranks.size).count for rank in range(ranks.size)]
    parts = ranks.gather(F.pad(own, (0, 0, 0, max(counts) - own.shape[1])))
    return torch.cat([part[:, :count] for part, count in zip(parts, counts, strict=True)], 1)


@dataclass(frozen=True, slots=True)
class InputWeights:
    """What one layer makes of its input."""

    gate: LinearWeight  # hidden_size -> size
    up: LinearWeight  # size -> hidden_size
    norm: Tensor  # [hidden_size]

    def of(self, x: Tensor, own: Tensor, gate: Gate, eps: float) -> Tensor:
        """What is added to hidden states, `[T, C]`; own: the layer's inputs, `[T, size]`."""
        inner = ops.gated(torch.cat([ops.linear(x, self.gate), own], 1), gate)
        return ops.rms_norm(ops.linear(inner, self.up), self.norm, eps)


def read_input_embedding(reader: Reader) -> InputEmbedding | None:
    """None: layers have no such inputs. Raises ModelError: a tensor is missing or odd."""
    config = reader.config.layer_inputs
    if config is None:
        return None
    prefix, width = reader.prefix, reader.cut.layer_inputs
    return InputEmbedding(
        reader.linear(prefix, (LAYER_TABLE,), [config.vocab_size], width, False),
        reader.linear(prefix, ("per_layer_model_projection",), [width], reader.config.hidden_size, False),
        reader.norm(f"{prefix}per_layer_projection_norm.weight", config.size),
    )


def read_input_weights(reader: Reader, base: str) -> InputWeights | None:
    """Those of a layer below `base`, as `read_input_embedding`."""
    config, hidden = reader.config.layer_inputs, reader.config.hidden_size
    if config is None:
        return None
    return InputWeights(
        reader.linear(base, ("per_layer_input_gate",), [config.size], hidden, False),
        reader.linear(base, ("per_layer_projection",), [hidden], config.size, False),
        reader.norm(f"{base}post_per_layer_input_norm.weight", hidden),
    )
