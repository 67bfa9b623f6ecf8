"""Matrices of few bits as they are published, read into the one form that kernels know (`kernels.grouped`).

::

    gptq     qweight [K / 8, N] int32    8 inputs of an output in a word, the first in the lowest bits
             qzeros  [G, N / 8] int32    8 outputs in a word; the first format stores zeros less one
             scales  [G, N], g_idx [K]   the group of each input
    awq      qweight [K, N / 8] int32    8 outputs in a word, in the order 0 2 4 6 1 3 5 7
             qzeros  [G, N / 8] int32    the same
             scales  [G, N]
    packed   weight_packed [N, K / 8] int32, weight_scale [N, G], weight_zero_point [N / 8, G] int32, weight_shape [2]
    bytes    weight [N, K], weight_scale [N, 1], [1] or a block's, weight_zero_point [N, 1] int8

               and input_scale [1] where all inputs are rounded by one step

Numbers are counted from 0 there (but in `bytes`) and from the middle of their range here. With 8 bits a word holds
four. Sources: AutoGPTQ 0.7, AutoAWQ 0.2, compressed-tensors 0.20 and DeepSeek-V3's checkpoints.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from ...errors import ModelError
from ...kernels import FP8
from ...kernels.grouped import BITS, Grouped
from .gguf.checkpoint import GgufCheckpoint
from .gguf.tensor_types import Forms
from .weight_format import WeightFormat
from .weights import STORED_DTYPES, Checkpoint

_PLACES = [0, 4, 1, 5, 2, 6, 3, 7]  # of an output of eight in AWQ's words
_SCALE_DTYPES = (*STORED_DTYPES, torch.float8_e8m0fnu)
_FIRST = {"gptq": "qweight", "awq": "qweight", "packed": "weight_packed", "bytes": "weight"}


def is_published(checkpoint: Checkpoint | GgufCheckpoint, stored: WeightFormat | Forms | None, module: str) -> bool:
    """Whether a linear map is in few bits; else it is read as plain numbers, or is not there at all.

    Lists of modules that are plain are obeyed. Others may be plain all the same, as projections to the vocabulary are.
    """
    if isinstance(checkpoint, GgufCheckpoint):
        return checkpoint.has_form(module)
    if not isinstance(stored, WeightFormat) or stored.excludes(module):
        return False
    name = f"{module}.{_FIRST[stored.kind]}"
    if stored.kind == "bytes":
        return name in checkpoint and checkpoint.dtype_of(name) not in STORED_DTYPES
    return name in checkpoint or f"{module}.weight" not in checkpoint


def read_published(
    checkpoint: Checkpoint | GgufCheckpoint,
    stored: WeightFormat | Forms | None,
    module: str,
    num_outputs: int,
    num_inputs: int,
    device: torch.device,
) -> Grouped:
    """The matrix `[num_outputs, num_inputs]` of a linear map that `is_published`.

    Raises:
        ModelError: a tensor is missing or odd, or a scale is no number.
    """
    if isinstance(checkpoint, GgufCheckpoint):
        return checkpoint.read_grouped(module, num_outputs, num_inputs, device)
    assert isinstance(stored, WeightFormat)
    reader = {"gptq": _read_gptq, "awq": _read_awq, "packed": _read_packed, "bytes": _read_bytes}[stored.kind]
    found = reader(_Tensors(checkpoint, module, device), stored, num_outputs, num_inputs)
    if not found.scales.isfinite().all():
        raise ModelError(
            f"{checkpoint.place(f'{module}.{stored.scale}')}: has a scale that is no number; download it again"
        )
    return found


class _Tensors:
    """The tensors of one linear map."""

    def __init__(self, checkpoint: Checkpoint, module: str, device: torch.device) -> None:
        self._checkpoint, self._module, self._device = checkpoint, module, device

    def __contains__(self, name: str) -> bool:
        return f"{self._module}.{name}" in self._checkpoint

    def whole(self, name: str, shape: list[int], *dtypes: torch.dtype) -> Tensor:
        return self._checkpoint.read_kept(f"{self._module}.{name}", shape, dtypes, device=self._device)

    def words(self, name: str, shape: list[int]) -> Tensor:
        return self.whole(name, shape, torch.int32)

    def scales(self, name: str, *shapes: list[int]) -> Tensor:
        """Of the first of these shapes that is found."""
        place = f"{self._module}.{name}"
        found = self._checkpoint.shape_of(place) if name in self else shapes[0]
        scales = self.whole(name, found if found in shapes else shapes[0], *_SCALE_DTYPES)
        return scales.float() if scales.dtype is torch.float8_e8m0fnu else scales

    def scales_of_groups(self, stored: WeightFormat, num_outputs: int, num_groups: int) -> Tensor:
        """`[num_outputs, num_groups]`."""
        each: list[list[int]] = [] if stored.scales == "one" else [[num_outputs, num_groups]]
        one: list[list[int]] = [] if stored.scales == "each" else [[1], []]
        return self.scales(stored.scale, *each, *one).expand(num_outputs, num_groups)

    def refuse(self, name: str, why: str) -> ModelError:
        return ModelError(f"{self._checkpoint.place(f'{self._module}.{name}')}: {why}")


def _unpack(words: Tensor, bits: int) -> Tensor:
    """int32 `[R, W]` -> the numbers that they hold, lowest bits first, `[R, W * 32 / bits]` uint8."""
    numbers = words.contiguous().view(torch.uint8)
    return torch.stack([numbers & 15, numbers >> 4], -1).flatten(1) if bits == 4 else numbers


def _from_middle(numbers: Tensor, bits: int) -> Tensor:
    """Numbers that count from 0 as int8 that count from the middle of their range."""
    return (numbers ^ 0x80 if bits == 8 else numbers - 8).view(torch.int8)


def _per_word(tensors: _Tensors, name: str, count: int, bits: int, what: str) -> int:
    """How many words n numbers take, which must fill whole ones."""
    if count * bits % 32:
        raise tensors.refuse(name, f"{count} {what} are no multiple of the {32 // bits} that a word holds")
    return count * bits // 32


def _grouped(
    stored: WeightFormat, numbers: Tensor, scales: Tensor, zeros: Tensor | None, order: Tensor | None
) -> Grouped:
    """numbers `[N, K]`, scales and zeros `[N, G]`, of groups of which the last may be smaller."""
    num_inputs = numbers.shape[1]
    size = stored.size or num_inputs
    if zeros is not None and not zeros.any():  # they are stored where the middle is meant, too
        zeros = None
    if num_inputs % size:
        part = math.gcd(num_inputs, size)
        group = torch.arange(0, num_inputs, part, device=scales.device) // size
        scales, zeros = scales[:, group], None if zeros is None else zeros[:, group]
    return Grouped(stored.element, numbers, scales.contiguous(), zeros, order)


def _num_groups(stored: WeightFormat, num_inputs: int) -> int:
    return -(-num_inputs // (stored.size or num_inputs))


def _order(tensors: _Tensors, stored: WeightFormat, name: str, num_inputs: int) -> Tensor | None:
    """Inputs in the order of their groups; None: they are in it."""
    if name not in tensors and not stored.has_order:
        return None
    groups = tensors.whole(name, [num_inputs], torch.int32, torch.int64).long()
    size = stored.size or num_inputs
    expected = torch.arange(num_inputs, device=groups.device) // size
    if torch.equal(groups, expected):
        return None
    order = torch.argsort(groups, stable=True)
    if not torch.equal(groups[order], expected):
        raise tensors.refuse(name, f"expected groups of {size} inputs each, and none left out; is config.json its own?")
    return order


def _read_gptq(tensors: _Tensors, stored: WeightFormat, num_outputs: int, num_inputs: int) -> Grouped:
    bits, num_groups = BITS[stored.element], _num_groups(stored, num_inputs)
    num_words = _per_word(tensors, "qweight", num_inputs, bits, "inputs")
    numbers = _from_middle(_unpack(tensors.words("qweight", [num_words, num_outputs]).T, bits), bits)
    scales = tensors.scales("scales", [num_groups, num_outputs]).T
    num_words = -(-num_outputs * bits // 32)
    zeros = _unpack(tensors.words("qzeros", [num_groups, num_words]), bits)[:, :num_outputs]
    if stored.counts_from_one:
        zeros = (zeros + 1) & ((1 << bits) - 1)
    order = _order(tensors, stored, "g_idx", num_inputs)
    if order is not None:
        numbers = numbers[:, order]
    return _grouped(stored, numbers, scales, _from_middle(zeros, bits).T, order)


def _read_awq(tensors: _Tensors, stored: WeightFormat, num_outputs: int, num_inputs: int) -> Grouped:
    num_groups = _num_groups(stored, num_inputs)
    num_words = _per_word(tensors, "qweight", num_outputs, 4, "outputs")

    def unpacked(name: str, num_rows: int) -> Tensor:
        numbers = _unpack(tensors.words(name, [num_rows, num_words]), 4).view(num_rows, -1, 8)[..., _PLACES]
        return _from_middle(numbers.flatten(1).T.contiguous(), 4)

    numbers = unpacked("qweight", num_inputs)
    return _grouped(
        stored,
        numbers,
        tensors.scales("scales", [num_groups, num_outputs]).T,
        unpacked("qzeros", num_groups),
        None,
    )


def _read_packed(tensors: _Tensors, stored: WeightFormat, num_outputs: int, num_inputs: int) -> Grouped:
    bits, num_groups = BITS[stored.element], _num_groups(stored, num_inputs)
    shape = tensors.whole("weight_shape", [2], torch.int64, torch.int32).tolist()
    if shape != [num_outputs, num_inputs]:
        raise tensors.refuse("weight_shape", f"expected {[num_outputs, num_inputs]}, found {shape}")
    words = tensors.words("weight_packed", [num_outputs, -(-num_inputs * bits // 32)])
    numbers = _from_middle(_unpack(words, bits)[:, :num_inputs], bits)
    scales = tensors.scales_of_groups(stored, num_outputs, num_groups)
    zeros = None
    if stored.has_zeros:
        words = tensors.words("weight_zero_point", [-(-num_outputs * bits // 32), num_groups])
        zeros = _from_middle(_unpack(words.T, bits)[:, :num_outputs].T, bits)
    order = _order(tensors, stored, "weight_g_idx", num_inputs)
    if order is not None:
        numbers = numbers[:, order]
    return _grouped(stored, numbers.contiguous(), scales, zeros, order)


def _read_bytes(tensors: _Tensors, stored: WeightFormat, num_outputs: int, num_inputs: int) -> Grouped:
    is_float = stored.element == "e4m3"
    numbers = tensors.whole("weight", [num_outputs, num_inputs], FP8 if is_float else torch.int8)
    if is_float and (numbers.view(torch.uint8) & 0x7F == 0x7F).any():
        raise tensors.refuse("weight", "has a weight that is no number; download it again")
    num_groups, rows = _num_groups(stored, num_inputs), stored.block_rows
    if rows:
        scales = tensors.scales(stored.scale, [-(-num_outputs // rows), num_groups])
        scales = scales.repeat_interleave(rows, 0)[:num_outputs]
    else:
        scales = tensors.scales_of_groups(stored, num_outputs, num_groups)
    zeros = None
    if stored.has_zeros:
        zeros = tensors.whole("weight_zero_point", [num_outputs, num_groups], torch.int8)
    found = _grouped(stored, numbers, scales, zeros, None)
    return found if stored.inputs == "plain" else replace(found, input_step=_input_step(tensors, stored))


def _input_step(tensors: _Tensors, stored: WeightFormat) -> float:
    if stored.inputs == "own steps":
        return 0.0
    step = float(tensors.scales("input_scale", [1], []))
    if not 0 < step < math.inf:
        raise tensors.refuse("input_scale", f"{step} is no step to round inputs by; download it again")
    return step
