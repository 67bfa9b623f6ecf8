"""Foresight: what is expected to come next after a cursor, as drafts: forced text, and what was written here before.

Nothing here takes a token. It knows no model: how likely a guess is right, and what it may cost, its caller says.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from ..errors import ConstraintTooLarge
from .arguments import token_count
from .automaton_handover import retry_in_renewed
from .cursor import FINISHED, Cursor
from .guess import CERTAIN, Guess
from .jump import MAX_TAIL_TOKENS


@retry_in_renewed
def forced_bytes(cursor: Cursor) -> bytes:
    """The bytes that must come next whatever is chosen (the compressed edge from here); b"" if there are none."""
    if cursor.state == FINISHED:
        return b""
    return cursor.caches.drafts.run(cursor.state).data


@retry_in_renewed
def forced_tokens(cursor: Cursor) -> list[int]:
    """The forced bytes in canonical tokens, cut where later bytes could still merge; [] if there are none.

    Needs `Vocabulary.encode`; without it always [].
    """
    if cursor.state == FINISHED:
        return []
    return cursor.caches.drafts.draft(cursor.state, cursor.trail.last_tokens(MAX_TAIL_TOKENS))


@retry_in_renewed
def forced_tokens_within(cursor: Cursor, remaining: int) -> list[int]:
    """The beginning of `forced_tokens` that leaves enough of `remaining` tokens to complete the text.

    Canonical tokens may be more than the fewest that spell the same bytes.
    """
    remaining = token_count("remaining", remaining)
    if cursor.state == FINISHED or not cursor.caches.drafts.run(cursor.state).data:
        return []  # nearly always
    draft = forced_tokens(cursor)[: max(remaining, 0)]
    if cursor.repeats is None and cursor.caches.automaton.min_bytes(cursor.state) <= remaining:
        return draft  # every token of the draft takes at least one byte off
    return draft[: count_allowed(cursor, draft, remaining)]


def may_guess(cursor: Cursor, chances: Sequence[float], floor: float, *, looks: bool) -> bool:
    """False if `guess_within`, asked the same, certainly finds nothing: at the cost of a look-up or two."""
    return cursor.caches.guesses.may_find(cursor.state, cursor.habits, chances, floor, looks=looks)


@retry_in_renewed
def guess_within(
    cursor: Cursor,
    remaining: int,
    limit: int,
    chances: Sequence[float] = CERTAIN,
    floor: float = 0.0,
    *,
    looks: bool = True,
) -> Guess:
    """At most `limit` tokens that are likely to come next: what was taken here before, and forced text between.

    Every token is allowed, and after each the rest of `remaining` tokens suffices to complete the text. Unlike a
    draft it may be wrong also where the model writes canonical tokens: it must be verified. Forced text stops
    where it was last written in other tokens.

    Args:
        chances: how likely a token is right by kind of evidence (`guess`), in the order WORD, MARK, ONCE, OFTEN.
        floor: the guess ends before the first token up to which all are right less likely than that.
        looks: whether forced text is looked for also in states where it is not known yet, which costs far more.
    """
    remaining, limit = token_count("remaining", remaining), token_count("limit", limit)
    guesses = cursor.caches.guesses
    guess = guesses.find(cursor.state, cursor.habits, cursor.trail, remaining, limit, chances, floor, looks=looks)
    if cursor.repeats is None or not guess.token_ids:
        return guess
    return guess.until(count_allowed(cursor, guess.token_ids, remaining))  # what repeats no key


def count_allowed(cursor: Cursor, token_ids: Sequence[int], remaining: int) -> int:
    """How many of some tokens are allowed and leave enough of `remaining`; perhaps fewer, if there is no room."""
    ahead, index, remaining = cursor.fork(), 0, token_count("remaining", remaining)
    with suppress(ConstraintTooLarge):
        for token_id in token_ids:
            if not ahead.advance(token_id) or not ahead.is_within(remaining - index - 1):
                break
            index += 1
    return index


def remember(cursor: Cursor, count: int) -> None:
    """Makes habits of the last `count` tokens taken (since a fork), for this constraint and cohort."""
    cursor.habits.learn_last(cursor.trail, cursor.caches.automaton.start, token_count("count", count))
