"""The loops of `kernels/core` on tensors, and how weights lie for them."""
