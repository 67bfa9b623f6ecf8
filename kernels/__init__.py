"""Pure functions on tensors: Triton on CUDA, torch and numba on the CPU, each with a plain twin in `reference`."""
