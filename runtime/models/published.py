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
    ternary  weight [N / 4, K] uint8     outputs n, n + N / 4, n + N / 2 and n + 3 N / 4 in a byte, the first lowest
             weight_scale [1]
    master   weight [N, K], plain, of which `-1, 0, 1` times the mean of its absolute values are used

Numbers are counted from 0 there (but in `bytes`) and from the middle of their range here. With 8 bits a word holds
four. Sources: AutoGPTQ 0.7, AutoAWQ 0.2, compressed-tensors 0.20, DeepSeek-V3's
checkpoints and transformers' BitNet (arXiv 2402.17764).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ...errors import ModelError
from ...kernels import FP8
from ...kernels.grouped import BITS, Grouped
from .gguf.checkpoint import GgufCheckpoint
from .gguf.tensor_types import Forms
from .part import Axis, Part, as_part, taken
from .part import stored as size_of
from .weight_format import WORD, WeightFormat
from .weights import STORED_DTYPES, Checkpoint

LEAST_MEAN = 1e-5  # of a BitNet's absolute weights
_PLACES = [0, 4, 1, 5, 2, 6, 3, 7]  # of an output of eight in AWQ's words
_SCALE_DTYPES = (*STORED_DTYPES, torch.float8_e8m0fnu)
_FIRST = {"gptq": "qweight", "awq": "qweight", "packed": "weight_packed"}


def is_published(checkpoint: Checkpoint | GgufCheckpoint, stored: WeightFormat | Forms | None, module: str) -> bool:
    """Whether a linear map is in few bits; else it is read as plain numbers, or is not there at all.

    Lists of modules that are plain are obeyed. Others may be plain all the same, as projections to the vocabulary are.
    """
    if isinstance(checkpoint, GgufCheckpoint):
        return checkpoint.has_form(module)
    if not isinstance(stored, WeightFormat) or stored.excludes(module):
        return False
    name = f"{module}.{_FIRST.get(stored.kind, 'weight')}"
    if stored.kind == "master":
        return True
    if stored.kind in ("bytes", "ternary"):
        return name in checkpoint and checkpoint.dtype_of(name) not in STORED_DTYPES
    return name in checkpoint or f"{module}.weight" not in checkpoint


def read_published(
    checkpoint: Checkpoint | GgufCheckpoint,
    stored: WeightFormat | Forms | None,
    module: str,
    outputs: Part,
    inputs: Part,
    device: torch.device,
) -> Grouped:
    """A part, one range of each axis, of the matrix of a linear map that `is_published`; of all inputs if they have an
    order. No more is unpacked than the words and groups that it lies in.

    Raises:
        ModelError: a tensor is missing or odd, or a scale is no number.
    """
    if isinstance(checkpoint, GgufCheckpoint):
        return checkpoint.read_grouped(module, outputs, inputs, device)
    assert isinstance(stored, WeightFormat)
    tensors = _Tensors(checkpoint, module, device)
    order = _order(tensors, stored, inputs.size)
    rows = outputs.within(math.lcm(WORD, stored.block_rows or 1))
    columns = inputs.within(math.lcm(WORD, stored.size or 1)) if order is None else as_part(inputs.size)
    readers = {"gptq": _read_gptq, "awq": _read_awq, "packed": _read_packed, "bytes": _read_bytes}
    readers |= {"ternary": _read_ternary, "master": _read_master}
    numbers, scales, zeros = readers[stored.kind](tensors, stored, rows, columns)
    if order is not None:
        numbers = numbers[:, order]
    found = _grouped(stored, numbers, scales, zeros, order)
    if stored.inputs != "plain":
        found = replace(found, input_step=_input_step(tensors, stored), input_limit=stored.input_limit)
    if not found.scales.isfinite().all():
        raise ModelError(
            f"{checkpoint.place(f'{module}.{stored.scale}')}: has a scale that is no number; download it again"
        )
    if rows.count > outputs.count:
        found = found[outputs.first - rows.first : outputs.first - rows.first + outputs.count]
    if order is None and columns.count > inputs.count:
        found = found.columns(inputs.first - columns.first, inputs.first - columns.first + inputs.count)
    return found


class _Tensors:
    """The tensors of one linear map."""

    def __init__(self, checkpoint: Checkpoint, module: str, device: torch.device) -> None:
        self._checkpoint, self._module, self._device = checkpoint, module, device

    def __contains__(self, name: str) -> bool:
        return f"{self._module}.{name}" in self._checkpoint

    def read(self, name: str, shape: Sequence[Axis], *dtypes: torch.dtype) -> Tensor:
        return self._checkpoint.read_kept(f"{self._module}.{name}", shape, dtypes, device=self._device)

    def words(self, name: str, shape: Sequence[Part]) -> Tensor:
        return self.read(name, shape, torch.int32)

    def scales(self, name: str, *shapes: Sequence[Axis]) -> Tensor:
        """Of the first of these shapes that is found."""
        place = f"{self._module}.{name}"
        found = self._checkpoint.shape_of(place) if name in self else None
        shape = next((each for each in shapes if list(map(size_of, each)) == found), shapes[0])
        scales = self.read(name, shape, *_SCALE_DTYPES)
        return scales.float() if scales.dtype is torch.float8_e8m0fnu else scales

    def scales_of_groups(self, stored: WeightFormat, outputs: Part, groups: Part) -> Tensor:
        """`[outputs, groups]`."""
        each: list[Sequence[Axis]] = [] if stored.scales == "one" else [[outputs, groups]]
        one: list[Sequence[Axis]] = [] if stored.scales == "each" else [[1], []]
        return self.scales(stored.scale, *each, *one).expand(outputs.count, groups.count)

    def refuse(self, name: str, why: str) -> ModelError:
        return ModelError(f"{self._checkpoint.place(f'{self._module}.{name}')}: {why}")


def _unpack(words: Tensor, bits: int) -> Tensor:
    """int32 `[R, W]` -> the numbers that they hold, lowest bits first, `[R, W * 32 / bits]` uint8."""
    # a copy, for a column of one word counts as contiguous in whatever stride
    numbers = words.clone(memory_format=torch.contiguous_format).view(torch.uint8)
    return torch.stack([numbers & 15, numbers >> 4], -1).flatten(1) if bits == 4 else numbers


def _from_middle(numbers: Tensor, bits: int) -> Tensor:
    """Numbers that count from 0 as int8 that count from the middle of their range."""
    return (numbers ^ 0x80 if bits == 8 else numbers - 8).view(torch.int8)


def _whole_words(tensors: _Tensors, name: str, axis: Part, bits: int, what: str) -> Part:
    """The words of n numbers, which must fill whole ones."""
    if axis.size * bits % 32:
        raise tensors.refuse(name, f"{axis.size} {what} are no multiple of the {32 // bits} that a word holds")
    return axis.per(32 // bits)


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
    return Grouped(stored.element, numbers.contiguous(), scales.contiguous(), zeros, order)


def _groups(stored: WeightFormat, inputs: Part) -> Part:
    return inputs.per(stored.size or inputs.size)


def _order(tensors: _Tensors, stored: WeightFormat, num_inputs: int) -> Tensor | None:
    """Inputs in the order of their groups; None: they are in it."""
    name = {"gptq": "g_idx", "packed": "weight_g_idx"}.get(stored.kind)
    if name is None or (name not in tensors and not stored.has_order):
        return None
    groups = tensors.read(name, [num_inputs], torch.int32, torch.int64).long()
    size = stored.size or num_inputs
    expected = torch.arange(num_inputs, device=groups.device) // size
    if torch.equal(groups, expected):
        return None
    order = torch.argsort(groups, stable=True)
    if not torch.equal(groups[order], expected):
        raise tensors.refuse(name, f"expected groups of {size} inputs each, and none left out; is config.json its own?")
    return order


Read = tuple[Tensor, Tensor, Tensor | None]  # numbers, scales, and zeros if there are any


def _read_gptq(tensors: _Tensors, stored: WeightFormat, outputs: Part, inputs: Part) -> Read:
    bits, groups = BITS[stored.element], _groups(stored, inputs)
    words = _whole_words(tensors, "qweight", inputs, bits, "inputs")
    numbers = _from_middle(_unpack(tensors.words("qweight", [words, outputs]).T, bits), bits)
    scales = tensors.scales("scales", [groups, outputs]).T
    zeros = _unpack(tensors.words("qzeros", [groups, outputs.per(32 // bits)]), bits)[:, : outputs.count]
    if stored.counts_from_one:
        zeros = (zeros + 1) & ((1 << bits) - 1)
    return numbers, scales, _from_middle(zeros, bits).T


def _read_awq(tensors: _Tensors, stored: WeightFormat, outputs: Part, inputs: Part) -> Read:
    words = _whole_words(tensors, "qweight", outputs, 4, "outputs")

    def unpacked(name: str, rows: Part) -> Tensor:
        numbers = _unpack(tensors.words(name, [rows, words]), 4).view(rows.count, -1, 8)[..., _PLACES]
        return _from_middle(numbers.flatten(1).T.contiguous(), 4)

    groups = _groups(stored, inputs)
    numbers = unpacked("qweight", inputs)
    return numbers, tensors.scales("scales", [groups, outputs]).T, unpacked("qzeros", groups)


def _read_packed(tensors: _Tensors, stored: WeightFormat, outputs: Part, inputs: Part) -> Read:
    bits, groups = BITS[stored.element], _groups(stored, inputs)
    shape = tensors.read("weight_shape", [2], torch.int64, torch.int32).tolist()
    if shape != [outputs.size, inputs.size]:
        raise tensors.refuse("weight_shape", f"expected {[outputs.size, inputs.size]}, found {shape}")
    words = tensors.words("weight_packed", [outputs, inputs.per(32 // bits)])
    numbers = _from_middle(_unpack(words, bits)[:, : inputs.count], bits)
    scales = tensors.scales_of_groups(stored, outputs, groups)
    if not stored.has_zeros:
        return numbers, scales, None
    words = tensors.words("weight_zero_point", [outputs.per(32 // bits), groups])
    return numbers, scales, _from_middle(_unpack(words.T, bits)[:, : outputs.count].T, bits)


def _read_bytes(tensors: _Tensors, stored: WeightFormat, outputs: Part, inputs: Part) -> Read:
    is_float = stored.element == "e4m3"
    numbers = tensors.read("weight", [outputs, inputs], FP8 if is_float else torch.int8)
    if is_float and (numbers.view(torch.uint8) & 0x7F == 0x7F).any():
        raise tensors.refuse("weight", "has a weight that is no number; download it again")
    groups, rows = _groups(stored, inputs), stored.block_rows
    if rows:
        scales = tensors.scales(stored.scale, [outputs.per(rows), groups])
        scales = scales.repeat_interleave(rows, 0)[: outputs.count]
    else:
        scales = tensors.scales_of_groups(stored, outputs, groups)
    return (
        numbers,
        scales,
        tensors.read("weight_zero_point", [outputs, groups], torch.int8) if stored.has_zeros else None,
    )


def _read_ternary(tensors: _Tensors, stored: WeightFormat, outputs: Part, inputs: Part) -> Read:
    if outputs.size % 4:
        raise tensors.refuse("weight", f"{outputs.size} outputs are no multiple of the 4 that a byte holds")
    packed = tensors.read("weight", [outputs.size // 4, inputs], torch.uint8)
    counted = outputs.of(torch.cat([packed >> 2 * place & 3 for place in range(4)]), 0)
    if (counted == 3).any():
        raise tensors.refuse("weight", "has a number that is none of -1, 0 and 1; download it again")
    scale = tensors.scales("weight_scale", [1], []).float().view(1, 1)
    return counted.to(torch.int8) - 1, (1 / scale if stored.divides else scale).expand(outputs.count, 1), None


def _read_master(tensors: _Tensors, stored: WeightFormat, outputs: Part, inputs: Part) -> Read:
    """Of a part, too, the mean is that of the whole matrix."""
    weight = tensors.read("weight", [outputs.size, inputs.size], *STORED_DTYPES).float()
    factor = 1 / weight.abs().mean().clamp(min=LEAST_MEAN)
    numbers = (taken(weight, [outputs, inputs]) * factor).round().clamp(-1, 1)
    return numbers.to(torch.int8), (1 / factor).expand(outputs.count, 1), None


def _input_step(tensors: _Tensors, stored: WeightFormat) -> float:
    if stored.inputs == "own steps":
        return 0.0
    step = float(tensors.scales("input_scale", [1], []))
    if not 0 < step < math.inf:
        raise tensors.refuse("input_scale", f"{step} is no step to round inputs by; download it again")
    return step
