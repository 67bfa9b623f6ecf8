"""Tensors out of safetensors files, checked by name and shape. Nothing else is ever opened: no pickle, no code.

One file (`model.safetensors`) or many with an index (`model.safetensors.index.json`); files are memory-mapped and
read tensor by tensor, so that loading needs little memory besides the weights themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ...errors import ModelError
from ...kernels import FP8
from ..number_types import NumberType
from .json_file import read_json_object
from .part import Axis, count, stored, taken

PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack", "*.gguf")
TORCH_TYPES: dict[NumberType, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
STORED_DTYPES = tuple(TORCH_TYPES.values())
_DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16, "F8_E4M3": FP8, "I8": torch.int8}


class Checkpoint:
    """The tensors of one folder, by name. Made by `open_checkpoint`.

    `unread` says at the end which tensors were not asked for: a bias or a scale that was overlooked would make a model
    that runs and answers nonsense.
    """

    def __init__(self, folder: Path, files: dict[str, Any], file_of: dict[str, str], dtype: torch.dtype) -> None:
        self._folder = folder
        self._files = files
        self._file_of = file_of
        self.dtype = dtype
        self._read: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._file_of

    def read(self, name: str, shape: Sequence[int], *, device: torch.device) -> Tensor:
        """One tensor on `device` in the checkpoint's target dtype, a copy of its own."""
        return self.read_stacked([name], [shape[0]], shape[1:], device=device)

    def leave(self, prefix: str) -> None:
        """What begins so is another rank's, and not missed by `unread`."""
        self._read.update(name for name in self._file_of if name.startswith(prefix))

    def read_stacked(
        self,
        names: Sequence[str],
        rows: Sequence[Axis],
        tail: Sequence[Axis],
        *,
        device: torch.device,
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        """Tensors of shape `[rows[i], *tail]` stacked along the first axis, in order; dtype: None is the target's.

        Of an axis that is a `Part` those entries alone are read, out of the mapping, and stacked.

        Raises:
            ModelError: a tensor is missing, or has another shape or a dtype that is no plain float.
        """
        for name, num_rows in zip(names, rows, strict=True):
            self._check(name, [num_rows, *tail])  # so that no more is allocated than the files hold
        shape = (sum(map(count, rows)), *map(count, tail))
        stacked = torch.empty(shape, dtype=dtype or self.dtype, device=device)
        start = 0
        for name, axis in zip(names, rows, strict=True):
            end = start + count(axis)
            stacked[start:end].copy_(self._stored(name, [axis, *tail]))
            start = end
        return stacked

    def are_bf16(self, names: Sequence[str]) -> bool:
        """Whether tensors are stored so, unread; not if one of them is missing."""
        return all(name in self and self.dtype_of(name) is torch.bfloat16 for name in names)

    def read_stored(self, names: Sequence[str], rows: Sequence[Axis], tail: Sequence[Axis]) -> Tensor:
        """As `read_stacked`, on the CPU, as they are stored; one tensor alone is the file's own memory."""
        stored = [self._stored(name, [size, *tail]) for name, size in zip(names, rows, strict=True)]
        return stored[0] if len(stored) == 1 else torch.cat(stored)

    def read_bytes(self, name: str, shape: Sequence[Axis], *, device: torch.device) -> Tensor:
        """One tensor of uint8 on `device`, a copy of its own. Raises ModelError as `read_stacked` does."""
        stored = self._stored(name, list(shape), (torch.uint8,))
        return torch.empty_like(stored, device=device).copy_(stored)

    def read_kept(
        self, name: str, shape: Sequence[Axis], dtypes: tuple[torch.dtype, ...], *, device: torch.device
    ) -> Tensor:
        """One tensor on `device` as it is stored, in one of `dtypes`. Raises ModelError as `read_stacked` does."""
        return self._stored(name, list(shape), dtypes).to(device)

    def dtype_of(self, name: str) -> torch.dtype | None:
        """The type that a tensor is stored in, unread; None: one that torch has not."""
        return _DTYPES.get(self._files[self._file_of[name]].get_slice(name).get_dtype())

    def shape_of(self, name: str) -> list[int]:
        """The shape of a tensor, unread."""
        return list(self._files[self._file_of[name]].get_slice(name).get_shape())

    def unread(self, ignored: Iterable[str]) -> list[str]:
        """Names that were never read, without those that contain one of `ignored`."""
        ignored = tuple(ignored)
        return sorted(name for name in self._file_of.keys() - self._read if not any(part in name for part in ignored))

    def place(self, name: str) -> str:
        return f"{self._folder / self._file_of[name]}: {name}" if name in self else f"{self._folder}: {name}"

    def _check(self, name: str, axes: Sequence[Axis]) -> None:
        shape = list(map(stored, axes))
        if name not in self:
            raise ModelError(f"{self._folder}: tensor {name} of shape {shape} is missing from the safetensors files")
        found = self.shape_of(name)
        if found != shape:
            raise ModelError(f"{self.place(name)}: expected shape {shape}, found {found}; is config.json its own?")

    def _stored(self, name: str, axes: list[Axis], dtypes: tuple[torch.dtype, ...] = STORED_DTYPES) -> Tensor:
        self._check(name, axes)
        try:
            tensor: Tensor = self._files[self._file_of[name]].get_tensor(name)
        except SafetensorError as error:
            raise ModelError(f"{self.place(name)}: cannot be read ({error}); download the file again") from None
        if tensor.dtype not in dtypes:
            names = ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
            known = "only fp32, bf16 and fp16 are supported" if dtypes is STORED_DTYPES else f"expected {names}"
            raise ModelError(f"{self.place(name)}: stored as {tensor.dtype}; {known}")
        self._read.add(name)
        return taken(tensor, axes)


@contextmanager
def open_checkpoint(folder: Path, dtype: torch.dtype) -> Iterator[Checkpoint]:
    """Opens the folder's safetensors files; tensors read from it are converted to `dtype`.

    Raises:
        ModelError: no safetensors, a shard that is missing, truncated or not what the index says.
    """
    names = _weight_map(folder)
    with ExitStack() as stack:
        files: dict[str, Any] = {}
        file_of: dict[str, str] = {}
        for file in sorted(set(names.values()) if names else ["model.safetensors"]):
            files[file] = handle = stack.enter_context(_open(folder / file))
            file_of |= dict.fromkeys(handle.keys(), file)
        for name, file in names.items():
            if file_of.get(name) != file:
                raise ModelError(f"{folder / file}: the index promises {name} in this file, and it is not there")
        yield Checkpoint(folder, files, file_of, dtype)


@contextmanager
def open_file(path: Path, dtype: torch.dtype) -> Iterator[Checkpoint]:
    """One safetensors file by itself; as `open_checkpoint`."""
    with _open(path) as handle:
        yield Checkpoint(path.parent, {path.name: handle}, dict.fromkeys(handle.keys(), path.name), dtype)


def _weight_map(folder: Path) -> dict[str, str]:
    """Tensor name → file name of a sharded checkpoint; empty for a single file."""
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").exists():
        return {}
    if not index.exists():
        pickled = sorted(path.name for pattern in PICKLED for path in folder.glob(pattern))
        if pickled and all(name.endswith(".gguf") for name in pickled):
            raise ModelError(f"{folder}: has no safetensors; a GGUF file is given by its own path ({pickled[0]})")
        if pickled:
            raise ModelError(
                f"{folder}: found {', '.join(pickled[:3])} but no safetensors; phloem never loads pickled or foreign "
                "weights. Convert once with transformers: AutoModelForCausalLM.from_pretrained(…).save_pretrained(…)"
            )
        raise ModelError(f"{folder}: has neither model.safetensors nor model.safetensors.index.json")
    names = read_json_object(index).get("weight_map")
    if not isinstance(names, dict) or not names or not all(isinstance(file, str) for file in names.values()):
        raise ModelError(f"{index}: weight_map: expected an object of tensor names and file names")
    for file in set(names.values()):
        if Path(file).name != file or not file.endswith(".safetensors"):
            raise ModelError(f"{index}: weight_map names {file!r}; shards are .safetensors files next to the index")
    return names


def _open(path: Path) -> Any:
    if not path.is_file():
        raise ModelError(f"{path}: this shard is missing; download it again")
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        size = path.stat().st_size
        raise ModelError(f"{path}: not a whole safetensors file ({error}; {size} bytes); download it again") from None
