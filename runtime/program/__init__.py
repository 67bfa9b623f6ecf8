"""The DSL for generation programs."""
