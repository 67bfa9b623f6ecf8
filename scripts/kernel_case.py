"""A case: one kernel in one configuration, as it is compiled without a device.

It holds the kernel, the types of its arguments, its constants and how it is launched.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

FIRST_FP8 = 89  # the first architecture that knows e4m3


@dataclass(frozen=True)
class Case:
    """One kernel in one configuration."""

    name: str
    kernel: Any
    types: dict[str, str]  # of the runtime arguments; pointers and strides are multiples of 16
    constants: dict[str, Any]
    num_warps: int = 4
    num_stages: int = 3
    kv_tile: tuple[int, int, int] | None = None  # (keys, padded head_dim, bytes of a number) of the streamed tiles
    undivided: frozenset[str] = field(default=frozenset())  # integers of which nothing is known
    oldest: int = 80  # the first architecture it must compile for
    max_registers: int | None = None  # per thread; None: the compiler's choice
    tiles: int = 2  # streamed per step: keys and values, or latents, which are both
    streamed: str = "KV"
    looks_ahead: bool = False  # what a step of the loop loads itself is for the next one


def argument_types(kernel: Any, element: str, fixed: dict[str, str], constants: dict[str, Any]) -> dict[str, str]:
    """Types of a kernel's runtime arguments: `element` for pointers not in `fixed`, i32 for the rest.

    Raises:
        ValueError: a constant of the kernel is not among `constants`, so that another kernel would be compiled.
    """
    missing = [
        parameter.name for parameter in kernel.params if parameter.is_constexpr and parameter.name not in constants
    ]
    if missing:
        raise ValueError(f"{kernel.fn.__name__}: no value for {', '.join(missing)}")
    names = [name for name in kernel.arg_names if name not in constants]
    return {n: fixed.get(n, f"*{element}" if n.endswith("_ptr") else "i32") for n in names}
