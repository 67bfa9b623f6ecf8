"""The tensors of a GGUF file under the names that the reader knows; the same face as `weights.Checkpoint`.

Rows of queries and keys that lie as llama.cpp turns them (two that turn together, side by side) are put back in their
order, packed as they are. Everything is read out of the mapping, tensor by tensor.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from ....errors import ModelError
from ....kernels.grouped import Grouped
from ..config import ModelConfig
from ..part import Axis, Part, count, stored, taken
from ..weights import TORCH_TYPES
from .families import JOINED, tensor_names
from .file import GgufFile, TensorInfo
from .settings import family_of
from .unpack import grouped
from .value_order import COLUMNS_BY_VALUE, in_column_order, in_group_order, row_order

ROPE_TENSORS = ("rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight")  # `settings` has them


class GgufCheckpoint:
    """The tensors of one file, by our names."""

    def __init__(self, file: GgufFile, config: ModelConfig, dtype: torch.dtype) -> None:
        """config: what the file says; tensors read from it are converted to `dtype`."""
        self.file = file
        self.dtype = dtype
        self._family = family_of(file)
        self._head_dim = config.head_dim
        num_experts = 0 if config.experts is None else config.experts.num_experts
        self._names = tensor_names(file, self._family, config.options, config.num_layers, num_experts)
        self._values = config.recurrent if self._family.values_in_turn else None  # whose heads are put in order
        self._read = set(ROPE_TENSORS)
        self._end = config.num_layers  # layers from there on predict tokens beyond the next

    def __contains__(self, name: str) -> bool:
        return self._info(name) is not None

    def read_stacked(
        self,
        names: Sequence[str],
        rows: Sequence[Axis],
        tail: Sequence[Axis],
        *,
        device: torch.device,
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        """As `Checkpoint.read_stacked` does; numbers in few bits are widened."""
        # all are known to be there before room for them is made
        parts = [self._raw(name, axis, list(map(stored, tail))) for name, axis in zip(names, rows, strict=True)]
        shape = (sum(map(count, rows)), *map(count, tail))
        stacked = torch.empty(shape, dtype=dtype or self.dtype, device=device)
        start = 0
        for (info, raw), axis in zip(parts, rows, strict=True):
            axes = (count(axis), *tail)
            if info.type.dtype is not None:
                part = self._in_order(info, raw.view(TORCH_TYPES[info.type.dtype]))
            else:
                part = self._in_order(info, grouped(info.type, raw).widen(torch.float32))
            end = start + count(axis)
            stacked[start:end].copy_(taken(part.view(*map(stored, axes)), axes))
            start = end
        return stacked

    def leave(self, prefix: str) -> None:
        """As `Checkpoint.leave`, of a tensor; experts lie in one here, of which every rank reads its own."""
        self._read.add(self._found(prefix)[0])

    def are_bf16(self, names: Sequence[str]) -> bool:
        """Whether tensors are stored so, unread; not if one of them is missing."""
        infos = [self._info(name) for name in names]
        return all(info is not None and info.type.dtype == "bfloat16" for info in infos)

    def read_stored(self, names: Sequence[str], rows: Sequence[Axis], tail: Sequence[Axis]) -> Tensor:
        """As `read_stacked`, on the CPU, of tensors that `are_bf16`, as they are."""
        parts = []
        for name, axis in zip(names, rows, strict=True):
            shape = list(map(stored, tail))
            info, raw = self._raw(name, axis, shape)
            whole = self._in_order(info, raw.view(torch.bfloat16)).view(-1, *shape)
            parts.append(taken(whole, (len(whole), *tail)))
        return torch.cat(parts)

    def has_form(self, module: str) -> bool:
        """Whether a linear map is in few bits; else its numbers are plain, or it is not there."""
        info = self._info(f"{module}.weight")
        return info is not None and info.type.form is not None

    def read_grouped(self, module: str, outputs: Part, inputs: Part, device: torch.device) -> Grouped:
        """A part, one range of each axis, of the matrix of a linear map that has a form.

        Raises:
            ModelError: it has another shape, or a scale that is no number.
        """
        info, raw = self._raw(f"{module}.weight", outputs, [inputs.size])
        if self._values is not None and _module(info.name) == COLUMNS_BY_VALUE:
            found = in_group_order(self._values, grouped(info.type, raw.to(device)))
            return self._checked(info, found.columns(inputs.first, inputs.first + inputs.count))
        columns = inputs.within(info.type.block_size)
        blocks = raw.view(len(raw), -1, info.type.block_bytes)
        own = columns.per(info.type.block_size).of(blocks, 1).flatten(1)
        found = grouped(info.type, own.contiguous().to(device))
        if columns.count > inputs.count:
            found = found.columns(inputs.first - columns.first, inputs.first - columns.first + inputs.count)
        return self._checked(info, found)

    def _checked(self, info: TensorInfo, found: Grouped) -> Grouped:
        if not found.scales.isfinite().all() or not (found.offsets is None or found.offsets.isfinite().all()):
            raise ModelError(f"{self.file.place(info.name)}: has a scale that is no number; download it again")
        return found

    def _in_order(self, info: TensorInfo, rows: Tensor) -> Tensor:
        """Plain numbers `[rows, columns]`, whose columns stand as ours do."""
        if self._values is None or _module(info.name) != COLUMNS_BY_VALUE:
            return rows
        return in_column_order(self._values, rows)

    def read_bytes(self, name: str, shape: Sequence[Axis], *, device: torch.device) -> Tensor:
        raise ModelError(f"{self.place(name)}: is not read from GGUF")

    def scalar(self, name: str) -> float:
        """A number of a layer's activation, which the file has in a list of all layers' (Apertus).

        Raises:
            ModelError: there is no such list, or it ends before the layer.
        """
        key, index = f"xielu.{name.rpartition('.')[2]}", int(name.split(".")[2])
        values = self.file.values.get(key)
        if values is None or not hasattr(values, "__len__") or index >= len(values):
            raise ModelError(f"{self.file.path}: {key}: expected a number for each layer; download it again")
        return float(values[index])

    def unread(self, ignored: Iterable[str]) -> list[str]:
        """Tensors of the file that were never read."""
        unread = self.file.tensors.keys() - self._read
        return sorted(name for name in unread if not self._is_beyond(name))

    def _is_beyond(self, name: str) -> bool:
        """Whether a tensor is of a block after the last one that is read."""
        first, number, *_ = (*name.split("."), "")
        return first == "blk" and number.isdecimal() and int(number) >= self._end

    def place(self, name: str) -> str:
        info = self._info(name)
        return self.file.place(name if info is None else info.name)

    def _found(self, name: str) -> tuple[str, int | None]:
        if name in self._names:
            return self._names[name]
        module, _, what = name.rpartition(".")
        there, index = self._names.get(module, (module, None))
        return f"{there}.{what}", index

    def _info(self, name: str) -> TensorInfo | None:
        return self.file.tensors.get(self._found(name)[0])

    def _raw(self, name: str, rows: Axis, tail: list[int]) -> tuple[TensorInfo, Tensor]:
        """What is known of a tensor of shape `[rows, *tail]`, and these rows of it as bytes, in our order."""
        shape = [stored(rows), *tail]
        there, index = self._found(name)
        info = self.file.tensors.get(there)
        if info is None:
            raise ModelError(f"{self.file.path}: tensor {there!r} of shape {shape} is missing")
        found = list(info.shape if index is None else info.shape[1:])
        if _module(there) == JOINED and found:
            found[0] //= 2
        if _module(there) == "ssm_norm":  # group by group
            found = [math.prod(found)]
        if [size for size in found if size != 1] != [size for size in shape if size != 1]:
            raise ModelError(f"{self.file.place(there)}: expected shape {shape}, found {found}; are its keys its own?")
        self._read.add(there)
        raw = self.file.raw(info)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)  # nor is it written
            matrix = raw if index is None else raw.reshape(-1, *found[:-1], raw.shape[-1])[index]
            if matrix.size % shape[0]:  # a single row of blocks where numbers are expected one by one
                raise ModelError(
                    f"{self.file.place(there)}: expected {shape[0]} numbers, found {info.type.name} blocks"
                )
            whole = torch.from_numpy(matrix).reshape(shape[0], -1)
        order = self._order(there, shape[0])
        return info, taken(whole, [rows]) if order is None else whole[taken(order, [rows])]

    def _order(self, there: str, num_rows: int) -> Tensor | None:
        """Where each row lies: pairs that turn together were put side by side, head by head. None: in its place."""
        if self._values is not None:
            return row_order(self._values, _module(there))
        if not self._family.is_permuted or _module(there) not in ("attn_q", "attn_k"):
            return None
        pairs = torch.arange(num_rows).view(-1, self._head_dim // 2, 2)
        return pairs.transpose(1, 2).flatten()


def _module(there: str) -> str:
    """Of a layer's tensor the part of its name without the layer's and what it is of the module."""
    parts = there.split(".")
    return parts[2] if len(parts) > 2 else ""
