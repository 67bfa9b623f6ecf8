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
        ConfigError: one of the two has recurrent layers, whose states cannot be taken back token by token; or there is
            no MTP layer, or it would have to be cut for several ranks.
    """
    try:
        draft = model if name == MTP else ModelConfig.from_folder(resolve_model(name, weights=False))
    except ModelError as error:
        raise ConfigError(f"speculative_model: {error}") from error
    for one, which in ((model, "the model"), (draft, name)):
        if one.recurrent is not None:
            raise ConfigError(f"speculative_model: {which} has recurrent layers, with which no drafts go; leave it out")
    if name == MTP and not model.num_mtp_layers:
        raise ConfigError(
            f'speculative_model: "{MTP}": {folder} names no layers for multi-token prediction '
            "(num_nextn_predict_layers in config.json); take a smaller model of the same vocabulary, or leave it out"
        )
    if name == MTP and num_ranks > 1:
        raise ConfigError(
            f'speculative_model: "{MTP}" is not cut for several ranks; use tensor_parallel_size=1, or leave it out'
        )
    draft.check_kv_type(kv_dtype)
    return draft


def mtp_config(model: ModelConfig) -> ModelConfig:
    """The model with its MTP layer alone, which is as its last layer is."""
    experts = model.experts
    if experts is not None:
        experts = replace(experts, has_experts=experts.has_experts[-1:])
    return replace(model, layers=model.layers[-1:], experts=experts, left_aside=NOT_READ)
