"""The inner loops of phloem, compiled (`native/module.cpp`); a submodule for each room."""

from . import fsm as fsm
from . import kernels as kernels
from . import radix as radix

kernels_hash: str
"""SHA-256 of the sources of `kernels`, in hexadecimal digits."""
