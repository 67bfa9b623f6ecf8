"""What was computed before: KV blocks by token prefix, replies and scores of prompts, and what may be said of them."""
