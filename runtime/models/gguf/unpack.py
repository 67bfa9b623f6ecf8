"""GGUF's blocks as weights of few bits: numbers, scales and offsets, by the formulas of `tensor_types`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ....kernels.grouped import Grouped
from .tensor_types import TensorType


def grouped(kind: TensorType, raw: Tensor) -> Grouped:
    """Rows `[N, row_bytes]` uint8 of a type that has a form, as a weight."""
    assert kind.form is not None
    numbers, scales, offsets = _UNPACK[kind.name](raw.view(len(raw), -1, kind.block_bytes))
    return Grouped(
        kind.form.element,
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


def _thirds(packed: Tensor, count: int) -> Tensor:
    """Bytes `[..., n]`, each five digits to the base of three -> `[..., count * n]`, the first digits first."""
    digits = [(packed * 3**place).int() * 3 >> 8 for place in range(count)]  # products of bytes wrap around
    return torch.cat(digits, -1)


def _tq1_0(blocks: Tensor) -> tuple[Tensor, Tensor, None]:
    parts = ((blocks[..., :32], 5), (blocks[..., 32:48], 5), (blocks[..., 48:52], 4))
    numbers = torch.cat([_thirds(packed, count) for packed, count in parts], -1)
    return numbers - 1, _halves(blocks, 52).expand(-1, -1, 8), None


def _tq2_0(blocks: Tensor) -> tuple[Tensor, Tensor, None]:
    numbers = _bits(_apart(blocks[..., :64], 2, 32), range(0, 8, 2), 3)
    return numbers.flatten(2).to(torch.int8) - 1, _halves(blocks, 64).expand(-1, -1, 8), None


# bytes of blocks `[N, B, block_bytes]` -> numbers `[N, B, block_size]`, scales and offsets `[N, B, groups of a block]`
_UNPACK: dict[str, Callable[[Tensor], tuple[Tensor, Tensor, Tensor | None]]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "IQ4_NL": _iq4_nl,
    "IQ4_XS": _iq4_xs,
    "MXFP4": _mxfp4,
    "TQ1_0": _tq1_0,
    "TQ2_0": _tq2_0,
}
