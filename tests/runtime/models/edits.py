"""Changes of a checkpoint on disk: keys of its configuration, tensors of its file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor


def edit_config(folder: Path, **changes: Any) -> None:
    """Sets keys of config.json; None removes one."""
    file = folder / "config.json"
    values = {**json.loads(file.read_text()), **changes}
    file.write_text(json.dumps({key: value for key, value in values.items() if value is not None}))


def edit_tensors(folder: Path, change: Callable[[dict[str, Tensor]], Any], name: str = "model.safetensors") -> None:
    tensors = load_file(folder / name)
    change(tensors)
    save_file(tensors, folder / name)


def config(**changes: Any) -> Callable[[Path], None]:
    """`edit_config`, as a change of a folder."""
    return lambda folder: edit_config(folder, **changes)


def tensors(change: Callable[[dict[str, Tensor]], Any]) -> Callable[[Path], None]:
    """`edit_tensors`, as a change of a folder."""
    return lambda folder: edit_tensors(folder, change)
