"""Rows to be sampled: the arguments of `sample`, random ones of all kinds, and its implementations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from phloem.kernels import LogitEdits, Logprobs, SamplingRows, ops
from phloem.kernels.plain import ops as reference

from . import lazy_triton as triton
from .on_device import on_device


@dataclass(frozen=True)
class Rows:
    """The arguments of `sample`, in order."""

    logits: Tensor
    mask_table: Tensor | None
    mask_rows: Tensor
    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    min_p: Tensor
    seeds: Tensor
    positions: Tensor
    edits: LogitEdits | None = None

    def arguments(self, device: torch.device | str = "cpu") -> list[Any]:
        columns = SamplingRows(*(getattr(self, name).to(device) for name in SamplingRows._fields))
        return [self.logits.to(device), on_device(self.mask_table, device), columns, on_device(self.edits, device)]

    def pick(self, rows: list[int]) -> Rows:
        """The same arguments for some of the rows."""
        kept = ("mask_table", "edits")
        picked = {n: getattr(self, n)[rows] for n in self.__dataclass_fields__ if n not in kept}
        edits = self.edits and replace(
            self.edits,
            **{n: getattr(self.edits, n)[rows] for n in LogitEdits.__slots__ if n not in ("counts", "biases")},
        )
        return Rows(mask_table=self.mask_table, edits=edits, **picked)


def rows_of(
    logits: Tensor, *, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> Rows:
    """Unmasked rows; each has a seed and a position of its own."""
    n = len(logits)
    return Rows(
        logits,
        None,
        torch.full((n,), -1, dtype=torch.int32),
        torch.full((n,), temperature),
        torch.full((n,), top_k, dtype=torch.int32),
        torch.full((n,), top_p),
        torch.full((n,), min_p),
        torch.arange(n) * 7 - 3,
        torch.arange(n) + 2**33,
    )


def bit_rows(allowed: Tensor) -> Tensor:
    """`[M, V]` bool -> `[M, W]` int32 bit rows."""
    num_rows, vocab_size = allowed.shape
    padded = torch.zeros(num_rows, -(-vocab_size // 32) * 32, dtype=torch.int64)
    padded[:, :vocab_size] = allowed
    words = (padded.view(num_rows, -1, 32) << torch.arange(32)).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def implementation(name: str, device: torch.device) -> Callable[..., tuple[Tensor, Logprobs | None]]:
    """(rows, num_top) -> token ids and log-probabilities on the CPU."""

    def run(rows: Rows, num_top: int | None = None) -> tuple[Tensor, Logprobs | None]:
        if name == "reference":
            return reference.sample(*rows.arguments(), num_top)
        if name == "cpu":
            return ops.sample(*rows.arguments(), num_top)
        token_ids, found = triton.sample.sample(*rows.arguments(device), num_top)
        return token_ids.cpu(), found and Logprobs(*(t.cpu() for t in found))

    return run


def mixed_rows(num_rows: int, vocab_size: int) -> Rows:
    """Everything at once: masks (one empty, one with a single token), filters, temperatures, a NaN."""
    logits = torch.randn(num_rows, vocab_size) * 3
    logits[0, min(3, vocab_size - 1)] = torch.nan
    allowed = torch.rand(6, vocab_size) < torch.tensor([0.5, 0.9, 0.01, 0.0, 0.0, 1.0])[:, None]
    allowed[4, vocab_size - 1] = True
    coin = torch.rand(5, num_rows) < 0.5
    return Rows(
        logits,
        bit_rows(allowed),
        torch.arange(num_rows, dtype=torch.int32) % 7 - 1,
        torch.rand(num_rows) * 2 * coin[0],
        (torch.randint(1, 40, (num_rows,)) * coin[1]).to(torch.int32),
        torch.where(coin[2], torch.rand(num_rows), 1.0),
        torch.rand(num_rows) * 0.3 * coin[3],
        torch.randint(-(2**62), 2**62, (num_rows,)),
        torch.randint(0, 2**40, (num_rows,)),
    )


def random_edits(num_rows: int, vocab_size: int) -> LogitEdits:
    """Penalties and biases of all signs; some rows have none, some have drafted tokens on top."""
    counts = torch.randint(0, 4, (3, vocab_size)) * (torch.rand(3, vocab_size) < 0.3)
    counts -= 0x8000 * (torch.rand(3, vocab_size) < 0.2)
    return LogitEdits(
        counts.to(torch.int16),
        torch.randint(-1, 3, (num_rows,)).to(torch.int32),
        torch.rand(num_rows) * 2 + 0.3,
        torch.rand(num_rows) * 4 - 2,
        torch.rand(num_rows) * 4 - 2,
        torch.randint(-1, vocab_size, (num_rows, 3)).to(torch.int32),
        torch.randn(2, vocab_size) * 3,
        torch.randint(-1, 2, (num_rows,)).to(torch.int32),
    )
