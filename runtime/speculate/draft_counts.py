"""How many tokens were drafted, and how many of them were right, by what drafted them.

It counts what `Usage` has as drafted and jumped tokens, of all requests together. Cost: two additions for each drafted
token.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...fsm import Guess
from ...fsm.guess import MARK, OFTEN, ONCE, WORD
from .acceptance_rates import MODEL

FORCED, HABIT, LOOKUP = "forced", "habit", "lookup"
MODEL_KINDS = ("model", "mtp")  # another model, and the model's own layer
SOURCES = (FORCED, HABIT, LOOKUP, *MODEL_KINDS)


class DraftCounts:
    """How many tokens were drafted, and how many of them were right, since this object was made.

    Attributes:
        drafted, right: tokens by source, of `SOURCES`.
    """

    def __init__(self, *, by_own_layer: bool) -> None:
        """by_own_layer: what a model drafts is drafted by the model's own layer."""
        model = MODEL_KINDS[by_own_layer]
        self._sources: Mapping[int, str] = {WORD: FORCED, MARK: FORCED, ONCE: HABIT, OFTEN: HABIT, MODEL: model}
        self.drafted, self.right = dict.fromkeys(SOURCES, 0), dict.fromkeys(SOURCES, 0)

    def add(self, guess: Guess | None, num_drafted: int, num_right: int) -> None:
        """Counts a draft of n tokens, the first of them right. guess: its first tokens; those after it, or all if it is
        None, are of a look-up."""
        known = [] if guess is None else [self._sources[kind] for kind in guess.evidence[:num_drafted]]
        sources = known + [LOOKUP] * (num_drafted - len(known))
        _count(self.drafted, sources)
        _count(self.right, sources[:num_right])

    def add_forced(self, num_tokens: int) -> None:
        """Counts forced text that joined an output without being verified."""
        self.drafted[FORCED] += num_tokens
        self.right[FORCED] += num_tokens


def _count(counts: dict[str, int], sources: Iterable[str]) -> None:
    for source in sources:
        counts[source] += 1
