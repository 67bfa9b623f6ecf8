"""GGUF, llama.cpp's format: one file with a model's settings, its tokenizer and its tensors."""
