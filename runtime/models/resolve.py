"""From what a user calls a model to the folder it lies in, or its GGUF file: a path, "nano", or a hub id."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ...errors import ModelError
from ..path_fault import path_fault
from .gguf.file import is_gguf

NANO = Path(__file__).resolve().parent.parent / "assets" / "nano"
_HUB_ID = re.compile(r"([\w.-]+/[\w.-]+)(?:/([\w.-]+\.gguf))?")
# weights as safetensors and the small text files beside them; never code, never pickles
_PATTERNS = ["*.safetensors", "*.safetensors.index.json", "*.json", "tokenizer.model", "*.jinja"]


def resolve_model(name_or_path: str | Path) -> Path:
    """The folder of a model, or its GGUF file.

    `"nano"` is the model that ships with phloem, an existing folder or GGUF file is itself (a folder that holds one
    GGUF file and no `config.json` is that file), and `owner/name`, or `owner/name/file.gguf`, is fetched from the
    Hugging Face hub (into its cache) if `huggingface_hub` is installed.

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
    if isinstance(name_or_path, Path) or not match or ".." in name:
        raise ModelError(
            f"{name!r}: no such folder; give a checkpoint folder, a GGUF file, a hub id (owner/name or "
            'owner/name/file.gguf) or "nano"'
        )
    return _download(match[1], match[2])


def _in_folder(folder: Path) -> Path:
    """A folder, or the one GGUF file in it."""
    files = [] if (folder / "config.json").exists() else sorted(path for path in folder.iterdir() if is_gguf(path))
    if len(files) > 1:
        names = ", ".join(path.name for path in files[:3])
        raise ModelError(f"{folder}: has {len(files)} GGUF files ({names} …); give the path of one of them")
    return files[0] if files else folder


def _download(hub_id: str, file: str | None) -> Path:
    try:
        from huggingface_hub import hf_hub_download, snapshot_download
        from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, LocalEntryNotFoundError
    except ImportError:
        raise ModelError(
            f"{hub_id!r}: no such folder, and hub ids need the huggingface_hub package (pip install huggingface_hub)"
        ) from None
    try:
        if file is not None:
            return Path(hf_hub_download(hub_id, file))
        # below the top there are the same weights again in other forms
        return Path(snapshot_download(hub_id, allow_patterns=_PATTERNS, ignore_patterns=["*/*"]))
    except GatedRepoError:
        raise ModelError(f"{hub_id!r}: access must be requested on the hub; then log in with `hf auth login`") from None
    except LocalEntryNotFoundError:
        raise ModelError(f"{hub_id!r}: no such folder, not in the hub's cache, and the hub cannot be reached") from None
    except (HfHubHTTPError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        raise ModelError(f"{hub_id!r}: cannot be fetched from the hub ({reason})") from None
