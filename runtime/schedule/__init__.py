"""Who goes next, with how many tokens, and who waits."""
