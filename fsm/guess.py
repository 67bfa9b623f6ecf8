"""Guess: tokens that are likely to come next, each with the kind of evidence for it.

A guess follows habits (`habits`) where there are any, and the canonical tokens of forced text (`jump`) where not, from
state to state, as far as all of it is likely enough. Every token of it is allowed, and leaves enough of the budget to
complete the text, except for keys and items that the text already has, which the states do not know. Its caller
verifies whether it is right.

Cost: some look-ups for each token, but tens of microseconds where forced text is met for the first time, since the
tokeniser has to spell it (`looks`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .automaton.automaton import Automaton
from .habits import FREE, Habits
from .jump import Drafts
from .keys.repeats import Repeats
from .masks.completions import Completions
from .moves import Moves
from .trail import Trail

# Kinds of evidence: forced text with letters or digits in it and without, a habit seen once and more often.
WORD, MARK, ONCE, OFTEN = KINDS = range(4)
CERTAIN = (1.0,) * len(KINDS)
MAX_UNSURE = 4  # tokens that were seen once only, in one guess
TAIL_LEN = 8  # tokens of the context that forced text is spelt after
NO_MARKS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" + bytes(range(0x80, 0x100))


@dataclass(frozen=True, slots=True)
class Guess:
    """Tokens that are likely to come next.

    Attributes:
        evidence: of what kind it is for each token: one of KINDS; numbers from len(KINDS) on are the caller's.
    """

    token_ids: Sequence[int] = ()
    evidence: Sequence[int] = ()

    def until(self, count: int) -> Guess:
        """Its first tokens."""
        return Guess(self.token_ids[:count], self.evidence[:count])


NOTHING = Guess()


class Guesses:
    """What is likely to come next at states of one automaton. `chances` and `floor`: see `foresight.guess_within`."""

    __slots__ = ("_automaton", "_completions", "_drafts", "_moves", "_repeats")

    def __init__(
        self,
        automaton: Automaton,
        completions: Completions,
        moves: Moves,
        repeats: Repeats | None,
        drafts: Drafts,
    ) -> None:
        self._automaton = automaton
        self._completions = completions
        self._moves = moves
        self._repeats = repeats
        self._drafts = drafts

    def may_find(self, state: int, habits: Habits, chances: Sequence[float], floor: float, *, looks: bool) -> bool:
        """False if `find`, asked the same, certainly finds nothing: at the cost of a look-up or two."""
        count = habits.count(state)
        if count > 0:
            return chances[OFTEN if count > 1 else ONCE] >= floor
        if count == FREE or not (looks or self._drafts.is_known(state)):
            return False
        return max(chances[WORD], chances[MARK]) >= floor

    def find(
        self,
        state: int,
        habits: Habits,
        trail: Trail,
        remaining: int,
        limit: int,
        chances: Sequence[float],
        floor: float,
        *,
        looks: bool,
    ) -> Guess:
        """At most `limit` tokens that are likely to come next, of the `remaining` ones that complete the text.

        Args:
            habits: those of the cursor's cohort.
            trail: what was taken up to the state.
        """
        drafts, tokens = self._drafts, self._automaton.vocabulary.tokens
        is_within = self._completions.is_within
        guess: list[int] = []
        evidence: list[int] = []
        chance, forced_chance = 1.0, max(chances[WORD], chances[MARK])
        limit, num_unsure = min(limit, remaining), 0
        while len(guess) < limit and state > 0:
            habit, is_sure = habits.guess(state)
            found: Sequence[int]
            if habit >= 0:
                num_unsure += not is_sure
                if num_unsure > MAX_UNSURE or chance * chances[OFTEN if is_sure else ONCE] < floor:
                    break
                found = (habit,)
            elif chance * forced_chance < floor or habits.count(state) == FREE:
                break
            else:
                if not looks and not drafts.is_known(state):
                    break
                if not drafts.run(state).data:
                    break
                found = drafts.likely(state, [*trail.last_tokens(TAIL_LEN), *guess][-TAIL_LEN:])
            if not found:
                break
            for token_id in found[: limit - len(guess)]:
                if habit >= 0:
                    kind = OFTEN if is_sure else ONCE
                elif habits.contradicts(state, token_id):
                    return Guess(guess, evidence)
                else:
                    kind = MARK if tokens[token_id].translate(None, NO_MARKS) == tokens[token_id] else WORD
                chance *= chances[kind]
                if chance < floor:
                    return Guess(guess, evidence)
                state = self._after(state, token_id)
                if not state or not is_within(state, remaining - len(guess) - 1):
                    return Guess(guess, evidence)
                guess.append(token_id)
                evidence.append(kind)
        return Guess(guess, evidence) if guess else NOTHING

    def _after(self, state: int, token_id: int) -> int:
        """The state after a token, whatever keys were written before; 0 if it is not allowed, or ends the text."""
        moves = self._moves
        steps = moves.steps(state)
        known = steps.get(token_id)
        if known is None:
            known = moves.take(steps, token_id)
        if known is not None:
            return known.state
        target = moves.step(state, token_id)
        if target >= 0 or token_id in self._automaton.vocabulary.eos_ids:
            return max(target, 0)
        if self._repeats is not None:  # a key ends: never kept, since it has to be remembered
            return self._automaton.advance(state, token_id)
        target = self._automaton.advance(state, token_id)
        if target > 0:
            moves.learn(state, token_id, target)
        return target
