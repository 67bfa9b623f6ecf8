"""The modules of Triton kernels as attributes: each is imported by the first test that uses it.

`conftest.py` sets Triton's interpreter before, and a run of other tests does without Triton.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    return import_module(f"phloem.kernels.triton.{name}")
