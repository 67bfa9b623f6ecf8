"""Factors of a whole model that a configuration names, each family in words of its own. Knows no tensors."""

from __future__ import annotations

import math

from .architecture import Architecture
from .json_file import Fields


def embedding_scale(fields: Fields, options: Architecture, hidden_size: int) -> float:
    """On token embeddings."""
    if isinstance(options.scale_embedding, str):
        return fields.number(options.scale_embedding, 1.0)
    return math.sqrt(hidden_size) if options.scale_embedding else 1.0


def residual_scale(fields: Fields, options: Architecture, num_layers: int) -> float:
    """On what attention and MLP add."""
    if options.multipliers:
        return fields.number("residual_multiplier", 1.0)
    depth = math.sqrt(num_layers)
    return fields.number("scale_depth", depth) / depth if options.depth_scale else 1.0


def width_scale(fields: Fields, options: Architecture, hidden_size: int) -> float:
    """On the last hidden state."""
    if options.multipliers:
        return 1.0 / fields.number("logits_scaling", 1.0)
    if options.logit_scale:
        return fields.number(options.logit_scale, 1.0)
    return fields.number("dim_model_base", hidden_size) / hidden_size if options.width_scale else 1.0
