"""Masks: which tokens may come next in a state, as a row of bits.

A token may follow a state if it may follow one of its configurations, so a row is an OR over configurations (those in
the same state of a text are one, with all that may follow the text as one state):

    inside a text automaton     tokens that stay inside: depends on (automaton, text state) alone, hence known once
                                for all constraints of the process; plus tokens that leave it: a walk below the
                                few trie nodes at which the text may end
    anywhere else               a walk through the trie, a few hundred nodes, since literals are narrow

So a wide row (inside a JSON string: 128,000 of 131,000 tokens) is one copy and a short walk, never a walk through
the vocabulary. Long bounded texts share rows as well: states that behave alike for as many characters as the
longest token has (`alike_states`) have the same tokens inside.

Rows are kept in a `MaskStore`, where equal rows are one array. A row that takes long can be made in parts, so that the
requests of the same batch do not wait for it.

Invariant: a row from the store equals a fresh one, bit for bit. Rows are read-only arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from ...errors import ConstraintTooLarge
from ..automaton.automaton import END, NO_LIMIT, Automaton
from ..automaton.limits import ENDLESS, LAST_WORK, TOO_MUCH_WORK, OutOfWork
from ..text.alphabet import Ints
from ..text.counted import Counted
from ..text.text_table import TextTable
from .mask_store import FEW_TEXTS, MaskStore, Row, TextMask, TextShelf
from .unfinished import Unfinished

NOTHING = np.empty(0, np.int32)
MAX_CHARACTER_LEN = 5  # bytes that may be missing of a character (or of an escape) that has begun
TEXT_WORK = 400  # what one of many texts is charged: about 30 µs
WALK_WORK = 8_000  # what a walk through the vocabulary in a text automaton is charged: 1 to 5 ms
MAX_ATTEMPTS = 500  # of one walk

Result = TypeVar("Result")


class Masks:
    """The rows of one automaton."""

    def __init__(self, automaton: Automaton, store: MaskStore) -> None:
        self.automaton = automaton
        self.store = store
        self.rows = store.shelf_of(self)
        self._shelves: dict[TextTable, TextShelf] = {}
        self._begun: Unfinished[int, Generator[None, None, Row]] = Unfinished()

    def row(self, state: int) -> Row:
        """The row of a state, from the store if it is known.

        Raises:
            OutOfWork: this thread's allowance is used up; the next call goes on where this one stopped.
        """
        found = self.rows.get(state) or self._at_once(state)
        if found is None:
            making = self._continued(state)
            found = self._some_of(making)
            while found is None:
                try:
                    self.automaton.spend(0)
                except OutOfWork:
                    self._begun.put(state, making)
                    raise
                found = self._some_of(making)
            self.store.keep(self.rows, state, found)
        found.is_recent = True
        return found

    def make(self, state: int, work: int) -> bool:
        """Makes a row, or a part of it if that takes more than `work` (`Automaton.allow`). Whether it is known now.

        Raises:
            ConstraintTooLarge: it was asked for too often, or the automaton has grown too large.
        """
        self.automaton.allow(work)
        try:
            if self._at_once(state) is not None:
                return True
            making = self._continued(state)
            found = self._some_of(making)
        finally:
            self.automaton.allow(ENDLESS)
        if found is None:
            self._begun.put(state, making)
            return False
        self.store.keep(self.rows, state, found)
        return True

    def _some_of(self, making: Generator[None, None, Row]) -> Row | None:
        """Goes on making a row until the allowance is used up; the row once it is made."""
        try:
            next(making)
        except StopIteration as end:
            row: Row = end.value
            return row
        return None

    def _at_once(self, state: int) -> Row | None:
        """Makes and keeps the row of a state the ordinary way; None if that is not possible, or not allowed.

        The same as `_steps` for those with few texts, without memory of its own.
        """
        if state in self._begun:
            return None
        automaton, store = self.automaton, self.store
        bits = np.empty(store.vocabulary.num_words, np.int32)
        try:
            cost, num_texts, rest, texts = automaton.begin_row(state, FEW_TEXTS, bits)
            if not num_texts:
                return store.kept(self.rows, state, Row(bits, max(cost - 1, 0)))
            if not texts:
                return None
            masks: list[tuple[TextMask, int]] = []
            worst = 0
            for text, sub, count, after, cost in texts:
                mask = self.text_mask(automaton.network.texts[text], sub, after > END, count)
                masks.append((mask, after))
                worst = max(worst, mask.worst + cost)
            mask, after = masks[0]
            exits, starts = (mask.exits, mask.starts) if after > END else (None, None)
            cost = automaton.row_in_text(state, after, rest, mask.in_rest, mask.bits, exits, starts, bits)
            worst = max(worst, cost - 1)
            for mask, after in masks[1:]:
                np.bitwise_or(bits, mask.bits, out=bits)
                worst = max(worst, self._leave(mask, after, bits))
            return store.kept(self.rows, state, Row(bits, worst))
        except OutOfWork:
            return None  # what was found out makes the other way shorter

    def _leave(self, mask: TextMask, after: int, bits: Ints) -> int:
        """Sets the bits of the tokens that leave a text for the state `after`; the greatest cost then, -1 without."""
        if mask.exits is None or mask.starts is None or not self.automaton.has_bytes(after):
            return -1
        return self.automaton.walk_exits(mask.in_rest, after, mask.exits, mask.starts, bits) - 1

    def outside(self, state: int) -> Ints:
        """The tokens that leave a text in which the state stands, or go on elsewhere, but for EOS."""
        bits = np.zeros(self.store.vocabulary.num_words, np.int32)
        texts, is_elsewhere = self.automaton.texts(state)
        for text in texts:
            self._leave(*self._text_at(state, *text), bits)
        if is_elsewhere:
            self.automaton.walk(self.automaton.without_texts(state), bits)
        return bits

    def _text_at(self, state: int, configuration: int, text: int, sub: int, count: int) -> tuple[TextMask, int]:
        """The mask of one of `Automaton.texts`, and the state once that has ended."""
        after = self.automaton.after_text(state, configuration)
        table = self.automaton.network.texts[text]
        return self.text_mask(table, sub, self.automaton.has_bytes(after), count), after

    def _continued(self, state: int) -> Generator[None, None, Row]:
        """The making of a row, from where it stopped."""
        return self._begun.take(state) or self._steps(state)

    def fresh_row(self, state: int) -> Row:
        """The row of a state, made anew."""
        making = self._steps(state)
        while (row := self._some_of(making)) is None:
            pass
        return row

    def _steps(self, state: int) -> Generator[None, None, Row]:
        """Makes the row of a state; stops wherever the allowance is used up."""
        automaton, vocabulary = self.automaton, self.store.vocabulary
        bits = np.zeros(vocabulary.num_words, np.int32)
        worst = 0
        texts, is_elsewhere = automaton.texts(state)
        for number, (configuration, text, sub, count) in enumerate(texts, 1):
            after, table = automaton.after_text(state, configuration), automaton.network.texts[text]
            making = partial(self.text_mask, table, sub, automaton.has_bytes(after), count)
            mask = yield from self._patiently(making)
            worst = max(worst, mask.worst + automaton.min_bytes(after))
            np.bitwise_or(bits, mask.bits, out=bits)
            if automaton.has_bytes(after):
                leaving, cost = yield from self._patiently(partial(self._leaving, mask, after))
                if cost:
                    np.bitwise_or(bits, leaving, out=bits)
                worst = max(worst, cost - 1)
            if number >= FEW_TEXTS and not automaton.charge(TEXT_WORK):
                yield
        if is_elsewhere:
            rest = automaton.without_texts(state) if texts else state
            worst = max(worst, (yield from self._patiently(lambda: automaton.walk(rest, bits))) - 1)
        if automaton.is_accepting(state):
            np.bitwise_or(bits, vocabulary.eos_words, out=bits)
        return Row(bits, worst)

    def _patiently(self, call: Callable[[], Result]) -> Generator[None, None, Result]:
        """What `call` returns, called again whenever more work is allowed; it may be called any number of times."""
        automaton = self.automaton
        num_forgotten = automaton.num_forgotten
        for _ in range(MAX_ATTEMPTS):
            try:
                return call()
            except OutOfWork:
                yield
            if automaton.num_forgotten != num_forgotten:  # it may begin anew for ever, as what it found is forgotten
                automaton.allow(LAST_WORK)
                with suppress(OutOfWork):
                    return call()
                break
        raise ConstraintTooLarge(TOO_MUCH_WORK)

    def _leaving(self, mask: TextMask, after: int) -> tuple[Ints, int]:
        """Tokens that leave a text for the state `after` (nothing if none does), and 1 + the greatest cost then."""
        if mask.exits is None or mask.starts is None:
            raise AssertionError("the mask has no exits")
        bits = np.zeros(self.store.vocabulary.num_words, np.int32)
        cost = self.automaton.walk_exits(mask.in_rest, after, mask.exits, mask.starts, bits)
        return bits if cost else NOTHING, cost

    def text_mask(self, table: TextTable, sub: int, with_exits: bool, count: int = 0) -> TextMask:
        """The mask inside a text automaton in byte state `sub`, after `count` characters if they are counted."""
        if table.counted is not None:
            return self._counted_mask(table, table.counted, sub, with_exits, count)
        shelf = self._shelves.get(table) or self._shelf_of(table)
        found = shelf.masks.get(sub)
        if found is None or (with_exits and found.exits is None):
            stand_in = self.store.stand_in(table, shelf, sub)
            found = self._make_text_mask(table, shelf, stand_in, with_exits)
            if stand_in != sub:  # which goes on alike for a while, but may be nearer to the end or further off
                found = replace(found, worst=table.max_bytes + MAX_CHARACTER_LEN)
                self.store.keep(shelf.masks, sub, found)
        found.is_recent = True
        return found

    def _shelf_of(self, table: TextTable) -> TextShelf:
        shelf = self._shelves[table] = self.store.text_shelf(table)
        return shelf

    def _counted_mask(self, table: TextTable, counted: Counted, sub: int, with_exits: bool, count: int) -> TextMask:
        """Far from the bounds that of the language itself; far below the least length the same for all counts."""
        vocabulary = self.store.vocabulary
        longest = vocabulary.max_token_len
        worst = counted.most_left(count) * table.widest + MAX_CHARACTER_LEN
        if table.uncounted is not None and counted.is_free(count, longest):
            return replace(self.text_mask(table.uncounted, sub, with_exits), worst=worst)
        if counted.is_far_below(count, longest) and counted.is_far_below(0, longest):
            count = 0
        shelf = self._shelves.get(table) or self._shelf_of(table)
        found = shelf.counted.get((sub, count))
        if found is None or (with_exits and found.exits is None):
            self.automaton.spend(WALK_WORK)
            bits = np.empty(vocabulary.num_words, np.int32)
            _, in_rest, exits, starts = self.automaton.walk_text(table.core, sub, count, NO_LIMIT, with_exits, bits)
            found = TextMask(bits, worst, exits, starts, in_rest)
            self.store.keep(shelf.counted, (sub, count), found)
        found.is_recent = True
        return replace(found, worst=worst)

    def _make_text_mask(self, table: TextTable, shelf: TextShelf, sub: int, with_exits: bool) -> TextMask:
        known = shelf.masks.get(sub)
        if known is not None and (known.exits is not None or not with_exits):
            return known
        automaton, vocabulary = self.automaton, self.store.vocabulary
        automaton.spend(WALK_WORK)
        bits = np.empty(vocabulary.num_words, np.int32)
        worst, in_rest, exits, starts = automaton.walk_text(table.core, sub, 0, NO_LIMIT, with_exits, bits)
        mask = TextMask(bits, worst, exits, starts, in_rest)
        self.store.keep(shelf.masks, sub, mask)
        return mask
