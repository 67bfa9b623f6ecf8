"""The reference of every op, in plain torch: slow and obvious."""
