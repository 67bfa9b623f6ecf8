"""What a constraint costs: its masks over a sampled walk, first met and met again, and its memory.

Times are those of this process on this machine at this moment. A walk takes random allowed tokens, some of the time
the first byte of the shortest way out, so that it sees beginnings and ends.
"""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import dataclass

from ..constraint import Constraint
from ..cursor import Cursor
from ..vocabulary.vocabulary import token_ids_of

NUM_WALKS = 6
MAX_STEPS = 60  # tokens of a walk before it turns for the way out
SEED = 7


@dataclass(frozen=True, slots=True)
class Timings:
    """Milliseconds from the description to the first mask."""

    grammar: float
    network: float
    first_mask: float

    @property
    def total(self) -> float:
        return self.grammar + self.network + self.first_mask


@dataclass(frozen=True, slots=True)
class MaskCost:
    """Microseconds of CPU per mask row; cold: a state not met before, warm: the same state again."""

    num_masks: int
    cold_median: float
    cold_worst: float
    warm_median: float
    warm_worst: float


def walk(constraint: Constraint) -> tuple[MaskCost, tuple[str, ...]]:
    """What the rows of a few random texts cost, and the texts that were written."""
    rng = random.Random(SEED)
    cold: list[float] = []
    warm: list[float] = []
    known: set[int] = set()
    samples: list[str] = []
    for _ in range(NUM_WALKS):
        cursor = constraint.cursor()
        token_ids: list[int] = []
        for step in range(2 * MAX_STEPS):
            if cursor.state not in known:
                known.add(cursor.state)
                cold.append(_time(cursor))
                warm.append(_time(cursor))
            token_id = _choose(cursor, rng, step >= MAX_STEPS)
            if token_id is None or not cursor.advance(token_id) or cursor.is_finished:
                break
            token_ids.append(token_id)
        if cursor.is_accepting:
            data = b"".join(constraint.vocabulary.tokens[token_id] for token_id in token_ids)
            samples.append(data.decode(errors="replace"))
    cost = MaskCost(len(cold), statistics.median(cold), max(cold), statistics.median(warm), max(warm))
    return cost, tuple(samples)


def _time(cursor: Cursor) -> float:
    started_at = time.thread_time_ns()
    cursor.row()
    return (time.thread_time_ns() - started_at) / 1000


def _choose(cursor: Cursor, rng: random.Random, is_late: bool) -> int | None:
    """A random allowed token; late ones only from those that lead to an end."""
    row = cursor.row()
    if is_late or rng.random() < 0.3:
        if cursor.is_accepting:
            return cursor.caches.vocabulary.eos_ids[0]
        row = cursor.row_within(cursor.min_tokens_to_accept())
    allowed = token_ids_of(row)
    return rng.choice(allowed) if allowed else None
