"""A network run as a byte automaton whose states are found when they are first needed."""
