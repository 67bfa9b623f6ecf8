"""What kernels are given, moved to where they run."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor


def on_device(x: Any, device: torch.device | str) -> Any:
    """A tensor, or a record with all of its tensors; whatever else is given is left as it is."""
    if is_dataclass(x) and not isinstance(x, type):
        names = [field.name for field in fields(x) if field.init]
        return replace(x, **{name: on_device(getattr(x, name), device) for name in names})
    return x.to(device) if isinstance(x, Tensor) else x
