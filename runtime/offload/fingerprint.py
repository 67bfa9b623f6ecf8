"""What stands for a model where its KV outlives the process: 32 bytes that change with whatever KV depends on.

KV that was computed by other weights is wrong text without any sign of it, so nothing here is sampled or guessed:

* every byte of `config.json` and of all safetensors files of the checkpoint, or of its GGUF file (SHA-256 of pieces,
  on several threads: some gigabytes a second);
* the sources of what computes KV and lays it out (`kernels/`, `runtime/models/`, `execute/` in part), and torch's
  version;
* the kind of device, the types of weights and KV, quantisation, `deterministic`, block size and shape of a block, and
  the longest position where that changes the rotary embedding.

Hashing a large checkpoint takes seconds, so what was found is kept in a file next to the blocks, under the path, size,
inode, and times of change of each file. The last of these (ctime) is set by the system with every write, and by nothing
else short of setting the clock, so a file that was changed is hashed again; one that was changed in the last seconds is
not relied upon. What is not noticed: a file that changes between being loaded and being hashed, in the same start.

Two machines whose CPUs or GPUs round differently have the same fingerprint: their KV differs in last bits, not in
meaning. Knows files and settings; it knows no blocks and no tokens.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from ..._core import kernels_hash
from ...errors import ConfigError
from ..config import EngineConfig
from ..execute.loading import LoadedModel
from ..models.gguf.file import is_gguf

PIECE_BYTES = 32 << 20
SETTLED_SECONDS = 5.0  # a file that was changed later than so long ago may change again without a sign
MEMORY = "checkpoints.json"
MOST_REMEMBERED = 256
_RUNTIME = Path(__file__).resolve().parent.parent
_LENGTH_DEPENDENT = ("dynamic", "longrope")


def fingerprint_of(config: EngineConfig, loaded: LoadedModel, memory: Path, *, remembers: bool = True) -> bytes:
    """The fingerprint of an engine's KV.

    Args:
        memory: a folder in which hashes of checkpoints are remembered.
        remembers: whether new ones are written there.

    Raises:
        ConfigError: the model was not loaded from a folder, so nothing would tell its weights from others.
    """
    if loaded.folder is None:
        asked = ", ".join(name for name in ("disk_cache", "shared_cache") if getattr(config, name) is not None)
        raise ConfigError(
            f"{asked}: the model was not loaded from a folder, so its weights cannot be told from others; load it from "
            "one, or leave this out"
        )
    model = loaded.decoder.config
    longest = [config.max_model_len] if any(rope.rope_type in _LENGTH_DEPENDENT for rope in model.ropes) else []
    parts = [
        _hash_checkpoint(loaded.folder, memory, remembers),
        [_hash_sources(), kernels_hash],
        [torch.__version__, loaded.device.type, str(loaded.dtype), str(loaded.kv_dtype)],
        [config.quantise, config.deterministic, config.block_size, longest],
        [model.num_layers, model.kv_shapes(), config.tensor_parallel_size],
    ]
    return hashlib.sha256(json.dumps(parts).encode()).digest()


def sources() -> list[Path]:
    """The files in Python that compute KV or lay it out; `kernels_hash` is that of the compiled ones."""
    folders = (_RUNTIME.parent / "kernels", _RUNTIME / "models")
    return sorted(
        [
            *(path for folder in folders for path in folder.rglob("*.py")),
            _RUNTIME / "execute" / "kv_cache.py",
            _RUNTIME / "execute" / "recurrent_states.py",
        ]
    )


def _hash_sources() -> str:
    found = hashlib.sha256()
    for path in sources():
        found.update(path.read_bytes())
    return found.hexdigest()


def _hash_checkpoint(folder: Path, memory: Path, remembers: bool) -> str:
    files = sorted(
        {*folder.glob("config.json"), *folder.glob("*.safetensors"), *folder.glob("*.safetensors.index.json")}
    )
    if is_gguf(folder):
        files = [folder]
    elif not any(path.suffix == ".safetensors" for path in files):
        raise ConfigError(f"disk_cache: {folder} has no safetensors files any more")
    state = _state(files)
    known = _recall(memory)
    if state in known:
        return known[state]
    found = _hash_files(files)
    newest = max(max(path.stat().st_ctime, path.stat().st_mtime) for path in files)
    if remembers and newest < time.time() - SETTLED_SECONDS and _state(files) == state:
        _remember(memory, dict(list({**known, state: found}.items())[-MOST_REMEMBERED:]))
    return found


def _state(files: Iterable[Path]) -> str:
    """A hash of what the system says of the files."""
    said = []
    for path in files:
        state = path.stat()
        said.append(
            [str(path.resolve()), state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns]
        )
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()


def _hash_files(files: Iterable[Path]) -> str:
    """One hash of names and contents, piece by piece on several threads."""
    pieces = [(path, start) for path in files for start in range(0, max(1, path.stat().st_size), PIECE_BYTES)]
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        hashes = list(pool.map(_hash_piece, pieces))
    said = [[path.name, start, found] for (path, start), found in zip(pieces, hashes, strict=True)]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()


def _hash_piece(piece: tuple[Path, int]) -> str:
    path, start = piece
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        found = hashlib.sha256()
        left = PIECE_BYTES
        while left and (data := file.read(min(left, 1 << 20))):
            found.update(data)
            left -= len(data)
    return found.hexdigest()


def _recall(memory: Path) -> dict[str, str]:
    """What was remembered; nothing if that cannot be read."""
    try:
        known = json.loads((memory / MEMORY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    is_sound = isinstance(known, dict) and all(isinstance(found, str) and len(found) == 64 for found in known.values())
    return known if is_sound else {}


def _remember(memory: Path, known: dict[str, str]) -> None:
    """Writes it down for the next start; if that cannot be done, the next start hashes again."""
    new = memory / f"{MEMORY}.{os.getpid()}-{time.time_ns():x}"
    try:
        new.write_text(json.dumps(known), encoding="utf-8")
        new.replace(memory / MEMORY)
    except OSError:
        new.unlink(missing_ok=True)
