"""Grammars: expressions and rules, laid out as one flat network of positions."""
