"""A moving average of measurements: each new one counts for a share, and all before it for the rest."""

from __future__ import annotations


def moved(average: float | None, new: float, weight: float) -> float:
    """The average with one measurement more, which counts for `weight` of it; None: there was none before."""
    return new if average is None else average + weight * (new - average)
