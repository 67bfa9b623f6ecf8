"""What a step costs, in the cost of one of its tokens, by the kind of device, and when drafts are worth theirs.

Constants; knows no requests.
"""

from __future__ import annotations

# A step of B requests that computes R tokens takes about fixed + B x host + R times a token's cost, the unit. On one
# CPU core a step of the bundled model takes 1.1 ms + B x 35 us + 50 us for each token, and one of SmolLM-135M 26 ms +
# 1.5 ms for each token; the weights that a GPU reads in one forward serve hundreds of tokens.
STEP_COSTS = {"cpu": (22.0, 0.7)}
OTHER_STEP_COSTS = (256.0, 0.5)
# What is saved must exceed what it costs by half: both are estimates, and a step that a request is spared shortens the
# work of all only if another request takes its place.
MARGIN = 1.5
# What seems not to pay would never be tried again; so after as many steps of requests, a few tokens are drafted as if
# everything paid.
TRY_EVERY, MAX_TRIED_TOKENS = 256, 2


def step_costs(device_type: str) -> tuple[float, float]:
    """What a step costs whatever is in it, and what each of its requests adds, in costs of a token."""
    return STEP_COSTS.get(device_type, OTHER_STEP_COSTS)
