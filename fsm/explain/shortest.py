"""The shortest text of an automaton, what of it is forced, and how it is spelt in tokens.

The shortest text follows the bound on bytes that every state carries, so it costs its length times a few hundred
steps; it is no longer than `MAX_LEN`. Where keys or items must differ that no state knows (`keys`), every byte is the
nearest that repeats none, so the text is a short one, and not always the shortest.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..automaton.automaton import Automaton
from ..constraint import Constraint
from ..foresight import forced_tokens
from ..keys.repeats import Repeats
from ..keys.written import Written, in_string

MAX_LEN = 20_000
MAX_RUNS = 200


@dataclass(frozen=True, slots=True)
class Shortest:
    """A text with the fewest bytes, or nearly.

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
    text, runs = _shortest_text(constraint)
    if len(text) > MAX_LEN:
        return Shortest(None, (), 0, 0, 0)
    num_tokens, num_drafted = _tokens(constraint, text)
    return Shortest(text, tuple(runs[:MAX_RUNS]), sum(map(len, runs)), num_tokens, num_drafted)


def _shortest_text(constraint: Constraint) -> tuple[bytes, list[bytes]]:
    automaton, repeats = constraint.automaton, constraint.caches.repeats
    state, text, runs = automaton.start, b"", []
    written: Written | None = None
    while not automaton.is_accepting(state) and len(text) <= MAX_LEN:
        run, end = automaton.forced_run(state, MAX_LEN)
        step, state, written = _step(repeats, written, state, text, [(run, end)] if run else _nearest(automaton, state))
        text += step
        if run:
            runs.append(run)
    return text, runs


def _step(
    repeats: Repeats | None, written: Written | None, state: int, text: bytes, ways: list[tuple[bytes, int]]
) -> tuple[bytes, int, Written | None]:
    """The first of some ways on that repeats nothing, with the state and the memory after it."""
    if repeats is None:
        return *ways[0], None
    for step, _ in ways:
        after, remembered = repeats.read(written, state, step, lambda: in_string(text, is_all=True) or b"")
        if after:
            return step, after, remembered
    raise AssertionError("a text that can be completed has a way on")


def _nearest(automaton: Automaton, state: int) -> list[tuple[bytes, int]]:
    """The bytes that may follow, the nearest to an end first, letters and digits first, and the states after them."""
    ways = []
    for byte in automaton.live_bytes(state).nonzero()[0].tolist():
        target = automaton.advance_bytes(state, bytes([byte]))
        is_word = chr(byte).isalnum() and byte < 128
        ways.append((automaton.min_bytes(target), not is_word, bytes([byte]), target))
    return [(step, target) for _, _, step, target in sorted(ways)]


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
        draft = forced_tokens(cursor)
        if draft and ids[position : position + len(draft)] == draft:
            num_drafted += len(draft)
        else:
            draft = ids[position : position + 1]
        if not all(cursor.advance(token_id) for token_id in draft):
            return 0, 0
        position += len(draft)
    return len(ids), num_drafted
