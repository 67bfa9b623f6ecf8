"""Models from the Hugging Face hub, fetched into its cache by `huggingface_hub`.

Files that are in the cache are not fetched again; a connection that breaks within one is taken up where it broke. Of a
file that has just come the SHA-256 is compared with the one that the hub names it by (large files have one; the package
checks the size of others). On a terminal the package shows how much has come.
"""

from __future__ import annotations

import hashlib
import re
import time
from pathlib import Path

from ...errors import ModelError

# weights as safetensors and the small text files next to them; never code, never pickles
_WEIGHTS = "*.safetensors"
_DESCRIPTION = ["*.json", "tokenizer.model", "*.jinja"]
# below the top there are the same weights again in other forms; a folder that a number begins is a part of a model for
# vectors (`vector_rules`)
_IGNORED = "[!0-9]*/*"
_SHA256 = re.compile(r"[0-9a-f]{64}")  # the name of a large file in the cache


def download(hub_id: str, file: str | None, *, weights: bool = True) -> Path:
    """The folder of a model on this disk, or of one GGUF file its path; `hub_id` is `owner/name`.

    weights: False: only what describes the model, and its tokenizer. A GGUF file has all in one.

    Raises:
        ModelError: the hub cannot be reached, and the cache does not have it; there is none of that name; it needs a
            login; a file that came is not the one that the hub has. The message names the remedy.
    """
    try:
        from huggingface_hub import hf_hub_download, snapshot_download
        from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError
    except ImportError:
        raise ModelError(
            f"{hub_id!r}: no such folder or file, and hub ids need the package huggingface_hub (pip install it)"
        ) from None
    begin = time.time()
    try:
        if file is not None:
            found = Path(hf_hub_download(hub_id, file))
        else:
            wanted = [_WEIGHTS, *_DESCRIPTION] if weights else _DESCRIPTION
            found = Path(snapshot_download(hub_id, allow_patterns=wanted, ignore_patterns=[_IGNORED]))
    except GatedRepoError:
        raise ModelError(f"{hub_id!r}: access must be requested on the hub; then log in with `hf auth login`") from None
    except LocalEntryNotFoundError:
        raise ModelError(
            f"{hub_id!r}: no such folder or file, not in the hub's cache, and the hub cannot be reached; on a machine"
            f" with a network, `{_command(hub_id, file)}` fetches it into a folder that can be copied and given instead"
        ) from None
    except Exception as error:  # of the network, in the types of whatever client the package uses
        reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        raise ModelError(
            f"{hub_id!r}: cannot be fetched from the hub ({reason}); files that have come are kept; try again"
        ) from None
    for path in sorted(found.iterdir()) if found.is_dir() else [found]:
        _check(hub_id, path, begin)
    return found


def _command(hub_id: str, file: str | None) -> str:
    """What fetches the same on another machine."""
    what = file if file is not None else f"--exclude '{_IGNORED}'"
    return f"hf download {hub_id} {what} --local-dir FOLDER"


def _check(hub_id: str, path: Path, begin: float) -> None:
    """Raises ModelError, and removes the file, if it has come since `begin` and is not what the hub has."""
    stored = path.resolve()
    if not _SHA256.fullmatch(stored.name) or stored.stat().st_mtime < begin - 1:
        return
    with stored.open("rb") as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest()
    if found != stored.name:
        path.unlink()
        stored.unlink(missing_ok=True)
        raise ModelError(
            f"{hub_id!r}: {path.name} came otherwise than the hub has it (SHA-256 {found[:12]}…, not"
            f" {stored.name[:12]}…), and was removed; fetch it again"
        )
