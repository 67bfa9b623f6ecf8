"""Terminals by themselves: their texts, as an automaton or, of keywords, place by place.

A terminal that is spelt out, each character in one or a few forms, such as `"select"i`, needs no automaton: hundreds of
keywords cost what their letters cost. It knows regex trees and expressions, no rules and no neighbours.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...errors import ConstraintTooLarge
from ..compile_time import NO_LIMIT, CompileTime
from ..network.expression import ByteSet, Expression, Literal, Sequence, alternation
from ..regex.determinise import determinise
from ..regex.regex_tree import CharSet, Concat, Node, Plain
from ..text.dfa import Dfa, of_length

MAX_SPELLINGS = 8  # characters that may stand at one place of a terminal that is spelt out


@dataclass(frozen=True, eq=False)
class Terminal:
    """A terminal and its texts.

    Attributes:
        node: as a regular expression.
        is_lazy: takes the shortest match instead of the longest, and obliges to nothing.
        time: in which whatever is asked of it is found out.
    """

    name: str
    node: Node
    is_lazy: bool = False
    time: CompileTime = NO_LIMIT

    @functools.cached_property
    def places(self) -> tuple[str, ...]:
        """The few characters that may stand at each place, where the terminal is spelt out so: keywords; else none."""
        found: list[str] = []
        for part in self.node.parts if isinstance(self.node, Concat) else (self.node,):
            if isinstance(part, Plain):
                found += part.text
            elif isinstance(part, CharSet) and sum(last + 1 - first for first, last in part.intervals) <= MAX_SPELLINGS:
                found.append("".join(chr(p) for first, last in part.intervals for p in range(first, last + 1)))
            else:
                return ()
        return tuple(found) if all(found) else ()

    @functools.cached_property
    def matches(self) -> Dfa:
        """All that the pattern matches."""
        try:
            return determinise(self.node, compile_time=self.time).minimised()
        except ConstraintTooLarge as error:
            raise ConstraintTooLarge(f"grammar, terminal {self.name}: {error}", param="grammar") from error

    @functools.cached_property
    def dfa(self) -> Dfa:
        """Its texts; not the empty one, which no terminal can be."""
        found = self.matches
        if found.accepts(""):
            found = found.difference(of_length(0, 0)).minimised()
        if not self.is_lazy:
            return found
        table = np.where(found.accepting[:, None], 0, found.table).astype(np.int32)
        return Dfa.from_table(found.alphabet, table, found.accepting, found.start_state)

    @property
    def keywords(self) -> tuple[tuple[str, ...], ...]:
        """The `places` of the terminal, or of each of a `Keywords`; empty if it is not spelt out."""
        return (self.places,) if self.places else ()

    def may_go_on_with(self, characters: str) -> bool:
        """Whether a match may become longer by one of these characters."""
        if self.keywords:
            return False
        return bool(self._after_match[self.dfa.alphabet.classes_of(characters)].any())

    def may_go_on_as(self, other: Terminal) -> bool:
        """Whether a match may become longer by a character that a text of the other terminal may begin with."""
        self.time.check("", f"grammar, terminal {self.name}")
        if self.keywords:
            return False
        if other.keywords:
            return self.may_go_on_with("".join({keyword[0] for keyword in other.keywords}))
        _, mine, theirs = self.dfa.alphabet.refine(other.dfa.alphabet)
        return bool((self._after_match[mine] & (other.dfa.table[other.dfa.start_state] != 0)[theirs]).any())

    def repeats_itself(self) -> bool:
        """Whether two texts in a row are always a text of this terminal."""
        table, accepting = self.dfa.table.tolist(), self.dfa.accepting.tolist()
        pairs = {(state, self.dfa.start_state) for state, ends in enumerate(accepting) if ends}
        for one, other in self.time.over(
            queue := list(pairs), name=f"grammar, terminal {self.name}"
        ):  # grows: from `one` on at least what there is from `other` on
            if accepting[other] and not accepting[one]:
                return False
            for pair in zip(table[one], table[other], strict=True):
                if pair[1] and pair not in pairs:
                    pairs.add(pair)
                    queue.append(pair)
        return True

    @functools.cached_property
    def _after_match(self) -> npt.NDArray[np.bool_]:
        """For every class of characters whether one may stand after a match within a longer one."""
        return np.asarray(self.dfa.table[self.dfa.accepting].any(axis=0))


@dataclass(frozen=True, eq=False)
class Keywords(Terminal):
    """Any one of several terminals that are spelt out: a match of one ends by itself, so it obliges to nothing."""

    several: tuple[tuple[str, ...], ...] = ()

    @property
    def keywords(self) -> tuple[tuple[str, ...], ...]:
        """The `places` of each."""
        return self.several


def spelt(places: tuple[str, ...]) -> Expression:
    """Characters one after the other, in parts that are equal where keywords begin alike."""
    if all(len(place) == 1 for place in places):
        return Literal("".join(places).encode())
    return Sequence(tuple(map(_one_of, places)))


@functools.lru_cache(1024)
def _one_of(characters: str) -> Expression:
    """One of a few characters."""
    if len(characters) == 1:
        return Literal(characters.encode())
    mask = sum({1 << ord(character) for character in characters if character.isascii()})
    options: list[Expression] = [Literal(character.encode()) for character in characters if not character.isascii()]
    return alternation(*([ByteSet(mask)] if mask else []), *options)
