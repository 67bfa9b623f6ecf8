"""The types of weights, keys and values by name, with bytes a number: what a configuration says without torch."""

from __future__ import annotations

from typing import Literal

NumberType = Literal["float32", "bfloat16", "float16"]
KVNumberType = Literal["float32", "bfloat16", "float16", "fp8", "int8", "int4"]

BYTES: dict[NumberType, int] = {"float32": 4, "bfloat16": 2, "float16": 2}
KV_BITS: dict[KVNumberType, int] = {"float32": 32, "bfloat16": 16, "float16": 16, "fp8": 8, "int8": 8, "int4": 4}
KV_SCALE_BYTES = 4  # of a head of a token, where its numbers have a byte or less each
