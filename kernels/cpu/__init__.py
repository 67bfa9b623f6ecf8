"""The loops of `kernels/core` applied to tensors, and the layouts of weights for them."""
