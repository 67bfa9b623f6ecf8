"""phloem: a prefix-caching LLM runtime with structured generation."""
