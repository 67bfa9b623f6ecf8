"""CharacterSteps: where one more character of a text leads, in a vocabulary that lacks bytes (`passages`).

A character is some bytes, and a byte is read within an atom (`Atoms`), which may begin before the character and end
behind it. So a step begins at a place within an atom and ends at another one, and costs the atoms that end on its way.
It knows text automata, and nothing of what stands around them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..columns import NEVER
from ..text.text_view import TextView
from ..vocabulary.atoms import Atoms

Step = tuple[int, int, int]
"""A state, a place, and a number of atoms."""


class CharacterSteps:
    """The steps of some texts, over the atoms of one vocabulary; each found once."""

    __slots__ = ("_atoms", "_known_ends", "_known_steps", "_texts")

    def __init__(self, texts: Sequence[TextView], atoms: Atoms) -> None:
        self._texts = texts
        self._atoms = atoms
        self._known_ends: dict[tuple[int, int, int], dict[tuple[int, int], int]] = {}
        self._known_steps: dict[tuple[int, int, int], list[Step]] = {}

    @property
    def num_bytes(self) -> int:
        """Memory of what is known, roughly."""
        return 100 * len(self._known_ends) + 300 * len(self._known_steps)

    def steps(self, index: int, state: int, place: int) -> list[Step]:
        """From a state of a text, between two characters, to where the next one leads."""
        same = (index, state, place)
        found = self._known_steps.get(same)
        if found is None:
            row = self._texts[index].table[state].tolist()
            least: dict[tuple[int, int], int] = {}
            for (class_id, after), num_atoms in self.ends(index, 0, place).items():
                if row[class_id] > 0:
                    target = row[class_id], after
                    least[target] = min(least.get(target, NEVER), num_atoms)
            found = self._known_steps[same] = [(*target, num_atoms) for target, num_atoms in least.items()]
        return found

    def ends(self, index: int, inner: int, place: int) -> dict[tuple[int, int], int]:
        """What can be spelt up to the end of a character, from a node of its template: by class and place behind it."""
        same = (index, inner, place)
        found = self._known_ends.get(same)
        if found is None:
            found = {}
            spelling = self._texts[index].template[inner].tolist()
            for byte, ways in self._atoms.steps[place].items():
                spelt = spelling[byte]
                if not spelt:
                    continue
                for after, ended in ways:
                    rest = {(-spelt, after): 0} if spelt < 0 else self.ends(index, spelt, after)
                    for way, num_atoms in rest.items():
                        found[way] = min(found.get(way, NEVER), num_atoms + ended)
            self._known_ends[same] = found
        return found
