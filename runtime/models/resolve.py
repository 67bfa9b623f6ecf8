"""From what a user calls a model to the folder it lies in, or its GGUF file: a path, "nano", or a hub id."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ...errors import ModelError
from ..path_fault import path_fault
from .gguf.file import is_gguf
from .hub import download

NANO = Path(__file__).resolve().parent.parent / "assets" / "nano"
_HUB_ID = re.compile(r"(\w[\w.-]*/[\w.-]+)(?:/([\w.-]+\.gguf))?")


def resolve_model(name_or_path: str | Path, *, weights: bool = True) -> Path:
    """The folder of a model, or its GGUF file.

    `"nano"` is the model that ships with phloem, an existing folder or GGUF file is itself (a folder that holds one
    GGUF file and no `config.json` is that file), and `owner/name`, or `owner/name/file.gguf`, is fetched from the
    Hugging Face hub (into its cache) if `huggingface_hub` is installed; of a folder there everything but the weights if
    `weights` is False.

    Raises:
        ModelError: nothing of that name; a folder with several GGUF files; the hub cannot be reached; the id is
            unknown or needs a login.
    """
    name = str(name_or_path)
    if name == "nano":
        if not (NANO / "config.json").exists():
            raise ModelError(f"{NANO}: the bundled model is missing from this installation; reinstall phloem")
        return NANO
    path = Path(os.path.expanduser(name))  # a name without a home stays as it is, where Path's own raises
    fault = path_fault(path)
    if fault is not None:
        raise ModelError(f'{name[:200]!r}: {fault}; give a checkpoint folder, a GGUF file, a hub id or "nano"')
    if path.is_dir():
        return _in_folder(path)
    if path.exists():
        if is_gguf(path):
            return path
        raise ModelError(f"{name}: is a file; give the checkpoint folder that contains it, or a GGUF file")
    match = _HUB_ID.fullmatch(name)
    if isinstance(name_or_path, Path) or match is None or not is_hub_id(name):
        raise ModelError(
            f"{name!r}: no such folder or file; give a checkpoint folder, a GGUF file, a hub id (owner/name or "
            'owner/name/file.gguf) or "nano"'
        )
    return download(match[1], match[2], weights=weights)


def is_hub_id(name: str) -> bool:
    """Whether `resolve_model` looks for that name on the hub: it has the form of an id, and is no path here."""
    if not _HUB_ID.fullmatch(name) or ".." in name:
        return False
    path = os.path.expanduser(name)
    return path_fault(path) is None and not os.path.exists(path)


def _in_folder(folder: Path) -> Path:
    """A folder, or the one GGUF file in it."""
    files = [] if (folder / "config.json").exists() else sorted(path for path in folder.iterdir() if is_gguf(path))
    if len(files) > 1:
        names = ", ".join(path.name for path in files[:3])
        raise ModelError(f"{folder}: has {len(files)} GGUF files ({names} …); give the path of one of them")
    return files[0] if files else folder
