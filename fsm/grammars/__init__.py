"""Grammars given as text, in two notations: EBNF (`root ::= …`) and Lark (`start: …`)."""
