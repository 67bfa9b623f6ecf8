"""TagRules: the rules of a structural tag, and of the schemas and grammars in it, which are grammars of their own.

    "tag /format/tags/0"        a rule of the tag: its name says the place
    "12 value"                  a rule of the grammar that was taken in with the prefix "12 "

So no name comes twice, and of every rule it is known what part of the description it comes from.
"""

from __future__ import annotations

from collections.abc import Callable

from ..network.expression import Expression, Grammar, Rule
from ..network.walks import renamed


class TagRules:
    """See the module's docstring.

    Attributes:
        bodies: by name.
    """

    __slots__ = ("_within", "bodies")

    def __init__(self) -> None:
        self.bodies: dict[str, Expression] = {}
        self._within: dict[str, tuple[str, Callable[[str], str] | None]] = {}  # place and rules of a prefix

    def prefix(self) -> str:
        """What the names in the next grammar may begin with."""
        return f"{len(self.bodies)} "

    def take_in(self, grammar: Grammar, prefix: str, place: str) -> Rule:
        """The rule of ours that writes what another grammar writes, whose names begin with the prefix.

        Args:
            place: JSON pointer of what it was made from.
        """
        self.bodies.update(grammar.rules)
        self._within[prefix] = place, grammar.pointer_of
        return Rule(grammar.start)

    def pointer_of(self, rule: str) -> str:
        """The JSON pointer of what a rule comes from."""
        kind, _, rest = rule.partition(" ")
        if not kind.isdigit():
            return next((part for part in rest.split(" ") if part.startswith("/")), "")
        place, inner = self._within.get(f"{kind} ", ("", None))
        return place + (inner(rule) if inner is not None else "")


def with_prefix(grammar: Grammar, prefix: str) -> Grammar:
    """The grammar with other names; none of its rules knows a place."""
    bodies = {prefix + name: renamed(body, prefix) for name, body in grammar.rules.items()}
    return Grammar(bodies, prefix + grammar.start)
