"""Jump-forward: forced bytes, and the tokens that spell them.

Where an automaton has one way only, the text is known without asking the model. Sampling it token by token is not
forced, though: of `name": ` every prefix that is a token is allowed. So the *draft* is what the model's own tokeniser
makes of the forced bytes, up to a boundary that no later byte can move:

    text so far   forced bytes        what may follow
    ... {         "name": "           A-Z a-z ...
                  |    |  |
                  safe |  not safe: some token goes on from the space or the quote into what follows
                       safe

A boundary inside the run is safe if no token of the vocabulary covers it and reaches beyond the run into a byte that
may follow, and if the tokeniser, asked with samples of what may follow, keeps it. `encode(decode(draft)) == draft`.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from .automaton import Automaton

MAX_RUN_LEN = 4096
MAX_TAIL_TOKENS = 8
MAX_KEPT = 4096


@dataclass(frozen=True, slots=True)
class Run:
    """Forced bytes from a state on.

    Attributes:
        data: the bytes.
        end: the state behind them.
    """

    data: bytes
    end: int


class Drafts:
    """Forced runs and drafts of one automaton, kept by state."""

    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton
        self._vocabulary = automaton.vocabulary
        self._lock = threading.Lock()
        self._runs: dict[int, Run] = {}
        self._safe: dict[int, tuple[bytes, frozenset[int]]] = {}

    def run(self, state: int) -> Run:
        """The forced bytes from a state, at most 4,096 of them."""
        found = self._runs.get(state)
        if found is None:
            data, end = self._automaton.forced_run(state, MAX_RUN_LEN)
            found = Run(data, end)
            with self._lock:
                if len(self._runs) >= MAX_KEPT:
                    self._runs.clear()
                    self._safe.clear()
                self._runs[state] = found
        return found

    def draft(self, state: int, tokens: list[int]) -> list[int]:
        """Canonical tokens of the forced bytes after the tokens so far; [] if none is certain."""
        if self._vocabulary.encode is None:
            return []
        run = self.run(state)
        if not run.data:
            return []
        safe = self._safe.get(state)
        if safe is None:
            safe = self._safe_boundaries(run)
            with self._lock:
                self._safe[state] = safe
        data, boundaries = safe
        if not boundaries:
            return []
        return self._tokenise(data, boundaries, tokens)

    def _tokenise(self, data: bytes, boundaries: frozenset[int], tokens: list[int]) -> list[int]:
        """Tokens of `data` behind the text so far, up to the last safe boundary."""
        spell = self._vocabulary.tokens
        tail = tokens[-MAX_TAIL_TOKENS:]
        while tail:  # only whole characters can be given to the tokeniser
            try:
                ids = self._encode(b"".join(spell[t] for t in tail) + data)
            except UnicodeDecodeError:
                tail = tail[1:]
                continue
            if ids[: len(tail)] == tail:
                kept = _cut(ids[len(tail) :], boundaries, spell)
                if kept:
                    return kept
            tail = tail[1:]
        ids = self._encode(data)
        return _cut(ids, boundaries, spell)

    def _encode(self, data: bytes) -> list[int]:
        encode = self._vocabulary.encode
        if encode is None:
            raise AssertionError("a draft needs Vocabulary.encode")
        return encode(data.decode())

    def _safe_boundaries(self, run: Run) -> tuple[bytes, frozenset[int]]:
        """The run cut to whole characters, and the positions in it at which a token may safely end."""
        data = run.data
        while data and not _is_text(data):
            data = data[:-1]
        if not data:
            return b"", frozenset()
        follow = [run.data[len(data)]] if len(data) < len(run.data) else None
        may_end = follow is None and self._automaton.is_accepting(run.end)
        if follow is None:
            follow = [byte for byte, live in enumerate(self._automaton.live_bytes(run.end).tolist()) if live]
        position = len(data)
        vocabulary = self._vocabulary
        if follow:
            # the shortest end of the run that no token continues
            while position > 0 and vocabulary.continues(data[position - 1 :], follow):
                position -= 1
        spell = vocabulary.tokens
        boundaries = _boundaries(self._encode(data), spell, data)
        safe = {p for p in boundaries if p <= position}
        for sample in self._samples(run, data, follow, may_end):
            safe &= _boundaries(self._encode(data + sample), spell, data + sample)
        return data, frozenset(safe)

    def _samples(self, run: Run, data: bytes, follow: list[int], may_end: bool) -> list[bytes]:
        """A few texts that may follow the run: one per possible next character class, as far as it is ASCII."""
        samples = []
        for byte in follow:
            if byte < 0x80:
                samples.append(bytes([byte]))
        return samples[:: max(1, len(samples) // 24)]


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _boundaries(ids: list[int], spell: tuple[bytes, ...], data: bytes) -> set[int]:
    """The positions at which tokens end; none if the tokens do not spell the data."""
    if b"".join(spell[t] for t in ids) != data:
        return set()
    ends, position = set(), 0
    for token_id in ids:
        position += len(spell[token_id])
        ends.add(position)
    return ends


def _cut(ids: list[int], boundaries: frozenset[int], spell: tuple[bytes, ...]) -> list[int]:
    """The longest beginning of ids that ends at one of the boundaries."""
    best, position = 0, 0
    for index, token_id in enumerate(ids):
        position += len(spell[token_id])
        if position in boundaries:
            best = index + 1
    return ids[:best]
