"""Suspects: the few tokens of a row that what was written in lists of different items may forbid.

    in any item             those that end it, if it has rivals; else only those that end several, or behind whose comma
                            little may follow
    in one that has rivals  those behind which its text may have to end: a quote, a digit or a brace near the end of it
                            (`_near`); where these are many, of them only those with which it goes on towards a rival

Which tokens end items, and behind which some text can go on without end, is a matter of the state: found once and kept.
Behind all others something else than what is there can be reached, whatever that is. Whether a suspect is forbidden is
for `distinct` to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..._core import fsm as core
from ..._core.fsm import ENDS_LAST, ENDS_ONE, Mode
from .. import columns as k
from ..automaton.automaton import Automaton
from ..masks.masks import Masks
from ..record import record
from ..text.alphabet import Ints
from ..text.endless_texts import goes_on
from ..vocabulary.vocabulary import token_ids_of
from .item_values import STRUCTURE, begun, ways_on
from .items import Address, Items

MAX_KEPT = 1 << 13
STEP_BYTES = 300
MAX_STEPPED = 1 << 12  # tokens that are looked at one by one
FEW = 64  # that are tried, rather than asked first whether they lead towards a rival


@record
class Ending:
    """Tokens that end an item.

    Attributes:
        anyhow: those of `all` that may be forbidden though no item has rivals.
    """

    all: frozenset[int]
    anyhow: frozenset[int]


class Suspects:
    """Those of one automaton whose network has lists of items that must differ."""

    def __init__(self, automaton: Automaton, masks: Masks) -> None:
        self._automaton = automaton
        self._masks = masks
        self._vocabulary = automaton.vocabulary
        self._endings: dict[tuple[int, int], Ending] = {}
        self._nears: dict[int, frozenset[int] | None] = {}
        self._endless: dict[int, bool] = {}

    @property
    def num_bytes(self) -> int:
        """Memory of what is kept, roughly."""
        return STEP_BYTES * (len(self._endings) + len(self._nears) + len(self._endless))

    def of(
        self, state: int, items: Items, since: Callable[[Address], bytes], bits: Ints, *, are_ends_safe: bool = True
    ) -> list[int]:
        """The tokens of a row that may be forbidden.

        Args:
            since: what is written from an address on.
            are_ends_safe: whether ending an item does no harm but for what is forbidden; else all that do so are added.
        """
        ending = self._ending(state, items.mode)
        found = ending.anyhow if are_ends_safe else ending.all
        if items.has_rivals:
            near = self._near(state)
            if near is None or len(near) > FEW:
                towards = frozenset(self._towards(items, since, bits))
                found = ending.all | (towards if near is None else towards & near)
            else:
                found = ending.all | near
        return _among(found, bits) if found else []

    def all(self, state: int, items: Items, since: Callable[[Address], bytes], bits: Ints) -> list[int]:
        """The tokens of a row that end an item, or with which one goes on towards a rival: for who counts as well."""
        found = self._ending(state, items.mode).all
        if items.has_rivals:
            found |= frozenset(self._towards(items, since, bits))
        return _among(found, bits)

    def _ending(self, state: int, mode: int) -> Ending:
        found = self._endings.get((state, mode))
        if found is None:
            candidates = self._vocabulary.item_tokens.ending[min(mode, Mode.IN_STRING)] & self._masks.row(state).bits
            ids = np.array(token_ids_of(candidates), np.int32)
            flags = core.ending_tokens(self._automaton.core, self._automaton.network.roles, state, mode, ids)
            anyhow = [
                token_id
                for token_id, flag in zip(ids.tolist(), flags.tolist(), strict=True)
                if flag > ENDS_ONE
                or (flag == ENDS_ONE and not self.is_endless(self._automaton.advance(state, token_id)))
            ]
            found = Ending(frozenset(ids[flags >= ENDS_LAST].tolist()), frozenset(anyhow))
            if len(self._endings) >= MAX_KEPT:
                self._endings.clear()
            self._endings[state, mode] = found
        return found

    def _near(self, state: int) -> frozenset[int] | None:
        """The tokens behind which no text can go on without end; None: too many would have to be looked at."""
        if state in self._nears:
            return self._nears[state]
        automaton, bits, found = self._automaton, self._masks.row(state).bits, None
        if self.is_endless(state):
            if automaton.stays_on_plain(state):
                bits = bits & self._vocabulary.item_tokens.special
            if len(token_ids_of(bits)) <= MAX_STEPPED:
                targets = automaton.targets(state, bits)
                near = [target for target in np.unique(targets[targets > 0]).tolist() if not self.is_endless(target)]
                found = frozenset(np.flatnonzero(np.isin(targets, near)).tolist())
                found -= frozenset(self._vocabulary.eos_ids)
        if len(self._nears) >= MAX_KEPT:
            self._nears.clear()
        self._nears[state] = found
        return found

    def _towards(self, items: Items, since: Callable[[Address], bytes], bits: Ints) -> Iterator[int]:
        """Tokens with which an item may go on towards a rival."""
        ids, tokens = self._vocabulary.ids, self._vocabulary.item_tokens
        ways: set[bytes] = set()
        lists = items.lists
        while lists is not None:
            if lists.rivals:
                so_far = begun(since(lists.begin))
                for value in lists.rivals:
                    ways.update(ways_on(so_far, value) or ())
            lists = lists.below
        if items.mode == Mode.OUTSIDE:
            yield from token_ids_of(bits & (tokens.structure if STRUCTURE in ways else tokens.blank))
        for way in ways - {STRUCTURE}:
            for end in range(1, len(way)):
                token_id = ids.get(way[:end], -1)
                while token_id >= 0:
                    yield token_id
                    token_id = int(self._vocabulary.trie.next_same[token_id])
            rest = bits.copy()
            core.clear_below(self._automaton.core, way, rest)
            yield from token_ids_of(bits & ~rest)

    def is_endless(self, state: int) -> bool:
        """Whether some text can go on without end before the item ends, in which the state stands."""
        found = self._endless.get(state)
        if found is None:
            network, found = self._automaton.network, False
            for node, sub, _ in self._automaton.configurations(state):
                if network.kind[node] == k.K_TEXT:
                    table = network.texts[network.arg[node]]
                    found |= bool(self._nodes[network.next_node[node]])
                    if not found and table.counted is None:
                        by_state = self._goes_on[int(network.arg[node])]
                        found = by_state is None or bool(by_state[sub // table.num_nodes])
                elif network.kind[node] != k.K_KEY:
                    found |= bool(self._nodes[node])
            if len(self._endless) >= MAX_KEPT:
                self._endless.clear()
            self._endless[state] = found
        return found

    @cached_property
    def _goes_on(self) -> list[npt.NDArray[np.bool_] | None]:
        """By text, the states from which it can go on without end; None: all of them."""
        return [goes_on(table) if table.arrays else None for table in self._automaton.network.texts]

    @cached_property
    def _nodes(self) -> npt.NDArray[np.uint8]:
        """By node: whether, from there to the end of its rule or of its item, some text has no end of texts."""
        network = self._automaton.network
        texts = np.zeros(len(network.texts) + 1, np.uint8)
        for index, table in enumerate(network.texts):
            by_state = self._goes_on[index]
            start = table.core.start // table.num_nodes
            texts[index] = table.counted is None and (by_state is None or bool(by_state[start]))
        return core.find_endless(network.data, network.roles, texts)


def _among(found: frozenset[int], bits: Ints) -> list[int]:
    return [token_id for token_id in sorted(found) if int(bits[token_id >> 5]) >> (token_id & 31) & 1]
