"""The types of GGUF's tensors: how a block of numbers lies in bytes, and what it is as a group of few bits.

::

    type      a number is                  bits kept   inputs of a group
    Q4_0      d * (q - 8)                  4           32
    Q4_1      d * q + m                    4           32, an offset each
    Q5_0      d * (q - 16)                 8           32
    Q5_1      d * q + m                    8           32, an offset each
    Q8_0      d * q                        8           32
    Q2_K      d * s * q - e * m            4           16, an offset each      d, e of 256 numbers, s, m of a group
    Q3_K      d * s * (q - 4)              4           16
    Q4_K      d * s * q - e * m            4           32, an offset each
    Q5_K      d * s * q - e * m            8           32, an offset each
    Q6_K      d * s * (q - 32)             8           16
    IQ4_NL    d * level of q               8           32                      16 levels that are not even
    IQ4_XS    d * s * level of q           8           32
    MXFP4     2 ** e * level of q          8           32

Nothing is rounded: q has at most 8 bits, d 11 and s 8, and what is kept of a group is `d * s` as fp32, which holds 24.
So number times scale is exact in fp32, and where there is an offset (`e * m`, exact too) their sum is rounded once, as
a multiply-add does and as llama.cpp's own widening does.

Sources: ggml's ggml-common.h (blocks) and ggml-quants.c (what they mean).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ....kernels.grouped import Element, Grouped


@dataclass(frozen=True, slots=True)
class Form:
    """What a tensor of few bits is kept as: numbers in groups (`kernels.grouped`)."""

    element: Element
    size: int
    has_offsets: bool = False


@dataclass(frozen=True, slots=True)
class Forms:
    """The linear maps of a file that are in few bits, by our names of them, and those in types that bf16 is not."""

    of_modules: Mapping[str, Form]
    wide: frozenset[str]


@dataclass(frozen=True, slots=True)
class TensorType:
    """One type.

    Attributes:
        block_size, block_bytes: numbers of a block, and its bytes.
        dtype: of plain numbers; None: they are in few bits.
        form: what those become.
        unpack: bytes of blocks `[N, B, block_bytes]` -> numbers `[N, B, block_size]`, scales and offsets
            `[N, B, groups of a block]`.
    """

    name: str
    block_size: int
    block_bytes: int
    dtype: torch.dtype | None = None
    form: Form | None = None
    unpack: Callable[[Tensor], tuple[Tensor, Tensor, Tensor | None]] | None = None

    def row_bytes(self, num_columns: int) -> int:
        return num_columns // self.block_size * self.block_bytes

    def grouped(self, raw: Tensor) -> Grouped:
        """Rows `[N, row_bytes]` uint8 as a weight."""
        assert self.form is not None
        assert self.unpack is not None
        numbers, scales, offsets = self.unpack(raw.view(len(raw), -1, self.block_bytes))
        return Grouped(
            self.form.element,
            numbers.reshape(len(raw), -1).to(torch.int8),
            scales.reshape(len(raw), -1),
            offsets=None if offsets is None else offsets.reshape(len(raw), -1),
        )


def _halves(blocks: Tensor, place: int) -> Tensor:
    """The fp16 at a place of every block, as fp32 `[N, B, 1]`."""
    return blocks[..., place : place + 2].contiguous().view(torch.float16).float()


def _nibbles(packed: Tensor) -> Tensor:
    """Bytes `[..., n]` -> `[..., 2n]`: first all low halves, then all high ones."""
    return torch.cat([packed & 15, packed >> 4], -1)


def _bits(packed: Tensor, shifts: range, mask: int) -> Tensor:
    """Bytes `[..., n]` -> `[..., len(shifts), n]`: the fields at these shifts, one after the other."""
    return torch.stack([packed >> shift & mask for shift in shifts], -2)


def _apart(packed: Tensor, count: int, size: int) -> Tensor:
    """Bytes `[..., count * size]` -> `[..., count, size]`."""
    return packed.reshape(*packed.shape[:-1], count, size)


def _q4_0(blocks: Tensor) -> tuple[Tensor, Tensor, None]:
    return _nibbles(blocks[..., 2:]).to(torch.int8) - 8, _halves(blocks, 0), None


def _q4_1(blocks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return _nibbles(blocks[..., 4:]), _halves(blocks, 0), _halves(blocks, 2)


def _fifth_bits(packed: Tensor) -> Tensor:
    """Four bytes `[..., 4]` -> their 32 bits, as 16 or 0."""
    return _bits(packed, range(8), 1).transpose(-1, -2).flatten(-2) << 4


def _q5_0(blocks: Tensor) -> tuple[Tensor, Tensor, None]:
    numbers = _nibbles(blocks[..., 6:]) | _fifth_bits(blocks[..., 2:6])
    return numbers.to(torch.int8) - 16, _halves(blocks, 0), None


def _q5_1(blocks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return _nibbles(blocks[..., 8:]) | _fifth_bits(blocks[..., 4:8]), _halves(blocks, 0), _halves(blocks, 2)


def _q8_0(blocks: Tensor) -> tuple[Tensor, Tensor, None]:
    return blocks[..., 2:].view(torch.int8), _halves(blocks, 0), None


def _six_bits(packed: Tensor) -> tuple[Tensor, Tensor]:
    """Twelve bytes `[..., 12]` -> eight scales and eight minima of six bits (Q4_K, Q5_K)."""
    first, second, third = packed[..., :4], packed[..., 4:8], packed[..., 8:]
    scales = torch.cat([first & 63, third & 15 | first >> 6 << 4], -1)
    return scales, torch.cat([second & 63, third >> 4 | second >> 6 << 4], -1)


def _scaled(blocks: Tensor, place: int, scales: Tensor, minima: Tensor) -> tuple[Tensor, Tensor]:
    """Scales and offsets of groups from those of their block, two fp16 at a place."""
    return _halves(blocks, place) * scales, -(_halves(blocks, place + 2) * minima)


def _q2_k(blocks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    packed = blocks[..., :16]
    numbers = _bits(_apart(blocks[..., 16:80], 2, 32), range(0, 8, 2), 3)
    return numbers.flatten(2), *_scaled(blocks, 80, packed & 15, packed >> 4)


def _q3_k(blocks: Tensor) -> tuple[Tensor, Tensor, None]:
    high = _bits(blocks[..., :32], range(8), 1).reshape(*blocks.shape[:2], 2, 4, 32) << 2
    low = _bits(_apart(blocks[..., 32:96], 2, 32), range(0, 8, 2), 3)
    packed = blocks[..., 96:108]
    scales = _nibbles(packed[..., :8]) | _bits(packed[..., 8:], range(0, 8, 2), 3).flatten(2) << 4
    return (low | high).flatten(2).to(torch.int8) - 4, _halves(blocks, 108) * (scales.to(torch.int8) - 32), None


def _q4_k(blocks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    numbers = _nibbles(_apart(blocks[..., 16:], 4, 32))
    return numbers.flatten(2), *_scaled(blocks, 0, *_six_bits(blocks[..., 4:16]))


def _q5_k(blocks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    low = _nibbles(_apart(blocks[..., 48:], 4, 32)).flatten(2)
    high = _bits(blocks[..., 16:48], range(8), 1).flatten(2)
    return low | high << 4, *_scaled(blocks, 0, *_six_bits(blocks[..., 4:16]))


def _q6_k(blocks: Tensor) -> tuple[Tensor, Tensor, None]:
    low = _nibbles(_apart(blocks[..., :128], 2, 64))
    high = _bits(_apart(blocks[..., 128:192], 2, 32), range(0, 8, 2), 3).flatten(-2)
    numbers = (low | high << 4).flatten(2).to(torch.int8) - 32
    return numbers, _halves(blocks, 208) * blocks[..., 192:208].view(torch.int8), None


def _levels(indices: Tensor, levels: list[int]) -> Tensor:
    return torch.tensor(levels, dtype=torch.int8, device=indices.device)[indices.int()]


_UNEVEN = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]
_E2M1 = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]  # times two


def _iq4_nl(blocks: Tensor) -> tuple[Tensor, Tensor, None]:
    return _levels(_nibbles(blocks[..., 2:]), _UNEVEN), _halves(blocks, 0), None


def _iq4_xs(blocks: Tensor) -> tuple[Tensor, Tensor, None]:
    numbers = _levels(_nibbles(_apart(blocks[..., 8:], 8, 16)), _UNEVEN)
    low = _bits(blocks[..., 4:8], range(0, 8, 4), 15).transpose(-1, -2).flatten(2)
    high = _bits(blocks[..., 2:4], range(0, 8, 2), 3).transpose(-1, -2).flatten(2)
    return numbers.flatten(2), _halves(blocks, 0) * ((low | high << 4).to(torch.int8) - 32), None


def _mxfp4(blocks: Tensor) -> tuple[Tensor, Tensor, None]:
    exponents = blocks[..., :1].int() - 128  # one less, for the levels are doubled
    return _levels(_nibbles(blocks[..., 1:]), _E2M1), torch.exp2(exponents.double()).float(), None


TYPES: dict[int, TensorType] = {
    0: TensorType("F32", 1, 4, torch.float32),
    1: TensorType("F16", 1, 2, torch.float16),
    30: TensorType("BF16", 1, 2, torch.bfloat16),
    2: TensorType("Q4_0", 32, 18, form=Form("int4", 32), unpack=_q4_0),
    3: TensorType("Q4_1", 32, 20, form=Form("uint4", 32, True), unpack=_q4_1),
    6: TensorType("Q5_0", 32, 22, form=Form("int8", 32), unpack=_q5_0),
    7: TensorType("Q5_1", 32, 24, form=Form("int8", 32, True), unpack=_q5_1),
    8: TensorType("Q8_0", 32, 34, form=Form("int8", 32), unpack=_q8_0),
    10: TensorType("Q2_K", 256, 84, form=Form("uint4", 16, True), unpack=_q2_k),
    11: TensorType("Q3_K", 256, 110, form=Form("int4", 16), unpack=_q3_k),
    12: TensorType("Q4_K", 256, 144, form=Form("uint4", 32, True), unpack=_q4_k),
    13: TensorType("Q5_K", 256, 176, form=Form("int8", 32, True), unpack=_q5_k),
    14: TensorType("Q6_K", 256, 210, form=Form("int8", 16), unpack=_q6_k),
    20: TensorType("IQ4_NL", 32, 18, form=Form("int8", 32), unpack=_iq4_nl),
    23: TensorType("IQ4_XS", 256, 136, form=Form("int8", 32), unpack=_iq4_xs),
    39: TensorType("MXFP4", 32, 17, form=Form("int8", 32), unpack=_mxfp4),
}

UNREAD_TYPES: dict[int, str] = {
    9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 21: "IQ3_S", 22: "IQ2_S",
    24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 40: "NVFP4",
}  # fmt: skip
