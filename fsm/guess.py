"""Guess: tokens that are likely to come next, each with the ground on which it was guessed.

A guess follows habits (`habits`) where there are any, and the canonical tokens of forced text (`jump`) where not, from
state to state, as far as all of it is likely enough. Every token of it is allowed, and leaves enough of the budget to
complete the text; whether it is right is for others to find out.

Cost: some look-ups for each token, but tens of microseconds where forced text is met for the first time, since the
tokeniser has to spell it (`looks`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .habits import FREE

if TYPE_CHECKING:
    from .cursor import Cursor

# Grounds: forced text with letters or digits in it and without, a habit seen once and more often.
WORD, MARK, ONCE, OFTEN = range(4)
CERTAIN = (1.0, 1.0, 1.0, 1.0)
MAX_UNSURE = 4  # tokens that were seen once only, in one guess
TAIL_LEN = 8  # tokens of the context that forced text is spelt behind
NO_MARKS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" + bytes(range(0x80, 0x100))


@dataclass(frozen=True, slots=True)
class Guess:
    """Tokens that are likely to come next.

    Attributes:
        grounds: why each was guessed.
        has_looked: whether forced text was looked for for the first time, or found again.
    """

    token_ids: Sequence[int] = ()
    grounds: Sequence[int] = ()
    has_looked: bool = False


NOTHING = Guess()


def guess_from(
    cursor: Cursor, remaining: int, limit: int, chances: Sequence[float], floor: float, *, looks: bool
) -> Guess:
    """See `Cursor.guess_within`."""
    constraint, state = cursor.constraint, cursor.state
    habits, drafts, tokens = constraint.habits, constraint.drafts, constraint.vocabulary.tokens
    is_within = constraint.liveness.is_within
    guess: list[int] = []
    grounds: list[int] = []
    chance, forced_chance = 1.0, max(chances[WORD], chances[MARK])
    has_looked = False
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
            is_new = not drafts.is_known(state)
            if is_new and not looks:
                break
            if not drafts.run(state).data:
                has_looked = has_looked or is_new
                break
            has_looked = True
            found = drafts.likely(state, [*cursor.last_tokens(TAIL_LEN), *guess][-TAIL_LEN:])
        if not found:
            break
        for token_id in found[: limit - len(guess)]:
            if habit >= 0:
                ground = OFTEN if is_sure else ONCE
            elif habits.contradicts(state, token_id):
                return Guess(guess, grounds, has_looked)
            else:
                ground = MARK if tokens[token_id].translate(None, NO_MARKS) == tokens[token_id] else WORD
            chance *= chances[ground]
            if chance < floor:
                return Guess(guess, grounds, has_looked)
            state = cursor.after(state, token_id)
            if state <= 0 or not is_within(state, remaining - len(guess) - 1):
                return Guess(guess, grounds, has_looked)
            guess.append(token_id)
            grounds.append(ground)
    return Guess(guess, grounds, has_looked) if guess or has_looked else NOTHING
