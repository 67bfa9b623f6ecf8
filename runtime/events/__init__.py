"""KV events: what comes into the prefix cache and leaves it, published for routers that choose among servers."""
