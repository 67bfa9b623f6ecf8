"""Decoders described by their Hugging Face configuration."""
