"""One step's work: which request computes which tokens, and the index arrays that say so to the kernels.

Everything is an extend: a prefill chunk, one decode token, a draft to verify. An `Extend` names the tokens; `Batch`
lays all of them out end to end (ragged, no padding). This module knows no tensors: arrays are numpy.

Rows of one extend, with two known uncomputed tokens and a draft of two::

    tokens      known[-2]  known[-1]  draft[0]  draft[1]
    logits                     0          1         2       row i decides the token after it

A step that is queued before the one before it was read (`stepper`) computes on tokens that only the device knows: such
an extend says where the device finds its token, and holds nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..kv_compress.budget import counts_from
from ..request import Request

if TYPE_CHECKING:
    from ..models import Adapter

IntArray = npt.NDArray[np.int64]

NOWHERE = -1  # the slot of a token whose KV is not written


@dataclass(slots=True)
class Extend:
    """One request's part of a step.

    Attributes:
        start: position of the first token computed: `request.num_computed_tokens`, once the step before is committed.
        num_tokens: known tokens computed; the draft's come on top.
        draft: tokens to verify; empty unless the extend reaches the last known token.
        logits_from: first position whose logits are wanted, or hidden states (`Readout.reads_hidden`).
        unread: where among the tokens that the step before decides its only one is found; -1: all are known.
        state: of a model with recurrent layers, the slot of the state after `start` tokens; -1: there are none.
        state_points: numbers of tokens of the request, rising, and the slots that take the states after them.
    """

    request: Request
    start: int
    num_tokens: int
    draft: list[int]
    logits_from: int
    unread: int = -1
    state: int = -1
    state_points: list[tuple[int, int]] = field(default_factory=list)

    @property
    def end(self) -> int:
        """Position after the last token computed, draft included."""
        return self.start + self.num_tokens + len(self.draft)

    @property
    def num_keys(self) -> int:
        """Tokens whose KV the request has after the step's write, draft included."""
        return self.end - self.request.num_dropped_tokens

    @property
    def num_wanted(self) -> int:
        """Rows whose logits are wanted, or hidden states."""
        return max(0, self.end - self.first_wanted)

    @property
    def first_wanted(self) -> int:
        """Position of the first of these rows, if there are any."""
        return max(self.start, self.logits_from)

    @property
    def reaches_end(self) -> bool:
        """Whether the step decides the request's next token."""
        return self.start + self.num_tokens == self.request.num_tokens


@dataclass(frozen=True, slots=True)
class AdapterRows:
    """Rows [begin, end) of a step, which go through an adapter."""

    begin: int
    end: int
    adapter: Adapter


@dataclass(frozen=True, slots=True)
class Batch:
    """All extends of a step and their layout.

    Attributes:
        token_ids, positions, slots: `[T]` int64; positions are rows of the rotary tables (`first_row_now`); slot =
            block · block_size + offset, of the token's place.
        query_starts: `[B + 1]` int32; extend b owns rows `[query_starts[b], query_starts[b + 1])`.
        context_lens: `[B]` int32, keys of each request after this step's write: positions less what was dropped.
        block_tables: `[B, M]` int32, 0 beyond a request's blocks.
        num_logits: by extend, how many rows of logits are wanted.
        logits_rows: `[R]` int64, which rows these are, extend after extend.
        hidden_rows: int64, rows whose hidden states are wanted instead, as `num_wanted` of their extends says.
        windowed: the same step as layers with a window see it, whose `slots`, `context_lens` and `block_tables` begin
            shortly before the window and name slots of theirs; None: all layers find their keys alike.
        in_windows: it is such a step.
        counts_attention: whether a request counts the attention that its keys receive.
        unread: `[T]` int64, `Extend.unread` of each token; None: all tokens are known. The ids of others are 0.
        adapters: whose rows they are, in their order; rows of the model alone are in none.
        state_rounds: `[S, 4]` each, the segments of `kernels.state_rounds`; empty: the model has no states, or
            none of a request are meant.
    """

    extends: list[Extend]
    token_ids: IntArray
    positions: IntArray
    slots: IntArray
    query_starts: npt.NDArray[np.int32]
    context_lens: npt.NDArray[np.int32]
    block_tables: npt.NDArray[np.int32]
    num_logits: list[int]
    logits_rows: IntArray
    unread: IntArray | None = None
    adapters: tuple[AdapterRows, ...] = ()
    state_rounds: tuple[IntArray, ...] = ()
    hidden_rows: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    windowed: Batch | None = None
    counts_attention: bool = False
    in_windows: bool = False

    def count_jumped(self) -> int:
        """Drafted tokens that were right so far, of all its requests."""
        return sum(extend.request.usage.jumped_tokens for extend in self.extends)

    @staticmethod
    def from_extends(extends: list[Extend], block_size: int) -> Batch:
        """Lays the extends out, those of an adapter next to each other. Every request must hold blocks up to its
        extend's end."""
        has_adapters = any(extend.request.adapter is not None for extend in extends)
        if has_adapters:
            extends = sorted(extends, key=_adapter_of)
        num_requests = len(extends)
        context_lens = np.array([e.num_keys for e in extends], np.int32)
        starts = np.array([e.start for e in extends], np.int32)
        num_dropped = np.array([e.request.num_dropped_tokens for e in extends], np.int32)
        q_lens = context_lens + num_dropped - starts
        query_starts = np.zeros(num_requests + 1, np.int32)
        np.cumsum(q_lens, out=query_starts[1:])
        num_rows = int(query_starts[-1])

        width = max(len(e.request.blocks) for e in extends)
        block_tables = np.zeros((num_requests, width), np.int32)
        token_ids: list[int] = []
        num_logits: list[int] = []
        wanted: list[int] = []
        hidden: list[int] = []
        for b, extend in enumerate(extends):
            request, draft = extend.request, extend.draft
            blocks = request.blocks
            block_tables[b, : len(blocks)] = blocks
            if extend.unread < 0:
                token_ids += request.token_ids[extend.start : extend.start + extend.num_tokens]
            else:
                token_ids.append(0)
            if draft:
                token_ids += draft
            rows = range(len(token_ids) - extend.num_wanted, len(token_ids))
            if request.readout is not None and request.readout.reads_hidden:
                hidden += rows
                rows = range(0)
            num_logits.append(len(rows))
            wanted += rows

        owner = np.repeat(np.arange(num_requests), q_lens)
        positions = np.arange(num_rows, dtype=np.int64) - query_starts[owner] + starts[owner]
        places = positions - num_dropped[owner]
        slots = block_tables[owner, places // block_size].astype(np.int64) * block_size + places % block_size
        unread = np.array([extend.unread for extend in extends], np.int64)
        first_rows = np.array([extend.request.first_row_now for extend in extends], np.int64)
        return Batch(
            extends,
            np.array(token_ids, np.int64),
            positions + first_rows[owner],
            slots,
            query_starts,
            context_lens,
            block_tables,
            num_logits,
            np.array(wanted, np.int64),
            unread[owner] if (unread >= 0).any() else None,
            _adapter_rows(extends, query_starts) if has_adapters else (),
            _state_rounds(extends, query_starts),
            np.array(hidden, np.int64),
            counts_attention=any(counts_from(extend.request) is not None for extend in extends),
        )


def _adapter_of(extend: Extend) -> str:
    adapter = extend.request.adapter
    return "" if adapter is None else adapter.fingerprint


def _adapter_rows(extends: Sequence[Extend], query_starts: npt.NDArray[np.int32]) -> tuple[AdapterRows, ...]:
    found: list[AdapterRows] = []
    for extend, begin, end in zip(extends, query_starts.tolist(), query_starts[1:].tolist(), strict=False):
        adapter = extend.request.adapter
        if found and found[-1].adapter is adapter:
            begin = found.pop().begin
        if adapter is not None:
            found.append(AdapterRows(begin, end, adapter))
    return tuple(found)


def _state_rounds(extends: Sequence[Extend], query_starts: npt.NDArray[np.int32]) -> tuple[IntArray, ...]:
    """Segment i of an extend, which reads what segment i - 1 has written, is in round i."""
    rounds: list[list[tuple[int, int, int, int]]] = []
    for extend, first in zip(extends, query_starts.tolist(), strict=False):
        begin, read = first, extend.state
        for index, (num_tokens, slot) in enumerate(extend.state_points):
            if index == len(rounds):
                rounds.append([])
            end = first + num_tokens - extend.start
            rounds[index].append((begin, end, read, slot))
            begin, read = end, slot
    return tuple(np.array(segments, np.int64) for segments in rounds)
