"""The shortest text of an automaton, what of it is forced, and how it is spelt in tokens.

The shortest text follows the bound on bytes that every state carries, so it costs its length times a few hundred
steps; it is no longer than `MAX_LEN`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..automaton.automaton import Automaton
from ..constraint import Constraint

MAX_LEN = 20_000
MAX_RUNS = 200


@dataclass(frozen=True, slots=True)
class Shortest:
    """A text with the fewest bytes.

    Attributes:
        text: the bytes; None if it is longer than `MAX_LEN`, all figures are 0 then.
        runs: the forced runs on the way, in order.
        num_forced_bytes: how many bytes belong to them.
        num_tokens: tokens of its canonical spelling, 0 if the vocabulary has no tokenizer.
        num_drafted_tokens: how many of them jump-forward drafts, the others being sampled.
    """

    text: bytes | None
    runs: tuple[bytes, ...]
    num_forced_bytes: int
    num_tokens: int
    num_drafted_tokens: int


def shortest(constraint: Constraint) -> Shortest:
    """The shortest text of a constraint."""
    automaton = constraint.automaton
    if automaton.min_bytes(automaton.start) > MAX_LEN:
        return Shortest(None, (), 0, 0, 0)
    text, runs = _shortest_text(automaton)
    num_tokens, num_drafted = _tokens(constraint, text)
    return Shortest(text, tuple(runs[:MAX_RUNS]), sum(map(len, runs)), num_tokens, num_drafted)


def _shortest_text(automaton: Automaton) -> tuple[bytes, list[bytes]]:
    state, text, runs = automaton.start, bytearray(), []
    while not automaton.is_accepting(state):
        run, end = automaton.forced_run(state, MAX_LEN)
        if run:
            text += run
            runs.append(run)
            state = end
            continue
        byte, state = _nearest(automaton, state)
        text.append(byte)
    return bytes(text), runs


def _nearest(automaton: Automaton, state: int) -> tuple[int, int]:
    """The byte that leads nearest to an end, a letter or digit if there is one, and the state behind it."""
    best = (1 << 62, 0, 0, 0)
    for byte in automaton.live_bytes(state).nonzero()[0].tolist():
        target = automaton.advance_bytes(state, bytes([byte]))
        best = min(best, (automaton.min_bytes(target), 0 if chr(byte).isalnum() and byte < 128 else 1, byte, target))
    return best[2], best[3]


def _tokens(constraint: Constraint, text: bytes) -> tuple[int, int]:
    """Tokens of the text as a model would write it, and how many of them come from drafts."""
    encode = constraint.vocabulary.encode
    try:
        ids = encode(text.decode()) if encode is not None else []
    except UnicodeDecodeError:
        ids = []
    cursor = constraint.cursor()
    position = num_drafted = 0
    while position < len(ids):
        draft = cursor.draft()
        if draft and ids[position : position + len(draft)] == draft:
            num_drafted += len(draft)
        else:
            draft = ids[position : position + 1]
        if not all(cursor.advance(token_id) for token_id in draft):
            return 0, 0
        position += len(draft)
    return len(ids), num_drafted
