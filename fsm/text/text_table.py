"""TextTable: a text automaton laid out for the compiled loops.

`Dfa` keeps what its algebra needs; the loops want a few flat arrays and their addresses. A state of the byte
automaton is `state * num_nodes + node`, as in `Dfa`; 0 is dead. Built once per language and kept with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from ..._core import fsm as core
from ...errors import ConstraintTooLarge
from ..columns import NEVER
from ..remembered import remembered
from .alphabet import Bools, Ints, Spelling
from .counted import Counted
from .dfa import Dfa
from .json_strings import JsonStrings
from .wide_kinds import wide_kinds

if TYPE_CHECKING:
    from .language import Language

MAX_STATES = 1 << 23  # byte states of one language: they share an integer with a position and a stack
MAX_LOOKS = 1 << 19  # at steps of a language, to count its texts
ENDLESS = 1 << 40  # as the greatest length: there is none


@dataclass(slots=True, weakref_slot=True, eq=False)
class TextTable:
    """Arrays of one text automaton; Q table states, G classes, N template nodes, W words of G bits.

    Attributes:
        core: what the compiled loops read (`fsm/core/text_table.h`); it keeps its arrays.
        arrays: those of them that are known here, or none: table int32[Q, G], accepting uint8[Q], template
            int32[N, 256], reach uint64[N, W], live uint64[Q, W], costs int32[Q], node_costs int32[N, G], is_wide
            uint8[G] (the kinds beyond ASCII that the class has characters of, see `wide_kinds`), num_ascii int32[G]
            (ASCII bytes that spell a character of the class), plain int32[Q] (`fsm/core/safe.cpp`), and where lengths
            are counted least int32[Q, tail + period] (`counted.Lengths`).
        counted: the bounds and what is left, if lengths are counted.
        uncounted: the table of the language itself, if lengths are counted.
        widest: the number of bytes of the widest character, if lengths are counted.
        min_bytes: length of the shortest text; max_bytes: greatest distance of any table state from an end.
        num_nodes: N; num_states: Q.
        is_closed: whether nothing can follow the end of a text, as that of a string in quotes.
    """

    core: core.Text
    arrays: tuple[npt.NDArray[Any], ...]
    min_bytes: int
    max_bytes: int
    num_nodes: int
    num_states: int
    counted: Counted | None = None
    uncounted: TextTable | None = None
    widest: int = 0
    is_closed: bool = True

    @property
    def num_bytes(self) -> int:
        """Memory of the arrays."""
        own = self.core.num_bytes + sum([array.nbytes for array in self.arrays])
        return own + (self.uncounted.num_bytes if self.uncounted is not None else 0)

    def surely_has(self, enough: int) -> bool:
        """Whether there are `enough` texts: True only if there are, False also if it takes too long to tell.

        Counted length by length, of every class of characters those in ASCII, or one if it has none.
        """
        if not self.arrays:
            return True  # any string but some
        table, accepts = self.arrays[0], self.arrays[1] != 0
        least, most = (0, None) if self.counted is None else (self.counted.minimum, self.counted.maximum)
        num_states, choices = len(table), np.maximum(self.arrays[8], 1).astype(np.float64)
        ways, found = np.zeros(num_states), 0.0
        ways[self.core.start // self.num_nodes] = 1.0
        for length in range(MAX_LOOKS // table.size):
            if found >= enough or (most is not None and length > most) or not ways.any():
                break
            found += float(ways[accepts].sum()) if length >= least else 0.0
            ways = np.minimum(np.bincount(table.ravel(), np.outer(ways, choices).ravel(), num_states), enough)
            ways[0] = 0.0
        return found >= enough


def text_table(language: Language) -> TextTable:
    """The table of a language, from the language itself if it was made before."""
    kept = getattr(language, "_text_table", None)
    if kept is None:
        if isinstance(language, Counted):
            kept = _counted(language)
        else:
            assert isinstance(language, (Dfa, JsonStrings))  # `OtherStrings` were made with theirs
            kept = _pack(language.table, language.accepting, language.spelling, language.start_state)
        language.__dict__["_text_table"] = kept
    return cast(TextTable, kept)


def _pack(table: Ints, accepting: Bools, spelling: Spelling, start: int) -> TextTable:
    template, byte_costs = spelling.template, spelling.byte_costs
    if len(table) * len(template) > MAX_STATES:
        raise ConstraintTooLarge(f"a pattern needs more than {MAX_STATES} byte states; simplify it")
    reach_bits, is_wide, num_ascii = _spelling_arrays(spelling)
    text, live, costs, plain, max_bytes = core.lay_out_text(
        table, accepting, template, reach_bits, byte_costs, is_wide, num_ascii, start
    )
    accepts = accepting.view(np.uint8)
    arrays = (table, accepts, template, reach_bits, live, costs, byte_costs, is_wide, num_ascii, plain)
    is_closed = not table[accepting].any()
    return TextTable(text, arrays, int(costs[start]), max_bytes, len(template), len(table), is_closed=is_closed)


def _counted(language: Counted) -> TextTable:
    """The table of the language that it counts, with the bounds in the last fields."""
    base, lengths = text_table(language.language), language.lengths
    used = (base.arrays[0] > 0).any(axis=0)
    widest = int(base.arrays[6][0][used].max(initial=1))
    maximum = ENDLESS if language.maximum is None else language.maximum
    if max(language.minimum, maximum) > ENDLESS:
        raise ConstraintTooLarge(f"a pattern or a length counts more than {ENDLESS} characters; use smaller counts")
    bounds = language.minimum, maximum, lengths.least, lengths.tail, widest, lengths.longest_way
    shortest = lengths.from_state(language.language.start_state, language.minimum)
    min_bytes = NEVER if language.is_empty() else min(shortest * widest, NEVER - 1)
    return replace(
        base,
        arrays=(*base.arrays, lengths.least),
        core=base.core.counted(*bounds),
        min_bytes=min_bytes,
        max_bytes=NEVER - 1,
        counted=language,
        uncounted=base,
        widest=widest,
    )


@remembered(256)
def _spelling_arrays(spelling: Spelling) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint8], Ints]:
    """What only depends on the spelling: `reach` as words of bits, `is_wide` and `num_ascii` as in `TextTable`."""
    is_wide, num_ascii = core.character_kinds(spelling.template, spelling.reach, wide_kinds())
    return core.bits_of_rows(spelling.reach), is_wide, num_ascii
