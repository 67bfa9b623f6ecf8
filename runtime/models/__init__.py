"""Decoders described by their Hugging Face configuration."""

from .config import ModelConfig
from .decoder import Decoder
from .resolve import resolve_model

__all__ = ["Decoder", "ModelConfig", "resolve_model"]
