"""The inner loops of phloem, compiled (`native/module.cpp`); a submodule each for `radix`, `fsm` and `kernels`."""

from . import fsm as fsm
from . import kernels as kernels
from . import radix as radix

kernels_hash: str
"""SHA-256 of the sources of `kernels`, in hexadecimal digits."""
