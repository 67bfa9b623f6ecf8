"""Odds: how often what was likely came true, and how likely it must be to be worth a row of the forward.

A step of B requests takes about

    fixed + B x (host + row)        fixed: what a forward costs whatever it computes (weights read, kernels launched)
                                    host: what a request costs beside it; row: computing one token more

so a drafted token that is right saves one request's step, `fixed / B + host + row`, and any drafted token costs `row`.
A token is drafted if all up to it are right with at least the chance

    price(B) = MARGIN x row / (fixed / B + host + row)

which is next to nothing for one request alone, and 0.7 where many fill the machine. Chances are learnt by ground
(`fsm.habits`), each observation counting a little; some also where nothing is drafted. A request begins with what
those before it have found. Nothing here is measured in seconds, so drafts are the same in every run; the output does
not depend on them at all.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..fsm import Guess

FIRST_ODDS = (0.68, 0.68, 0.4, 0.8)  # forced text with letters or digits, without; seen once before, and more often
OWN_WEIGHT = 0.1  # of one observation, for the request's own odds
COMMON_WEIGHT = 0.02  # and for those that requests begin with
MARGIN = 1.4  # a drafted token costs its mask as well, and drafts have to be looked for

# (fixed / row, host / row). On one CPU core a step of the bundled model takes 1.1 ms + B x 35 us + 50 us for each row;
# the weights that a GPU reads in one forward serve hundreds of rows.
COSTS = {"cpu": (22.0, 0.7)}
OTHER_COSTS = (256.0, 0.5)


def price(num_requests: int, device_type: str) -> float:
    """The chance from which a drafted token is worth its row, in a step of so many requests."""
    fixed, host = COSTS.get(device_type, OTHER_COSTS)
    return MARGIN / (fixed / max(num_requests, 1) + host + 1.0)


def observe(likely: Guess, decided: Sequence[int], own: list[float], common: list[float]) -> None:
    """Learns from what became of a guess: of its tokens up to the first that was decided otherwise."""
    for guessed, ground, token_id in zip(likely.token_ids, likely.grounds, decided, strict=False):
        right = float(guessed == token_id)
        own[ground] += OWN_WEIGHT * (right - own[ground])
        common[ground] += COMMON_WEIGHT * (right - common[ground])
        if not right:
            break
