"""Percentiles of the latest values, against numpy's."""

from __future__ import annotations

import random

import numpy as np

from phloem.runtime.engine.recent_values import RecentValues


def test_percentiles_are_those_of_what_is_kept() -> None:
    rng = random.Random(3)
    now = [0.0]
    recent = RecentValues(seconds=10.0, most=50, clock=lambda: now[0])
    assert recent.percentiles((50, 99)) == (0, [None, None])
    came: list[tuple[float, float]] = []
    for _ in range(300):
        now[0] += rng.random()
        came.append((now[0], rng.random()))
        recent.add(came[-1][1])
        kept = [value for at, value in came[-50:] if at > now[0] - 10.0]
        wanted = [np.percentile(kept, share, method="inverted_cdf") for share in (1, 50, 95, 99)]
        assert recent.percentiles((1, 50, 95, 99)) == (len(kept), wanted)
    now[0] += 10.0
    assert recent.percentiles((50,)) == (0, [None])
