"""What a draft model is (`speculative_model`): another checkpoint, or the model's own layer for multi-token prediction.

Knows configurations and no tensors.
"""

from __future__ import annotations

from pathlib import Path

from ...errors import ConfigError, ModelError
from ..config import MTP
from ..models import ModelConfig, resolve_model


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
            f'speculative_model: "{MTP}" is not cut for several ranks (tensor_parallel_size); leave it out, or take 1'
        )
    draft.check_kv_type(kv_dtype)
    return draft
