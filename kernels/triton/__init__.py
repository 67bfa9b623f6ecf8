"""The kernels of GPUs. Triton is imported here and nowhere else."""
