"""Decoders described by their Hugging Face configuration.

What a model is (`ModelConfig`, `resolve_model` …) needs no torch; what holds tensors is loaded when it is first named.
"""

import importlib
from typing import TYPE_CHECKING, Any

from .adapter_modules import count_parameters
from .config import ModelConfig
from .resolve import resolve_model

if TYPE_CHECKING:
    from .adapter import Adapter, read_adapter, scoped
    from .decoder import Decoder
    from .step import AdaptedRows

_MODULE_OF = {
    **dict.fromkeys(("Adapter", "read_adapter", "scoped"), "adapter"),
    "AdaptedRows": "step",
    "Decoder": "decoder",
}

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


def __getattr__(name: str) -> Any:
    """Loads what holds tensors."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)
