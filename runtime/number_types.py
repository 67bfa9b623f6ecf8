"""The types of weights, keys and values by name, with bytes a number: what a configuration says without torch."""

from __future__ import annotations

from typing import Literal

NumberType = Literal["float32", "bfloat16", "float16"]
RoundedKV = Literal["fp8", "int8", "int4"]  # the formats of `kernels.KV_FORMATS`
KVNumberType = Literal[NumberType, RoundedKV]

BYTES: dict[NumberType, int] = {"float32": 4, "bfloat16": 2, "float16": 2}
ROUNDED_BITS: dict[RoundedKV, int] = {"fp8": 8, "int8": 8, "int4": 4}
KV_BITS: dict[KVNumberType, int] = {name: 8 * size for name, size in BYTES.items()}
KV_BITS |= dict[KVNumberType, int](ROUNDED_BITS.items())
KV_SCALE_BYTES = 4  # of a head of a token whose numbers are rounded
