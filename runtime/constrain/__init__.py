"""Constraints as callers state them: specifications, Python types, compilation for a tokenizer, explanations."""
