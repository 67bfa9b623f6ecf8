"""The inner loops of phloem, compiled (`native/module.cpp`); a submodule for each room."""

from . import kernels as kernels
from . import runtime as runtime
