"""Budget: the rows of tokens after which the text can still be finished in the tokens that are left.

A token is allowed iff `Completions.bound(state after it) <= tokens left`. As some token always lowers the bound, a
request that begins with enough tokens never meets an empty row, and ends complete.

    tokens left    many                               few                                   at the end
                   every state's cost in bytes        no token of the row needs more:       token by token
                   is less: the row itself            the row itself (`worst`, kept)

Inside a text, where a row is wide, most tokens are settled together: those that stay inside and leave at most n
bytes to its end need no more than n tokens and the bound of what comes after the text. (Where its end is all that may
come next there, as in a string; where other positions are possible as well, bytes are counted for all of it, which is
more, never less.)
Invariant: a row within a budget is a subset of the row, and holds EOS iff the row does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..._core import fsm as core
from ..automaton.automaton import NO_LIMIT, Automaton
from ..automaton.limits import OutOfWork
from ..bounded_map import BoundedMap
from ..text.alphabet import Ints
from ..text.text_table import TextTable
from .completions import Completions
from .masks import WALK_WORK, Masks
from .unfinished import Unfinished

MAX_BEGUN = 16
MAX_KEPT = 65_536
MAX_ROW_BYTES = 1 << 20  # of tight rows


class _Judging(NamedTuple):
    """Tokens that are judged: those that certainly leave enough, with what is enough for them; the rest, and how far
    that is judged."""

    inside: Ints
    worst: int
    rest: Ints
    judged: core.Judged


class Budget:
    """The rows of one automaton under a budget."""

    def __init__(self, automaton: Automaton, completions: Completions, masks: Masks) -> None:
        self._automaton = automaton
        self._completions = completions
        self._masks = masks
        self._worst: BoundedMap[int, int] = BoundedMap(MAX_KEPT)
        self._rows: dict[tuple[int, int], Ints] = {}
        # by state and limit: how many texts are done in `_inside`, with what was found; and rows of which all are
        self._begun: Unfinished[tuple[int, int], tuple[int, int, Ints]] = Unfinished(MAX_BEGUN)
        self._judging: Unfinished[tuple[int, int], _Judging] = Unfinished()

    @property
    def num_bytes(self) -> int:
        """Memory of what is kept."""
        rows = sum(row.nbytes for row in list(self._rows.values()))
        rows += sum(bits.nbytes for _, _, bits in self._begun.values())
        rows += sum(judging.inside.nbytes + judging.rest.nbytes for judging in self._judging.values())
        return 100 * (len(self._worst) + len(self._rows)) + rows

    def is_free(self, state: int, limit: int) -> bool:
        """Whether `limit` tokens suffice after every token of the row, so that the budget forbids nothing."""
        if self._masks.row(state).worst <= limit:
            return True
        worst = self._worst.get(state)
        if worst is None:
            judging = self._judging.take((state, NO_LIMIT)) or self._begin(state, NO_LIMIT)
            try:
                worst = max(judging.worst, self._completions.worst(state, judging.rest, judging.judged))
            except OutOfWork:
                self._judging.put((state, NO_LIMIT), judging)
                raise
            self._worst.keep(state, worst)
        return worst <= limit

    def _begin(self, state: int, limit: int) -> _Judging:
        """The tokens of a row of which `limit` further tokens suffice for certain, and those that are to be judged."""
        inside, worst = self._inside(state, limit)
        row = self._masks.row(state).bits
        return _Judging(inside & row, worst, row & ~(inside | self._automaton.vocabulary.eos_words), core.Judged())

    def row(self, state: int, limit: int) -> Ints:
        """The tokens after which `limit` further tokens suffice; EOS as in the row. Read-only, shared."""
        found, eos = self._masks.row(state), self._automaton.vocabulary.eos_words
        row = found.bits
        if found.worst <= limit:
            return row
        tight = self._rows.get((state, limit))  # requests that began together come to their ends together
        if tight is not None:
            return tight
        if limit < 0:
            return row & eos
        if limit >= self._completions.bound(state) and self.is_free(state, limit):
            return row  # below its own bound a state is hardly ever free: not worth finding out
        judging = self._judging.take((state, limit)) or self._begin(state, limit)
        try:
            self._completions.keep_within(state, judging.rest, limit, judging.judged)
        except OutOfWork:
            self._judging.put((state, limit), judging)
            raise
        tight = judging.inside | judging.rest | row & eos
        tight.flags.writeable = False
        if len(self._rows) >= max(1, MAX_ROW_BYTES // row.nbytes):
            self._rows.clear()
        self._rows[state, limit] = tight
        return tight

    def _inside(self, state: int, limit: int) -> tuple[Ints, int]:
        """Tokens that stay inside a text and certainly leave enough, and how many tokens are enough for all of them."""
        automaton = self._automaton
        texts, is_elsewhere = automaton.texts(state)
        found = self._begun.take((state, limit))
        num_done, worst, bits = found or (0, -1, np.zeros(automaton.vocabulary.num_words, np.int32))
        scratch = np.empty(automaton.vocabulary.num_words, np.int32)
        is_alone = len(texts) == 1 and not is_elsewhere
        for number in range(num_done, len(texts)):
            try:
                inside, most = self._inside_text(state, texts[number], limit, is_alone, scratch)
            except OutOfWork:
                self._begun.put((state, limit), (number, worst, bits))
                raise
            if most >= 0:
                bits |= inside
                worst = max(worst, most)
        return bits, worst

    def _inside_text(
        self, state: int, place: tuple[int, int, int, int], limit: int, is_alone: bool, scratch: Ints
    ) -> tuple[Ints, int]:
        """`_inside` of one text in which a state stands; below zero if it leaves too little. It may use `scratch`."""
        automaton, (configuration, text, sub, count) = self._automaton, place
        automaton.spend(0)
        table = automaton.network.texts[text]
        after = automaton.after_text(state, configuration)
        by_tokens = is_alone and table.is_closed
        least = self._completions.bound(after) if by_tokens else automaton.min_bytes(after)
        if least > limit:
            return scratch, -1
        if limit == NO_LIMIT:
            mask = self._masks.text_mask(table, sub, False, count)
            return mask.bits, mask.worst + least
        automaton.charge(WALK_WORK)
        if table.counted is not None:
            self._inside_counted(table, sub, count, limit - least, scratch)
            return scratch, limit
        most = automaton.walk_text(table.core, sub, 0, limit - least, False, scratch)[0]
        return scratch, most + least

    def _inside_counted(self, table: TextTable, sub: int, count: int, limit: int, bits: Ints) -> None:
        """Sets the bits of tokens that stay inside a counted text and certainly leave at most `limit` bytes to its end.

        Far from the bounds the language itself is asked. It has at least as many bytes as characters, each of
        which counts as a widest one.
        """
        counted, uncounted = table.counted, table.uncounted
        assert counted is not None and uncounted is not None
        if counted.is_free(count, self._automaton.vocabulary.max_token_len):
            self._automaton.walk_text(uncounted.core, sub, 0, limit // table.widest, False, bits)
        else:
            self._automaton.walk_text(table.core, sub, count, limit, False, bits)
