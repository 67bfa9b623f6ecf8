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
    TQ1_0     d * (q - 1)                  4           32                      d of 256 numbers, five of which in a byte
    TQ2_0     d * (q - 1)                  4           32                      d of 256 numbers

Nothing is rounded: q has at most 8 bits, d 11 and s 8, and what is kept of a group is `d * s` as fp32, which holds 24.
So number times scale is exact in fp32, and where there is an offset (`e * m`, exact too) their sum is rounded once, as
a multiply-add does and as llama.cpp's own widening does.

Knows no tensors; `unpack` makes numbers of blocks.

Sources: ggml's ggml-common.h (blocks) and ggml-quants.c (what they mean).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...number_types import NumberType

if TYPE_CHECKING:
    from ....kernels.grouped import Element


@dataclass(frozen=True, slots=True)
class Form:
    """What a tensor of few bits is kept as: numbers in groups (`kernels.grouped`)."""

    element: Element
    size: int
    has_offsets: bool = False
    rounds_inputs: bool = False


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
    """

    name: str
    block_size: int
    block_bytes: int
    dtype: NumberType | None = None
    form: Form | None = None

    def row_bytes(self, num_columns: int) -> int:
        return num_columns // self.block_size * self.block_bytes


TYPES: dict[int, TensorType] = {
    0: TensorType("F32", 1, 4, "float32"),
    1: TensorType("F16", 1, 2, "float16"),
    30: TensorType("BF16", 1, 2, "bfloat16"),
    2: TensorType("Q4_0", 32, 18, form=Form("int4", 32)),
    3: TensorType("Q4_1", 32, 20, form=Form("uint4", 32, True)),
    6: TensorType("Q5_0", 32, 22, form=Form("int8", 32)),
    7: TensorType("Q5_1", 32, 24, form=Form("int8", 32, True)),
    8: TensorType("Q8_0", 32, 34, form=Form("int8", 32)),
    10: TensorType("Q2_K", 256, 84, form=Form("uint4", 16, True)),
    11: TensorType("Q3_K", 256, 110, form=Form("int4", 16)),
    12: TensorType("Q4_K", 256, 144, form=Form("uint4", 32, True)),
    13: TensorType("Q5_K", 256, 176, form=Form("int8", 32, True)),
    14: TensorType("Q6_K", 256, 210, form=Form("int8", 16)),
    20: TensorType("IQ4_NL", 32, 18, form=Form("int8", 32)),
    23: TensorType("IQ4_XS", 256, 136, form=Form("int8", 32)),
    34: TensorType("TQ1_0", 256, 54, form=Form("int4", 32)),
    35: TensorType("TQ2_0", 256, 66, form=Form("int4", 32)),
    39: TensorType("MXFP4", 32, 17, form=Form("int8", 32)),
}

UNREAD_TYPES: dict[int, str] = {
    9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 21: "IQ3_S", 22: "IQ2_S",
    24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 40: "NVFP4",
}  # fmt: skip
