"""A checkpoint of any kind, opened: a folder of safetensors, or a GGUF file; and below which names its tensors are."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch

from .config import ModelConfig
from .gguf.checkpoint import GgufCheckpoint
from .gguf.file import GgufFile, is_gguf
from .weights import Checkpoint, open_checkpoint

# of all but the projection
PREFIXES = (
    "",
    "model.",
    "model.language_model.",
    "language_model.model.",
    "gpt_neox.",
    "backbone.",
    "transformer.",
    "model.decoder.",
    "decoder.",
)


def open_weights(
    path: Path, config: ModelConfig, dtype: torch.dtype
) -> AbstractContextManager[Checkpoint] | AbstractContextManager[GgufCheckpoint]:
    """Tensors that are read from it are converted to `dtype`. Raises ModelError as `open_checkpoint` does."""
    if is_gguf(path):
        return nullcontext(GgufCheckpoint(GgufFile(path), config, dtype))
    return open_checkpoint(path, dtype)


def prefix_of(checkpoint: Checkpoint | GgufCheckpoint, config: ModelConfig) -> str:
    """What all names begin with, but for the projection's."""
    embedding = config.options.embedding
    return next((each for each in PREFIXES if f"{each}{embedding}.weight" in checkpoint), "model.")
