"""Which keys and values a request keeps within its `kv_budget`, and when the others are dropped."""
