"""Jump-forward: forced bytes, and the tokens that spell them.

Where an automaton has only one way on, the text is known without asking the model. Its tokens are not, though: of
`name": ` every prefix that is a token is allowed. So the *draft* is the model's own tokenisation of the forced bytes,
as far as that is the same **whatever comes after them**.

**Proof, tokenisers that do not cut a text up beforehand** (sentencepiece; BPE without a splitting pattern). They are
local (`token_pairs`): in what they write for context + forced + continuation any two neighbours are a possible pair.
So all that they can write over the forced bytes is a path through this lattice, from its beginning to its end:

    forced   n a m e " :       an edge is a token whose bytes stand there; an edge leads on to those that it makes a
             0 1 2 3 4 5 6     possible pair with, or ends at 6, or at a place from where some token reaches beyond 6
             `-------^ `-^     into a byte that may follow (which may be anything, and is held to fit everything)
             name      :"...

A path that cannot reach the end is no path. As long as all paths from the last token of the context on begin with the
same edge, every continuation begins with that token: it is drafted. If no edge makes a possible pair with the context's
last token, the context is not what the tokeniser would write; then the beginning is taken as a fresh one.

**Proof, tokenisers with a splitting pattern** (byte-level BPE as of GPT-2 and later: `Vocabulary.pieces`). They cut
the text into pieces, from left to right, and each piece for itself into tokens. Where a piece ends is decided by the
run of like characters it consists of and the few characters after it (one for the end of a run and `\\s+(?!\\S)`, three
for `'ll`), and by white space only together with what follows it. So an end of a piece in context + forced stands
whatever follows, if at least LOOK_AHEAD forced characters follow it, not all of them white space, and if no token
reaches from there beyond the forced bytes. The tokens up to there are drafted.

In both cases the context is the last MAX_TAIL_TOKENS tokens, or fewer if the tokeniser writes them otherwise.
`encode(decode(draft)) == draft`. Finding the lattice costs some tens of calls of the tokeniser for each state, once.
"""

from __future__ import annotations

import codecs
import threading
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .automaton.automaton import Automaton
from .bounded_map import BoundedMap
from .vocabulary.vocabulary import SPECIAL, Vocabulary

MAX_RUN_LEN = 4096
MAX_TAIL_TOKENS = 8
MAX_KEPT = 4096
LOOK_AHEAD = 3
LIKELY_TAIL_TOKENS = 2  # of the context, where nothing has to be proved


@dataclass(frozen=True, slots=True)
class Run:
    """Forced bytes from a state on.

    Attributes:
        data: the bytes.
        end: the state after them.
    """

    data: bytes
    end: int


@dataclass(frozen=True, slots=True)
class Lattice:
    """What a local tokeniser may write over a run.

    Attributes:
        ends: by position, the ends of the tokens that begin there and lead on.
        is_open: by position, whether a token that begins there may reach beyond the run.
    """

    ends: tuple[tuple[int, ...], ...]
    is_open: tuple[bool, ...]


class Drafts:
    """Forced runs and drafts of one automaton, kept by state."""

    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton
        self._vocabulary = automaton.vocabulary
        self._lock = threading.Lock()
        self._runs: dict[int, Run] = {}
        self._lattices: dict[int, Lattice] = {}
        self._likely: BoundedMap[tuple[int, int], list[int]] = BoundedMap(
            MAX_KEPT
        )  # by state and the last token before it

    @property
    def num_bytes(self) -> int:
        """Memory of what is kept, roughly."""
        if not self._runs:
            return 0
        with self._lock:
            num_positions = sum(len(run.data) for run in self._runs.values())
            num_ends = sum(len(lattice.ends) for lattice in self._lattices.values())
            num_likely = sum(5 + len(token_ids) for token_ids in self._likely.values())
            return 300 * len(self._runs) + num_positions + 150 * num_ends + 36 * num_likely

    def is_known(self, state: int) -> bool:
        """Whether forced bytes have been looked for from a state."""
        return state in self._runs

    def run(self, state: int) -> Run:
        """The forced bytes from a state, at most 4,096 of them, and none from a special token on."""
        found = self._runs.get(state)
        if found is None:
            data, end = self._automaton.forced_run(state, MAX_RUN_LEN)
            if SPECIAL in data:  # a special token: nothing that a tokeniser writes
                data = data[: data.index(SPECIAL)]
                end = self._automaton.advance_bytes(state, data)
            found = Run(data, end)
            with self._lock:
                if len(self._runs) >= MAX_KEPT:
                    self._runs.clear()
                    self._lattices.clear()
                self._runs[state] = found
        return found

    def draft(self, state: int, tail: list[int]) -> list[int]:
        """The tokens that the tokeniser writes after `tail` whatever comes later; [] if none is certain."""
        vocabulary = self._vocabulary
        if vocabulary.encode is None:
            return []
        run = self.run(state)
        if not run.data:
            return []
        if vocabulary.pieces is not None:
            return self._whole_pieces(run, tail)
        lattice = self._lattices.get(state)
        if lattice is None:
            lattice = _lattice(vocabulary, run.data, self._automaton.live_bytes(run.end))
            with self._lock:
                self._lattices[state] = lattice
        before = vocabulary.tokens[tail[-1]] if tail else b""
        ids = _only_path(vocabulary, run.data, lattice, before)
        if ids is None and before:
            ids = _only_path(vocabulary, run.data, lattice, b"")
        return ids or []

    def likely(self, state: int, tail: list[int]) -> list[int]:
        """The tokens that the tokeniser writes after `tail` unless what comes later merges with the last one.

        Not proved, but longer than `draft`: only for drafts that are verified. A word at the end of the run is left
        out if some token goes on from it.
        """
        key = (state, tail[-1] if tail else -1)
        found = self._likely.get(key)
        if found is None:
            run = self.run(state)
            found = _spelt(self._vocabulary, run.data, tail[-LIKELY_TAIL_TOKENS:])
            if found and run.data[-1:].isalnum():
                last = self._vocabulary.tokens[found[-1]]
                if self._vocabulary.continues(last, self._follow(run)):
                    found = found[:-1]
            with self._lock:
                self._likely.keep(key, found)
        return found

    def _follow(self, run: Run) -> list[int]:
        """The bytes that may come next after a run."""
        return [byte for byte, live in enumerate(self._automaton.live_bytes(run.end).tolist()) if live]

    def _whole_pieces(self, run: Run, tail: list[int]) -> list[int]:
        """The tokens of the pieces that certainly end within the run."""
        encode, spell = self._vocabulary.encode, self._vocabulary.tokens
        assert encode is not None
        while True:
            before = b"".join(spell[t] for t in tail)
            try:
                text = codecs.getincrementaldecoder("utf-8")().decode(before + run.data)
            except UnicodeDecodeError:  # the tail or the run begins inside a character
                text = ""
            ids = encode(text)
            if text and ids[: len(tail)] == tail:
                num_bytes = len(text.encode()) - len(before)
                follow = [run.data[num_bytes]] if num_bytes < len(run.data) else self._follow(run)
                kept = _cut(ids[len(tail) :], len(before), self._certain_ends(text, len(before), follow), spell)
                if kept:
                    return kept
            if not tail:
                return []
            tail = tail[1:]

    def _certain_ends(self, text: str, begin: int, follow: list[int]) -> set[int]:
        """The byte positions in the text, after `begin`, at which a piece ends whatever follows the text."""
        vocabulary = self._vocabulary
        assert vocabulary.pieces is not None
        data, ends = text.encode(), set()
        for end in vocabulary.pieces(text):
            rest, position = text[end:], len(text[:end].encode())
            if not follow and position > begin:
                ends.add(position)  # the text ends with the run
                continue
            is_decided = position > begin and len(rest) >= LOOK_AHEAD and not rest.isspace()
            if is_decided and not vocabulary.continues(data[position - 1 :], follow):
                ends.add(position)
        return ends


def _spelt(vocabulary: Vocabulary, data: bytes, tail: list[int]) -> list[int]:
    """The tokens of `data` after as much of `tail` as the tokeniser writes so."""
    if vocabulary.encode is None or not data:
        return []
    while True:
        before = b"".join(vocabulary.tokens[token_id] for token_id in tail)
        try:
            text = codecs.getincrementaldecoder("utf-8")().decode(before + data)
        except UnicodeDecodeError:
            text = ""
        ids = vocabulary.encode(text)
        if text and ids[: len(tail)] == tail:
            return ids[len(tail) :]
        if not tail:
            return []
        tail = tail[1:]


def _lattice(vocabulary: Vocabulary, data: bytes, follow: npt.NDArray[np.uint8]) -> Lattice:
    pairs = vocabulary.pairs
    # with byte fallback, a character that is a token is never spelt in bytes
    is_whole = vocabulary.has_byte_fallback and all(
        len(pairs.written(character.encode()) or ()) == 1 for character in set(data.decode(errors="ignore"))
    )
    ends: list[tuple[int, ...]] = [()] * (len(data) + 1)
    is_open = [False] * len(data) + [True]
    for begin in range(len(data) - 1, -1, -1):
        found = []
        candidates, is_open[begin] = vocabulary.tokens_at(data, begin, follow)
        for end in candidates:
            token = data[begin:end]
            if pairs.id_of(token) < 0 or (is_whole and _is_inside(data, begin, end)):
                continue
            if is_open[end] or any(pairs.is_possible(token, data[end:later]) for later in ends[end]):
                found.append(end)
        ends[begin] = tuple(found)
    return Lattice(tuple(ends), tuple(is_open))


def _is_inside(data: bytes, begin: int, end: int) -> bool:
    """Whether a token begins or ends in the middle of a character."""
    return any(position < len(data) and 0x80 <= data[position] < 0xC0 for position in (begin, end))


def _only_path(vocabulary: Vocabulary, data: bytes, lattice: Lattice, before: bytes) -> list[int] | None:
    """The tokens with which all paths after `before` begin; None if there is no path."""
    found: list[int] = []
    position = 0
    while not lattice.is_open[position]:
        ends = lattice.ends[position]
        if before:
            ends = tuple(end for end in ends if vocabulary.pairs.is_possible(before, data[position:end]))
        if not ends and not found:
            return None
        if len(ends) != 1:
            break
        before = data[position : ends[0]]
        found.append(vocabulary.pairs.id_of(before))
        position = ends[0]
    return found


def _cut(ids: list[int], position: int, ends: Collection[int], spell: tuple[bytes, ...]) -> list[int]:
    """The longest beginning of ids, the first of which begins at `position`, that stops at one of the ends."""
    best = 0
    for index, token_id in enumerate(ids):
        position += len(spell[token_id])
        if position in ends:
            best = index + 1
    return ids[:best]
