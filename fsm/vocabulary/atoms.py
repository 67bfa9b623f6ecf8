"""Atoms: the tokens that no shorter tokens spell, which is all there is to know of what a vocabulary can spell.

Whatever is a run of tokens is a run of atoms, and the other way round. Where every byte is a token, the atoms are the
bytes. Where some are not, the atoms are the bytes that are, and those of the other tokens that cannot do without:

    tokens   a  b  ab  é(C3 A9)  éb  ":       atoms   a  b  é  ":

A *place* is how far a text has come in an atom: 0 between two atoms, else a node of their trie.

It knows neither automata nor ids. Built once per vocabulary in which some byte is no token: 250,000 tokens of many
scripts take about a second.
"""

from __future__ import annotations

from collections.abc import Collection

from .trie import MAX_TOKEN_LEN

Steps = dict[int, tuple[tuple[int, int], ...]]
"""By byte: the places to which it leads, each with the number of atoms (0 or 1) that it ends."""


class Atoms:
    """The atoms of a vocabulary.

    Attributes:
        steps: by place, where each byte leads. From one place it may lead to two: an atom ends, or goes on.
        alone: the bytes that are tokens, bit b for byte b; plain: those of them with which no longer atom begins;
            apart: those that are in no longer atom at all.
    """

    __slots__ = ("alone", "apart", "plain", "steps")

    def __init__(self, tokens: Collection[bytes]) -> None:
        alone = bytes(sorted(token[0] for token in tokens if len(token) == 1))
        longer = [token for token in tokens if 1 < len(token) <= MAX_TOKEN_LEN and token.translate(None, alone)]
        atoms = [bytes((byte,)) for byte in alone]
        atoms += [token for token in longer if not _is_spelt_by_others(token, tokens)]
        places: dict[bytes, int] = {b"": 0}
        found: list[dict[int, set[tuple[int, int]]]] = [{}]
        for atom in atoms:
            for end in range(1, len(atom) + 1):
                target, num_ended = 0, 1
                if end < len(atom):
                    num_ended, beginning = 0, atom[:end]
                    if beginning not in places:
                        places[beginning] = len(found)
                        found.append({})
                    target = places[beginning]
                found[places[atom[: end - 1]]].setdefault(atom[end - 1], set()).add((target, num_ended))
        self.steps: list[Steps] = [{byte: tuple(ways) for byte, ways in steps.items()} for steps in found]
        self.alone = sum(1 << byte for byte in alone)
        joined = set(b"".join(atom for atom in atoms if len(atom) > 1))
        self.apart = sum(1 << byte for byte in alone if byte not in joined)
        self.plain = sum(1 << byte for byte in alone if self.steps[0][byte] == ((0, 1),))


def _is_spelt_by_others(token: bytes, tokens: Collection[bytes]) -> bool:
    """Whether shorter tokens spell a token."""
    length = len(token)
    is_reached = bytearray(length + 1)
    is_reached[0] = 1
    for begin in range(length):
        if is_reached[begin]:
            for end in range(begin + 1, length + (begin > 0)):
                if not is_reached[end] and token[begin:end] in tokens:
                    is_reached[end] = 1
    return bool(is_reached[length])
