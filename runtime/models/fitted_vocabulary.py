"""A decoder with another number of rows in its embedding than there are token ids elsewhere, fitted to those.

Checkpoints of one family fill their embeddings up to different sizes (Qwen2.5 has 151,936 rows in 0.5B, 152,064 in 7B)
for one tokenizer of fewer tokens. Logits of the rows that no token has are -inf; an id that has no row here, which only
a model makes that says what is no token, is read as the last one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .decoder import Decoder


class FittedVocabulary:
    """What `decoder` computes, as a decoder of `vocab_size` token ids, of which the first `num_tokens` are tokens."""

    takes_hidden = False

    def __init__(self, decoder: Decoder, vocab_size: int, num_tokens: int) -> None:
        self.config = replace(decoder.config, vocab_size=vocab_size)
        self.dtype = decoder.dtype
        self.rope_tables = decoder.rope_tables
        self.generates = decoder.generates
        self._decoder = decoder
        self._num_tokens = num_tokens

    @property
    def num_weight_bytes(self) -> int:
        return self._decoder.num_weight_bytes

    def forward(self, token_ids: Tensor, *step: Any, **few: Any) -> Tensor:
        """As `Decoder.forward`."""
        return self.project(self.hidden_states(token_ids, *step, **few))

    def hidden_states(self, token_ids: Tensor, *step: Any, **few: Any) -> Tensor:
        """As `Decoder.hidden_states`."""
        return self._decoder.hidden_states(token_ids.clamp(max=self._decoder.config.vocab_size - 1), *step, **few)

    @torch.inference_mode()
    def project(self, hidden: Tensor) -> Tensor:
        """As `Decoder.project`."""
        found = self._decoder.project(hidden)
        fitted = found.new_full((len(found), self.config.vocab_size), -torch.inf)
        fitted[:, : self._num_tokens] = found[:, : self._num_tokens]
        return fitted
