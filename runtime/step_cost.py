"""What a step takes, measured while the engine runs: what a drafted token costs, and what one that is right saves.

A step of B requests that computes R tokens takes about ::

    fixed + B x host + R x row      fixed: what a forward costs whatever it computes (weights read, kernels launched)
                                    host: what a request costs beside it; row: computing one token more, and its mask

a drafted token costs `row`, right or wrong, and one that is right saves its request a step: `fixed / B + host + row`.

The three are fitted to the last hundred steps or so that did nothing but decode. In most of those R is B or nearly,
which leaves open how much is the request's and how much the row's, and times are noisy; so what the steps do not tell
is taken from the proportions of a typical device (Bayesian linear regression: normal errors, whose size is estimated,
and a normal prior as wide as it is high). A step that took much longer than expected (a mask met for the first time,
another process) counts as a little longer only. Knows no requests and no drafts.
"""

from __future__ import annotations

import numpy as np

# fixed / row and host / row, before anything is measured. On one CPU core a step of the bundled model takes 1.1 ms
# + B x 35 us + 50 us for each row; the weights that a GPU reads in one forward serve hundreds of rows.
PROPORTIONS = {"cpu": (22.0, 0.7)}
OTHER_PROPORTIONS = (256.0, 0.5)
FIRST_ROW = 50e-6  # seconds

FIT_EVERY = 16  # steps
FADE = 0.85  # of the weight of steps, with each fit after them
LONGEST = 2.0  # times what was expected: what a longer step is taken for
LEAST_ERROR = 0.02  # of a mean step
LEAST = 0.1  # of what the proportions say: no cost is held to be less


class StepCost:
    """Running estimate of the cost of steps, in seconds.

    Attributes:
        fixed, host, row: see above.
    """

    def __init__(self, device_type: str) -> None:
        self._proportions = np.array([*PROPORTIONS.get(device_type, OTHER_PROPORTIONS), 1.0])
        self._steps: list[tuple[float, int, int, float]] = []  # 1, requests, rows, seconds; since the last fit
        self._products = np.zeros((4, 4))
        self._errors = 0.0  # squared
        self.fixed: float
        self.host: float
        self.row: float
        self.fixed, self.host, self.row = (FIRST_ROW * self._proportions).tolist()

    def observe(self, num_requests: int, num_rows: int, seconds: float) -> None:
        """Takes note of a step that decoded: its requests, the tokens it computed, how long it took."""
        if seconds > 0.0:
            self._steps.append((1.0, num_requests, num_rows, seconds))
            if len(self._steps) >= FIT_EVERY:
                self._fit()

    def saving(self, num_requests: int) -> float:
        """What one request's step costs among so many: what a drafted token that is right is worth."""
        return self.fixed / max(num_requests, 1) + self.host + self.row

    def _fit(self) -> None:
        steps = np.array(self._steps)
        self._steps.clear()
        causes, seconds = steps[:, :3], steps[:, 3]
        if self._products.any():
            expected = causes @ (self.fixed, self.host, self.row)
            np.minimum(seconds, LONGEST * expected, out=seconds)
        else:  # the first steps tell no more than the scale
            expected = causes @ self._proportions
            expected *= np.median(seconds / expected)
            np.minimum(seconds, LONGEST * expected, out=seconds)
        self._products = FADE * self._products + steps.T @ steps
        self._errors = FADE * self._errors + float(np.square(seconds - expected).sum())
        products, sums, weight = self._products[:3, :3], self._products[:3, 3], self._products[0, 0]
        prior = self._proportions * (sums[0] / (products[0] @ self._proportions))
        # neighbouring steps err alike: what slows one down slows down the next
        error = FIT_EVERY * max(self._errors / weight, (LEAST_ERROR * sums[0] / weight) ** 2)
        change = np.linalg.solve(products + np.diag(error / prior**2), sums - products @ prior)
        self.fixed, self.host, self.row = (float(value) for value in np.maximum(prior + change, LEAST * prior))
