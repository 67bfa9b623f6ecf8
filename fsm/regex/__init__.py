"""Regular expressions: read into a tree, made into automata over text."""
