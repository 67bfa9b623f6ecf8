"""The embedding, with learned positions, and the logits of a vocabulary whose tokens several ranks share. Knows no
layers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ...kernels import LinearWeight
from ..parallel.ranks import Ranks
from .part import Part
from .reader import Reader


def embed(token_ids: Tensor, embedding: LinearWeight, ranks: Ranks, own: Part) -> Tensor:
    """Rows of the embedding, `[T, C]`, each of which one rank has."""
    if ranks.size == 1:
        return embedding.rows(token_ids)
    is_own = (token_ids >= own.first) & (token_ids < own.first + own.count)
    rows = embedding.rows((token_ids - own.first).masked_fill(~is_own, 0))
    return ranks.sum(rows.masked_fill(~is_own[:, None], 0.0))


def all_logits(logits: Tensor, ranks: Ranks, own: Part, cap: float) -> Tensor:
    """Rank 0's are of the whole vocabulary; the last ranks have fewer tokens, and fill theirs up. cap 0: there is none.

    fp32, or without a cap on a GPU as they are, where the sampler widens them as it reads them.
    """
    if ranks.size > 1:
        parts = ranks.collect(F.pad(logits, (0, -(-own.size // ranks.size) - own.count)))
        logits = torch.cat(parts, 1)[:, : own.size].contiguous() if parts else logits
    if cap:
        return cap * torch.tanh(logits.float() / cap)
    return logits if logits.is_cuda else logits.float()


def read_projection(reader: Reader, embedding: LinearWeight) -> LinearWeight:
    """The projection to the vocabulary, which may be the embedding. Raises ModelError: it is missing."""
    config, options = reader.config, reader.config.options
    if config.tie_word_embeddings:
        return embedding
    base = "language_model." if reader.prefix.startswith("language_model.") else ""
    has_bias = bool(options.projection_bias)
    return reader.linear(base, (options.projection,), [reader.cut.vocab], config.hidden_size, has_bias)


def read_positions(reader: Reader) -> Tensor | None:
    """The rows of positions from 0 on, `[max_position_embeddings, C]`; None: positions are not learned."""
    config, options = reader.config, reader.config.options
    if not options.positions:
        return None
    end = options.first_row + config.max_position_embeddings
    rows = Part(end, ((options.first_row, end),))
    return reader.tensor([f"{reader.prefix}{options.positions}.weight"], [rows], [config.hidden_size])


def add_positions(x: Tensor, table: Tensor | None, positions: Tensor) -> Tensor:
    """`[T, C]`, with the rows of `positions`, `[T]` int64; as it is without a table."""
    return x if table is None else x + table[positions]
