"""A step whose forward is queued before the tokens of the step before it are read.

On a device that works in parallel with the host (a GPU) forward and sampling are only queued, and the step *runs
ahead*: before it reads what it has chosen it plans the next one and queues its forward, on tokens that only the device
knows. So whatever the host does, from reading step k to queueing the sampling of step k + 1, it does while the device
computes::

    host      sample k │ plan, forward k+1 │ read k, commit, deliver │ masks, sample k+1 │ plan, forward k+2 │ …
    device    … forward k ────────► sample k ► forward k+1 ────────────────────────────► sample k+1 ► forward k+2 …

Only the forward comes early: masks and penalties are made when all earlier tokens are known, so outputs are those of
steps that do not run ahead. A request that turns out to have ended is computed once in vain. Its blocks may be given to
other requests at once, since what those write is queued after that forward. A draft begins after the last token, so a
step with drafts does not run ahead; where some requests may draft, `overlap_policy` chooses what brings more tokens a
second.

Knows no scheduler: `Computation` decides when to run ahead.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..execute.batch import Batch
from ..request import Phase


@dataclass(frozen=True, slots=True)
class Ahead:
    """A step whose forward is queued: `logits` `[R, vocab_size]` of its batch, and hidden states, if wanted."""

    batch: Batch
    logits: Tensor
    hidden: Tensor | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether any of its requests goes on."""
        return any(extend.request.phase is Phase.RUNNING for extend in self.batch.extends)
