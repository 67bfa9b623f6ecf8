"""From what a user calls a model to the folder it lies in: a path, "nano", or a hub id."""

from __future__ import annotations

import re
from pathlib import Path

from ...errors import ModelError

NANO = Path(__file__).resolve().parent.parent / "assets" / "nano"
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
# weights as safetensors and the small text files beside them; never code, never pickles
_PATTERNS = ["*.safetensors", "*.safetensors.index.json", "*.json", "tokenizer.model", "*.jinja"]


def resolve_model(name_or_path: str | Path) -> Path:
    """The folder of a model.

    `"nano"` is the model that ships with phloem, an existing folder is itself, and `owner/name` is fetched from the
    Hugging Face hub (into its cache) if `huggingface_hub` is installed.

    Raises:
        ModelError: nothing of that name; the hub cannot be reached; the id is unknown or needs a login.
    """
    name = str(name_or_path)
    if name == "nano":
        if not (NANO / "config.json").exists():
            raise ModelError(f"{NANO}: the bundled model is missing from this installation; reinstall phloem")
        return NANO
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if path.exists():
        raise ModelError(f"{name}: is a file; give the checkpoint folder that contains it")
    if isinstance(name_or_path, Path) or not _HUB_ID.fullmatch(name) or ".." in name:
        raise ModelError(f'{name!r}: no such folder; give a checkpoint folder, a hub id (owner/name) or "nano"')
    return _download(name)


def _download(hub_id: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, LocalEntryNotFoundError
    except ImportError:
        raise ModelError(
            f"{hub_id!r}: no such folder, and hub ids need the huggingface_hub package (pip install huggingface_hub)"
        ) from None
    try:
        # below the top there are the same weights again in other forms
        return Path(snapshot_download(hub_id, allow_patterns=_PATTERNS, ignore_patterns=["*/*"]))
    except GatedRepoError:
        raise ModelError(f"{hub_id!r}: access must be requested on the hub; then log in with `hf auth login`") from None
    except LocalEntryNotFoundError:
        raise ModelError(f"{hub_id!r}: no such folder, not in the hub's cache, and the hub cannot be reached") from None
    except (HfHubHTTPError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        raise ModelError(f"{hub_id!r}: cannot be fetched from the hub ({reason})") from None
