"""TextTable: a text automaton laid out for the compiled loops.

`Dfa` keeps what its algebra needs; the loops want a few flat arrays and their addresses. A state of the byte
automaton is `state * num_nodes + node`, as in `Dfa`; 0 is dead. Built once per language and kept with it.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from ..errors import ConstraintTooLarge
from .alphabet import Ints
from .dfa import Dfa
from .dfa_kernels import distances
from .network_kernels import text_costs

if TYPE_CHECKING:
    from .dfa import Language

MAX_STATES = 1 << 23  # byte states of one language: they share an integer with a position and a stack
MAX_EXPANDED = 20_000  # states of a language that is not a Dfa
NUM_FIELDS = 13


@dataclass(frozen=True, slots=True, eq=False)
class TextTable:
    """Arrays of one text automaton; Q table states, G classes, N template nodes, W words of G bits.

    fields: int64[13], what the compiled loops read: addresses of table int32[Q, G], accepting uint8[Q],
        template int32[N, 256], reach uint64[N, W], live uint64[Q, W], state_costs int32[Q],
        node_costs int32[N, G], is_wide uint8[G] (the class has characters beyond ASCII), then G, N, W, the first
        byte state and Q.
    """

    language: Language
    arrays: tuple[npt.NDArray[np.generic], ...]
    fields: npt.NDArray[np.int64]
    min_bytes: int
    num_nodes: int
    start: int


def text_table(language: Language) -> TextTable:
    """The table of a language, from the language itself if it was made before."""
    if isinstance(language, Dfa):
        kept = language.__dict__.get("_text_table")
        if kept is None:
            kept = language.__dict__["_text_table"] = _from_dfa(language)
        return cast(TextTable, kept)
    return _expanded(language)


def _from_dfa(dfa: Dfa) -> TextTable:
    alphabet = dfa.alphabet
    return _pack(dfa, dfa.table, dfa.accepting, alphabet.template, alphabet.reach, alphabet.byte_costs, dfa.start_state)


def _pack(
    language: Language,
    table: Ints,
    accepting: npt.NDArray[np.bool_],
    template: Ints,
    reach: npt.NDArray[np.bool_],
    byte_costs: Ints,
    start: int,
) -> TextTable:
    if len(table) * len(template) > MAX_STATES:
        raise ConstraintTooLarge(f"a pattern needs more than {MAX_STATES} byte states; simplify it")
    accepts = accepting.astype(np.uint8)
    reach_bits, live_bits = _bits(reach), _bits(table > 0)
    costs = text_costs(table, accepts, byte_costs[0])
    is_wide = np.zeros(table.shape[1], np.uint8)
    is_wide[-template[0, 0x80:][template[0, 0x80:] < 0]] = 1
    if len(template) > 1:
        is_wide[reach[template[0, 0x80:][template[0, 0x80:] > 0]].any(axis=0)] = 1
    arrays = (table, accepts, template, reach_bits, live_bits, costs, byte_costs, is_wide)
    fields = np.zeros(NUM_FIELDS, np.int64)
    for index, array in enumerate(arrays):
        fields[index] = array.ctypes.data
    fields[8:] = (table.shape[1], len(template), reach_bits.shape[1], start * len(template), len(table))
    return TextTable(language, arrays, fields, int(costs[start]), len(template), start * len(template))


def _bits(flags: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint64]:
    """Rows of flags packed into 64-bit words."""
    num_words = -(-flags.shape[1] // 64)
    padded = np.zeros((len(flags), num_words * 64), np.bool_)
    padded[:, : flags.shape[1]] = flags
    return np.packbits(padded, axis=1, bitorder="little").view(np.uint64)


@functools.lru_cache(maxsize=64)
def _expanded(language: Language) -> TextTable:
    """Any language as a table over bytes: one template node, one class per kind of byte."""
    numbers = {0: 0, language.start: 1} if language.start else {0: 0}
    states = list(numbers)
    rows: list[Ints] = [np.zeros(256, np.int32)]
    index = 1
    while index < len(states):
        row = np.zeros(256, np.int32)
        for byte, target in enumerate(language.row(states[index]).tolist()):
            number = numbers.get(target)
            if number is None:
                number = numbers[target] = len(states)
                states.append(target)
                if number > MAX_EXPANDED:
                    raise ConstraintTooLarge(f"a language needs more than {MAX_EXPANDED} states")
            row[byte] = number
        rows.append(row)
        index += 1
    columns, classes = np.unique(np.stack(rows), axis=1, return_inverse=True)
    table = np.zeros((len(rows), columns.shape[1] + 1), np.int32)
    table[:, 1:] = columns
    accepting = np.array([False, *(language.is_accepting(state) for state in states[1:])], np.bool_)
    table[distances(table, accepting)[table] < 0] = 0
    template = -(classes.reshape(1, 256).astype(np.int32) + 1)
    reach = np.ones((1, table.shape[1]), np.bool_)
    return _pack(language, table, accepting, template, reach, np.ones_like(reach, np.int32), min(1, len(rows) - 1))
