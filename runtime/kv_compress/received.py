"""How much attention the keys of a request have received so far, from the end of its prompt on (H2O, arXiv 2306.14048).

::

    prompt ················ │◄─ 32 ─►│ output ·········
    rows that count         ▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪     each by the attention that computes it anyway

Earlier rows do not count, so that a prefix may come from the cache, whichever request computed it: the request computes
every row that counts itself, once more after a preemption. Drafted rows count when their tokens are accepted.

Knows tensors; it knows no blocks and no steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(slots=True)
class Received:
    """The attention received by a request's keys.

    Attributes:
        sums: fp32 `[num_layers, num_kv_heads, n]`, of its first n keys, by place; the others have received none.
        end: position after the last row that was counted.
        drafted: of the rows from `end` on, which a step computed for a draft, what each gave.
    """

    sums: Tensor
    end: int
    drafted: list[Tensor] = field(default_factory=list)

    @torch.inference_mode()
    def settle(self, num_computed_tokens: int) -> None:
        """After a step was committed: counts the drafted rows that were accepted."""
        for given in self.drafted[: max(0, num_computed_tokens - self.end)]:
            given[..., : self.sums.shape[-1]] += self.sums
            self.sums = given
            self.end += 1
        self.drafted = []

    def fork(self) -> Received:
        return Received(self.sums, self.end)

    def keep(self, places: Tensor) -> Received:
        """That of the keys at some places alone, int64 `[num_layers, num_kv_heads, n]`."""
        return Received(self.sums.gather(-1, places), self.end)
