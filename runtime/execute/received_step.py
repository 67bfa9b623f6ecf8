"""What a step adds to the attention that keys have received, of requests that count it (`Received`).

Knows extends and the kernels' runs. Sums are new tensors, which replace those of before when the step is computed: so a
step that fails half way has added nothing, and rows that were counted are not counted again.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ...kernels import AttentionMass, plan_mass
from ..kv_compress.budget import counts_from
from ..kv_compress.received import Received
from .batch import Batch, Extend


@dataclass(frozen=True, slots=True)
class Counted:
    """Rows of an extend that count: known tokens `[begin, end)` by position, then its draft; the runs in that order."""

    extend: Extend
    begin: int
    end: int
    first_run: int


@dataclass(frozen=True, slots=True)
class ReceivedStep:
    """The rows of a step that count, of all its requests.

    Attributes:
        mass: what attention adds to.
    """

    counted: list[Counted]
    mass: AttentionMass

    @staticmethod
    def of(batch: Batch, *, num_layers: int, num_kv_heads: int, device: torch.device) -> ReceivedStep | None:
        """None if no row counts."""
        counted: list[Counted] = []
        runs: list[tuple[int, int, int]] = []
        for extend, first in zip(batch.extends, batch.query_starts.tolist(), strict=False):
            request = extend.request
            begin = counts_from(request)
            if begin is None:
                continue
            end = extend.start + extend.num_tokens
            begin = max(begin if request.received is None else request.received.end, extend.start)
            found = [(begin, end)] if begin < end else []
            found += [(at, at + 1) for at in range(end, extend.end)]  # of a draft
            if found:
                counted.append(Counted(extend, begin, end, len(runs)))
                row = first - extend.start
                runs += [(row + one, row + last, last - request.num_dropped_tokens) for one, last in found]
        if not runs:
            return None
        mass = plan_mass(runs, num_layers=num_layers, num_kv_heads=num_kv_heads, device=device)
        for one in counted:
            received = one.extend.request.received
            if received is not None and one.begin < one.end:
                mass.of_run(one.first_run)[..., : received.sums.shape[-1]] = received.sums
        return ReceivedStep(counted, mass)

    def keep(self) -> None:
        """Gives each request what its keys have received by now."""
        for one in self.counted:
            request, run = one.extend.request, one.first_run
            if one.begin < one.end:
                request.received = Received(self.mass.of_run(run), one.end)
                run += 1
            assert request.received is not None
            request.received.drafted = [self.mass.of_run(run + index) for index in range(len(one.extend.draft))]
