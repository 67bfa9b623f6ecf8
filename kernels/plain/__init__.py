"""The twin of every op, in plain torch: slow, obvious, the truth."""
