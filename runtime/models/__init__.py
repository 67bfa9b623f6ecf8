"""Decoders described by their Hugging Face configuration."""

from .adapter import Adapter, count_parameters, read_adapter, scoped
from .config import ModelConfig
from .decoder import AdaptedRows, Decoder
from .resolve import resolve_model

__all__ = [
    "AdaptedRows",
    "Adapter",
    "Decoder",
    "ModelConfig",
    "count_parameters",
    "read_adapter",
    "resolve_model",
    "scoped",
]
