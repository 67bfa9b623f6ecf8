"""How many replicas there should be, by tokens in their queues: a policy for Serve's `AutoscalingConfig`.

A request of 4,000 tokens is as much work as a hundred short ones, so Serve's own policy, which counts requests, has too
few replicas for some traffic and too many for other.
"""

from __future__ import annotations

import math
from typing import Any


class ByQueuedTokens:
    """For `policy_function`: "phloem.cluster.autoscaling:ByQueuedTokens", with `policy_kwargs`.

    Args:
        tokens: that may wait at a replica, on average, before there are more.
        requests: that a replica answers at a time, on average, before there are more.
    """

    def __init__(self, tokens: int = 20_000, requests: int = 64) -> None:
        self._tokens = tokens
        self._requests = requests

    def __call__(self, context: Any) -> tuple[int, dict[str, Any]]:
        """What Serve calls; context: its `AutoscalingContext`. Returns the number of replicas, and no state."""
        queued = sum((context.aggregated_metrics or {}).get("queued_tokens", {}).values())
        wanted = max(math.ceil(queued / self._tokens), math.ceil(context.total_num_requests / self._requests))
        least, most = context.capacity_adjusted_min_replicas, context.capacity_adjusted_max_replicas
        return max(least, min(most, wanted)), {}
