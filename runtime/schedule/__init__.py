"""Which requests run in a step, with how many tokens, and which wait."""
