"""A model's own layer for multi-token prediction, as the configuration of a model (`mtp.py`). Knows no tensors."""

from __future__ import annotations

from dataclasses import replace

from .config import ModelConfig

NOT_READ = ("embed_tokens.", "shared_head.head.")  # copies of the model's own


def mtp_config(model: ModelConfig) -> ModelConfig:
    """The model with its first MTP layer alone, which is as its last layer is that attends."""
    last = max(index for index, layer in enumerate(model.layers) if layer.attends)
    experts, base = model.experts, model.options.mtp.base
    if experts is not None:
        experts = replace(experts, has_experts=experts.has_experts[last : last + 1])
    others = tuple(f"{base}layers.{index}." for index in range(1, model.num_mtp_layers) if base)
    layers = model.layers[last : last + 1]
    return replace(model, layers=layers, experts=experts, recurrent=None, left_aside=(*NOT_READ, *others))
