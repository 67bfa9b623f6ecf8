"""The weights of a whole model, read from a checkpoint: what a decoder takes by name. Knows no forward."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict

from torch import Tensor

from ...kernels import LinearWeight
from .altup import StreamWeights, read_streams
from .layer_inputs import InputEmbedding, read_input_embedding
from .layer_weights import LayerWeights, read_layer
from .norms import Norm, read_norm
from .reader import Reader
from .vocabulary import read_positions, read_projection


class ModelParts(TypedDict):
    """Arguments of `Decoder`."""

    embedding: LinearWeight
    layers: list[LayerWeights]
    final_norm: Norm
    lm_head: LinearWeight | None
    learned: Tensor | None
    inputs: InputEmbedding | None
    streams: StreamWeights | None


def read_parts(reader: Reader, report: Callable[[int, int], None] | None) -> ModelParts:
    """All tensors of a checkpoint; report: called with the numbers of layers read and of all layers.

    Raises:
        ModelError: one is missing, odd, or has no place.
    """
    config, prefix = reader.config, reader.prefix
    options = config.options
    embedding = reader.linear(prefix, (options.embedding,), [reader.cut.vocab], config.hidden_size, False)
    layers = []
    for index in range(config.num_layers):
        layers.append(read_layer(reader, f"{prefix}{options.layers}.{index}.", index))
        if report is not None:
            report(index + 1, config.num_layers)
    has_projection = bool(prefix) or f"{options.projection}.weight" in reader.checkpoint or config.tie_word_embeddings
    parts: ModelParts = {
        "embedding": embedding,
        "layers": layers,
        "final_norm": read_norm(reader, f"{prefix}{options.final_norm}", config.width_scale),
        "lm_head": read_projection(reader, embedding) if has_projection else None,
        "learned": read_positions(reader),
        "inputs": read_input_embedding(reader),
        "streams": None if config.altup is None else read_streams(reader, config.altup),
    }
    reader.refuse_unread()
    return parts
