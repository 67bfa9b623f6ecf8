"""Cursor: where one request stands in its constraint, and what may come next.

It is the automaton's state and a trail of the states before it, one per token. Rolling back walks along the trail,
forking shares it. With it go the keys written so far that the automaton cannot know (`keys/written.py`), mostly none.

    cursor = constraint.cursor()
    while not cursor.is_finished:
        token_id = sample(logits, mask=cursor.row())
        cursor.advance(token_id)

A cursor never changes the text: it says what may come next. It knows no logits, no model and no prompt.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from ..errors import ConstraintTooLarge
from .arguments import token_count, whole_number
from .automaton.automaton import END
from .automaton.limits import ENDLESS, LAST_WORK, TOO_MUCH_WORK, OutOfWork
from .automaton_handover import EARLY, NEVER_HANDED_OVER, Renewable, hand_over_early, retry_in_renewed
from .columns import NEVER
from .keys.written import Written, in_string, since
from .moves import Steps
from .text.alphabet import Ints
from .trail import Trail

FINISHED = -1  # as a cursor's state: EOS was taken
MAX_ATTEMPTS = 200  # to make one row within a budget; then each of some more is given LAST_WORK
MAX_LAST_ATTEMPTS = 50


class Cursor:
    """The place of one request in its constraint. Not thread-safe: one request, one thread at a time.

    Attributes:
        constraint: the one that it is in; another one of the same texts after a handover.
        caches: of the constraint; its states belong to them.
        cohort: the name of the requests that share habits with this one.
        habits: what its cohort wrote before, and learns from it (`foresight.remember`).
        repeats: what is known of keys that must differ; None: there are none.
        trail: the tokens taken, and the states after them.
        patience: when it may be handed over (see `automaton_handover`).
        last_handover: the number of tokens at the last handover, and whether it was to a constraint of its own.
    """

    __slots__ = (
        "_is_plain", "_masks", "_moves", "_num_attempts", "_rows", "_size", "_steps", "_written",
        "caches", "cohort", "constraint", "habits", "last_handover", "patience", "repeats", "trail",
    )  # fmt: skip

    def __init__(self, constraint: Renewable, cohort: str, trail: Trail, written: Written | None) -> None:
        self.constraint = constraint
        self.caches = caches = constraint.caches
        self.patience = EARLY
        self.last_handover = NEVER_HANDED_OVER
        self.cohort = cohort
        self.habits = caches.cohorts.habits_of(cohort)
        self._num_attempts = 0
        self._masks = caches.masks
        self._rows = caches.masks.rows
        # what advance needs, bound once: it is called for every token
        self._is_plain = caches.vocabulary.is_plain
        self._size = caches.vocabulary.size
        self.repeats = caches.repeats
        self.trail = trail
        self._take_up(written)
        self._steps = self._moves.steps(trail.last_state(caches.automaton.start))

    @classmethod
    def first(cls, constraint: Renewable, cohort: str = "") -> Self:
        """A cursor at the beginning of the text, in this constraint itself, however full it is."""
        repeats = constraint.caches.repeats
        return cls(constraint, cohort, Trail(), None if repeats is None else repeats.at_first)

    def _take_up(self, written: Written | None) -> None:
        """Sets the memory of keys, and the moves that change nothing in it; its caller sets the state afterwards.

        None, nearly always: no key that the automaton does not know of has been written.
        """
        self._written = written
        moves = self.caches.moves
        if self.repeats is not None and written is not None and not written.is_empty:
            moves = self.caches.key_moves
        self._moves = moves

    # ---------------------------------------------------------------- where it stands

    @property
    def is_accepting(self) -> bool:
        """The text so far is complete: EOS is allowed now (also after EOS was taken)."""
        return self.state == FINISHED or self.caches.automaton.is_accepting(self.state)

    @property
    def is_finished(self) -> bool:
        """EOS was taken; nothing may follow."""
        return self.state == FINISHED

    @property
    def must_stop(self) -> bool:
        """The text is complete and cannot go on: nothing but EOS is allowed (also after EOS was taken)."""
        return self.state <= END  # or FINISHED; no cursor is ever in the dead state

    @property
    def num_consumed(self) -> int:
        """Number of tokens taken, EOS included."""
        return len(self.trail)

    @property
    def state(self) -> int:
        """The automaton's state, -1 once finished. Equal states have equal futures, but for keys not to be repeated."""
        return self._steps.state

    @retry_in_renewed
    def min_tokens_to_accept(self) -> int:
        """A number of tokens that suffices to reach acceptance from here; 0 if accepting."""
        return 0 if self.state == FINISHED else self.caches.bounds.bound(self.state, self._written, self._typed)

    @retry_in_renewed
    def is_within(self, limit: int) -> bool:
        """Whether `limit >= min_tokens_to_accept()`, which is cheaper if there are many."""
        limit = token_count("limit", limit)
        if self.state == FINISHED:
            return True
        return self.caches.bounds.is_within(self.state, self._written, self._typed, limit)

    # ---------------------------------------------------------------- what may come next

    def row(self) -> Ints:
        """int32[num_words], read-only: token t may follow iff bit t & 31 of word t >> 5 is set. EOS iff accepting.

        All zero once finished. The array is shared and stays valid; states with the same future share it.
        """
        row = self._rows.get(self._steps.state)
        if row is not None:  # nearly always
            row.is_recent = True
            if self._written is None:
                return row.bits
            try:
                return self._unrepeated(self._written, row.bits)
            except ConstraintTooLarge:
                pass  # there may be room elsewhere
        return self._other_row()

    @retry_in_renewed
    def _other_row(self) -> Ints:
        """A row that is not known, or from which something is left out."""
        if self.state == FINISHED:
            return np.zeros(self.caches.vocabulary.num_words, np.int32)
        if self._rows.get(self.state) is None:
            hand_over_early(self, NEVER)
        bits = self._masks.row(self.state).bits
        return bits if self._written is None else self._unrepeated(self._written, bits)

    def row_within(self, remaining: int) -> Ints:
        """As `row`, but only tokens after which `remaining - 1` further tokens suffice.

        Shared and read-only like `row()`, or an array of the caller's own.
        As long as `min_tokens_to_accept() <= remaining` holds before, it is not empty and it holds after any allowed
        token with `remaining - 1`: so a text begun with enough budget always ends complete.
        """
        remaining = token_count("remaining", remaining)
        row = self._rows.get(self._steps.state)
        if row is not None and self._written is None and self.caches.bounds.is_free(row, None, remaining):
            row.is_recent = True  # nearly always: the budget is far, and the row is known
            return row.bits
        return self._other_row_within(remaining)

    @retry_in_renewed
    def _other_row_within(self, remaining: int) -> Ints:
        """A row that is not known, or from which something is left out, within a budget."""
        if self.state == FINISHED:
            return np.zeros(self.caches.vocabulary.num_words, np.int32)
        row = self._rows.get(self._steps.state)
        if row is None or row.worst >= remaining:
            hand_over_early(self, remaining)
        return self.caches.bounds.row(self.state, self._written, self._typed, remaining)

    def row_soon(self, remaining: int, work: int) -> Ints | None:
        """`row_within`, or None if that takes more than `work` to find out (`Automaton.allow`): ask again."""
        remaining, work = token_count("remaining", remaining), whole_number("work", work, "an amount of work")
        row = self._rows.get(self._steps.state)
        if row is not None and self._written is None and self.caches.bounds.is_free(row, None, remaining):
            row.is_recent = True  # nearly always
            return row.bits
        if row is None and self.state != FINISHED and not self._is_made(remaining, work):
            return None
        self.caches.automaton.allow(work if self._num_attempts < MAX_ATTEMPTS else max(work, LAST_WORK))
        try:
            bits = self.row_within(remaining)
        except OutOfWork:  # what was found out is kept
            if self._num_attempts >= MAX_ATTEMPTS + MAX_LAST_ATTEMPTS:
                error = ConstraintTooLarge(TOO_MUCH_WORK)
                raise self.constraint.placed(error, self.trail.last_tokens(self.num_consumed)) from None
            self._num_attempts += 1
            return None
        finally:
            self.caches.automaton.allow(ENDLESS)  # another one after a handover
        self._num_attempts = 0
        return bits

    @retry_in_renewed
    def _is_made(self, remaining: int, work: int) -> bool:
        hand_over_early(self, remaining)
        return self._masks.make(self.state, work)

    def _unrepeated(self, written: Written, bits: Ints) -> Ints:
        """The tokens of a row that repeat no key."""
        assert self.repeats is not None
        return self.repeats.row(written, self.state, bits, self._typed)

    def _typed(self) -> bytes:
        """What was written since the last quote that opened a string, the cursor being in that string."""
        tokens, count = self.caches.vocabulary.tokens, 4
        while True:
            tail = b"".join([tokens[token_id] for token_id in self.trail.last_tokens(count)])
            typed = in_string(tail, count >= len(self.trail))
            if typed is not None:
                return typed
            count *= 4

    # ---------------------------------------------------------------- moving

    def advance(self, token_id: int) -> bool:
        """Takes a token. False if it is not allowed; the cursor then has not moved."""
        if type(token_id) is not int:
            token_id = whole_number("token_id", token_id, "the id of a token")
        steps = self._steps
        after = steps.get(token_id)
        if after is None:
            if not 0 <= token_id < self._size:
                return False
            if steps.is_free and self._is_plain[token_id]:
                after = steps
            else:
                after = self._taken(steps, token_id)
                if after is None:
                    return False
        trail = self.trail  # another one after a handover
        trail.states.append(after.state)
        trail.tokens.append(token_id)
        self._steps = after
        return True

    def _taken(self, steps: Steps, token_id: int) -> Steps | None:
        """Where a step leads that is not cached; None if it is not allowed."""
        try:
            after = self._moves.take(steps, token_id)
        except ConstraintTooLarge:
            after = None  # there may be room elsewhere
        if after is None:
            target = self._found(token_id)
            after = self._moves.steps(target) if target else None
        return after

    @retry_in_renewed
    def _found(self, token_id: int) -> int:
        """The state after a token where the state alone does not determine it; 0 if it is refused."""
        state = self.state
        if state == FINISHED:
            return 0
        if token_id not in self._steps:
            target = self._moves.step(state, token_id)
            if target > 0:
                return target
            if token_id in self.caches.vocabulary.eos_ids:
                return FINISHED if self.is_accepting else 0
            if target == 0:
                return 0
        if self.repeats is None:
            return self._helped(state, token_id)
        num_tokens = len(self.trail) + 1
        target, written, _ = self.repeats.follow(self._written, state, token_id, num_tokens, self._typed)
        if written is not self._written:
            self._moves.learn_that_it_depends(state, token_id)
            self._take_up(written)
        return target

    def _helped(self, state: int, token_id: int) -> int:
        """The state after a token for which the automaton has to grow."""
        target = self.caches.automaton.advance(state, token_id)
        if target > 0:
            self.caches.moves.learn(state, token_id, target)
        return target

    def rollback(self, num_tokens: int) -> None:
        """Takes back the last `num_tokens` tokens (EOS counts as one). O(num_tokens). ValueError: there are fewer."""
        count = token_count("num_tokens", num_tokens)
        if not 0 <= count <= len(self.trail):
            raise ValueError(f"cannot take back {count} of {len(self.trail)} tokens")
        if count:
            self.trail.cut(count)
            if self._written is not None:
                self._take_up(since(self._written, len(self.trail)))
            self._steps = self._moves.steps(self.trail.last_state(self.caches.automaton.start))

    def fork(self) -> Cursor:
        """An independent cursor at the same place. O(1): what was taken so far is shared."""
        other = Cursor(self.constraint, self.cohort, self.trail.fork(), self._written)
        other.patience, other.last_handover = self.patience, self.last_handover
        return other

    __copy__ = fork

    def become(self, other: Cursor) -> None:
        """Takes over the place of another cursor, which must not be used any more."""
        for name in self.__slots__:
            setattr(self, name, getattr(other, name))
