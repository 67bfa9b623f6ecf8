"""The activation of MLPs, by the name that `config.json` gives it. Knows no tensors."""

from __future__ import annotations

from typing import Literal

from .architecture import Architecture, Curve
from .json_file import Fields

Activation = Literal["silu", "gelu_tanh", "squared"]
_CURVES: dict[str, Curve] = {
    "relu": "relu",
    "relu2": "relu2",
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "xielu": "xielu",
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), "gelu_tanh"),
}


def named_curve(fields: Fields) -> Curve:
    """Of an MLP without a gate. Raises ModelError: another is named."""
    name = fields.text("hidden_act")
    if name not in _CURVES:
        raise fields.odd("hidden_act", f"one of {', '.join(_CURVES)}")
    return _CURVES[name]


def read_activation(fields: Fields, options: Architecture) -> Activation:
    """Of an MLP's gate. Raises ModelError: another is named."""
    if options.gelu:
        return "gelu_tanh"
    if options.gateless:
        return "silu"
    name = fields.text("hidden_act", fields.text("hidden_activation", "silu"))
    if name not in ("silu", "swish", "relu2"):
        raise fields.odd("hidden_act", "silu or relu2")
    return "squared" if name == "relu2" else "silu"


def read_sparsity(fields: Fields, num_layers: int) -> list[float]:
    """By layer the share of gates that is cut, below 1 (`sparse_gate`); 0: none is. Raises ModelError: it is odd."""
    key = "activation_sparsity_pattern"
    if key not in fields:
        return [0.0] * num_layers
    found = fields.numbers(key)
    if len(found) != num_layers or not all(0.0 <= share < 1.0 for share in found):
        raise fields.odd(key, f"{num_layers} numbers of at least 0 and below 1")
    return list(found)
