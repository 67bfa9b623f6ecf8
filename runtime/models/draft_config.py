"""What a draft model is (`speculative_model`): another checkpoint, or the model's own layer for multi-token prediction.

Knows configurations and no tensors.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ...errors import ConfigError, ModelError
from ..config import MTP
from .config import ModelConfig
from .resolve import resolve_model

NOT_READ = ("embed_tokens.", "shared_head.head.")  # of an MTP layer: copies of the model's own


def draft_config(name: str, folder: Path, model: ModelConfig, *, num_ranks: int, kv_dtype: str) -> ModelConfig:
    """That of a draft model; for "mtp" the model itself.

    folder: of the model.

    Raises:
        ConfigError: the draft model has recurrent layers, whose states cannot be taken back token by token; or there
            is no MTP layer, or it would have to be cut for several ranks.
    """
    try:
        draft = model if name == MTP else ModelConfig.from_folder(resolve_model(name, weights=False))
    except ModelError as error:
        raise ConfigError(f"speculative_model: {error}") from error
    if name != MTP and draft.recurrent is not None:
        raise ConfigError(
            f"speculative_model: {name} has recurrent layers, whose states cannot be taken back token by token; "
            "take one whose layers all attend, or leave it out"
        )
    if name == MTP and not model.num_mtp_layers:
        raise ConfigError(
            f'speculative_model: "{MTP}": {folder} names no layers for multi-token prediction '
            f"({model.options.mtp.count_key} in config.json); take a smaller model of the same vocabulary, or leave it "
            "out"
        )
    if name == MTP and num_ranks > 1:
        raise ConfigError(
            f'speculative_model: "{MTP}" is not cut for several ranks; use tensor_parallel_size=1, or leave it out'
        )
    draft.check_kv_type(kv_dtype)
    return draft


def mtp_config(model: ModelConfig) -> ModelConfig:
    """The model with its first MTP layer alone, which is as its last layer is that attends."""
    last = max(index for index, layer in enumerate(model.layers) if layer.attends)
    experts, base = model.experts, model.options.mtp.base
    if experts is not None:
        experts = replace(experts, has_experts=experts.has_experts[last : last + 1])
    others = tuple(f"{base}layers.{index}." for index in range(1, model.num_mtp_layers) if base)
    layers = model.layers[last : last + 1]
    return replace(model, layers=layers, experts=experts, recurrent=None, left_aside=(*NOT_READ, *others))
