"""The tokens of a model as bytes, and as a tree of bytes."""
