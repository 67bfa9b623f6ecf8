"""How many replicas are asked for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from phloem.cluster.autoscaling import ByQueuedTokens


@pytest.mark.parametrize(
    ("queued", "requests", "wanted"),
    [
        ([], 0, 1),
        ([0, 0], 3, 1),
        ([500, 501], 3, 2),
        ([10_000, 0], 3, 8),
        ([3000, 100], 3, 4),
        ([0, 0], 65, 7),
    ],
)
def test_tokens_and_requests_decide_within_the_bounds(queued: list[float], requests: int, wanted: int) -> None:
    context = SimpleNamespace(
        aggregated_metrics={"queued_tokens": dict(enumerate(queued))} if queued else None,
        total_num_requests=requests,
        capacity_adjusted_min_replicas=1,
        capacity_adjusted_max_replicas=8,
    )
    assert ByQueuedTokens(tokens=1000, requests=10)(context) == (wanted, {})
