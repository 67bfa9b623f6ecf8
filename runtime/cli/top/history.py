"""The polls of the last minute, and what is between them: rates and percentiles. Knows no server and no terminal."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import pairwise

from .sample import Histogram, Sample

WINDOW_SECONDS = 60.0
RATE_SECONDS = 5.0  # over which a rate "now" is taken, as far as there are polls


class History:
    """Polls, the last one at the end; those that are older than the window go, but the last two stay.

    Attributes:
        last: the last poll.
    """

    def __init__(self, first: Sample) -> None:
        self._samples = deque([first])

    def add(self, sample: Sample) -> None:
        """A poll. Where counters have fallen the server has been started again, and what was before is forgotten."""
        if sample.numbers["prompt_tokens"] < self.last.numbers["prompt_tokens"]:
            self._samples.clear()
        self._samples.append(sample)
        while len(self._samples) > 2 and sample.at - self._samples[0].at > WINDOW_SECONDS:
            self._samples.popleft()

    @property
    def last(self) -> Sample:
        return self._samples[-1]

    @property
    def seconds(self) -> float:
        """Between the first poll and the last."""
        return self.last.at - self._samples[0].at

    def rate(self, name: str) -> float | None:
        """How fast a counter grows now, per second; None before the second poll."""
        if len(self._samples) < 2:
            return None
        begin = next(one for one in self._samples if one is self._samples[-2] or self.last.at - one.at <= RATE_SECONDS)
        return _rate(begin, self.last, name)

    def rates(self, name: str) -> Iterator[float]:
        """Between every two polls."""
        return (_rate(begin, end, name) for begin, end in pairwise(self._samples))

    def grown(self, name: str) -> float:
        """By how much a counter has grown in the window."""
        return self.last.numbers.get(name, 0) - self._samples[0].numbers.get(name, 0)

    def latency(self, name: str) -> tuple[Histogram, bool]:
        """Observations in the window, and True; if there are none, those since the server's start, and False."""
        recent = self.last.histograms[name].since(self._samples[0].histograms[name])
        return (recent, True) if recent.num_observed > 0 else (self.last.histograms[name], False)


def _rate(begin: Sample, end: Sample, name: str) -> float:
    grown = end.numbers.get(name, 0) - begin.numbers.get(name, 0)
    return max(0.0, grown / max(end.at - begin.at, 1e-9))
