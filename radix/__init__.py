"""Token prefixes → KV block ids. Knows no tensors and no requests."""
