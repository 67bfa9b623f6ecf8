"""A model with a recurrent layer that tells the truth about its states: one is a digest of all tokens before.

A state that is not that of the tokens in the cache, in number, order or content, fails the step that reads it.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from phloem.kernels import AttentionPlan
from phloem.runtime.execute.kv_cache import KVCache
from phloem.runtime.models.recurrent_config import RecurrentConfig, RecurrentOptions
from phloem.runtime.models.step import StateStep

from .fakes import FakeDecoder, FakeModelConfig

WORDS = 4  # of a digest, 16 bits each, which fp32 holds exactly


def digest(token_ids: Sequence[int]) -> list[int]:
    found = hashlib.blake2b(array("i", token_ids).tobytes(), digest_size=2 * WORDS).digest()
    return np.frombuffer(found, np.uint16).tolist()


@dataclass(frozen=True)
class RecurrentFakeConfig(FakeModelConfig):
    recurrent: RecurrentConfig = RecurrentConfig(  # type: ignore[assignment]
        RecurrentOptions("short_conv", "conv.", ("conv",)), (False, True), width=2, channels=WORDS
    )


class RecurrentFakeDecoder(FakeDecoder):
    """Reads and writes states as the plan says, round by round."""

    def __init__(self) -> None:
        super().__init__(RecurrentFakeConfig())

    def forward(  # type: ignore[override]
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        kv_cache: KVCache,
        plan: AttentionPlan,
        slots: torch.Tensor,
        logits_rows: torch.Tensor | None,
        *,
        recurrent: StateStep,
    ) -> torch.Tensor:
        logits = super().forward(token_ids, positions, kv_cache, plan, slots, logits_rows)
        states = recurrent.states[1][0][:, 0]
        seen = []
        for segments in recurrent.rounds.rounds:
            for begin, end, read, write in segments.tolist():
                request = int(np.searchsorted(plan.query_starts, begin, side="right")) - 1
                context = self._read(kv_cache, plan, request, int(positions[end - 1]) + 1)
                before = context[: int(positions[begin])]
                assert read != write
                assert (digest(before) if before else None) == (states[read].tolist() if read >= 0 else None)
                states[write] = torch.tensor(digest(context), dtype=states.dtype)
                seen += range(begin, end)
        assert sorted(seen) == list(range(len(token_ids))), "every row is in one segment"
        return logits
