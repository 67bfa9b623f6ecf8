"""From files to logits: loading a model, the forward of a batch, CUDA graphs, what precedes the first request."""
