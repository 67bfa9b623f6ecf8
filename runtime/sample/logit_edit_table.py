"""What running requests change in their logits, as rows of two tables on the device; a step adds a number per token.

::

    request with penalties ──► its row of counts[S, V], kept up to date token by token
    request with biases    ──► its row of biases[S, V], written once

Only requests that ask for it have rows, which are theirs until they end. A row is written when it is first needed, from
the tokens that are there; from then on only new tokens are counted, never all of them again. Drafted tokens are not
counted: they go along with the step (`LogitEdits.drafted`) and are forgotten with it.

Knows requests and tensors; what the numbers mean is written in `kernels.logit_edits`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from ...kernels import LogitEdits, send
from ...kernels.logit_edits import IN_PROMPT, MAX_COUNT
from ..request import Phase, Request

FIRST_ROWS = 4


@dataclass(slots=True)
class _RequestRows:
    """The rows of one request; -1 for none."""

    request: Request
    count_row: int = -1
    bias_row: int = -1
    num_counted: int = 0


class _Rows:
    """A table that grows, and which of its rows are free."""

    def __init__(self, width: int, dtype: torch.dtype, device: torch.device) -> None:
        self.table = torch.zeros(0, width, dtype=dtype, device=device)
        self.free: list[int] = []

    def take(self, content: npt.NDArray[np.int16] | npt.NDArray[np.float32]) -> int:
        """Writes a row; returns its number."""
        if not self.free:
            held = len(self.table)
            grown = self.table.new_zeros(max(FIRST_ROWS, 2 * held), self.table.shape[1])
            grown[:held] = self.table
            self.table = grown
            self.free += range(len(grown) - 1, held - 1, -1)
        row = self.free.pop()
        self.table[row] = send(content, self.table.device)
        return row


class EditTable:
    """The rows of all requests that edit their logits."""

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self._vocab_size = vocab_size
        self._device = device
        self._places: dict[int, _RequestRows] = {}  # by the identity of the request, which the place keeps alive
        self._counts = _Rows(vocab_size, torch.int16, device)
        self._biases = _Rows(vocab_size, torch.float32, device)

    @property
    def num_bytes(self) -> int:
        """Of the tables: 2 bytes per token of the vocabulary and request with penalties, 4 with biases."""
        return self._counts.table.nbytes + self._biases.table.nbytes

    def begin_step(self) -> None:
        """Takes back the rows of requests that have ended."""
        for key, place in list(self._places.items()):
            if place.request.phase is Phase.FINISHED:
                self._counts.free += [place.count_row] * (place.count_row >= 0)
                self._biases.free += [place.bias_row] * (place.bias_row >= 0)
                del self._places[key]

    def edits(self, rows: Sequence[tuple[Request, Sequence[int]]]) -> LogitEdits | None:
        """What changes the rows of a step, each that of a request after some drafted tokens; None without rows."""
        if not rows:
            return None
        places = [self._place(request) for request, _ in rows]
        self._count(places)
        drafts = [drafted if place.count_row >= 0 else () for (_, drafted), place in zip(rows, places, strict=True)]
        tokens = np.full((len(rows), max(map(len, drafts))), -1, np.int32)
        for index, drafted in enumerate(drafts):
            tokens[index, : len(drafted)] = drafted
        sampling = [request.sampling for request, _ in rows]
        return LogitEdits(
            self._counts.table,
            self._column([place.count_row for place in places], np.int32),
            self._column([params.repetition_penalty for params in sampling], np.float32),
            self._column([params.presence_penalty for params in sampling], np.float32),
            self._column([params.frequency_penalty for params in sampling], np.float32),
            send(tokens, self._device),
            self._biases.table,
            self._column([place.bias_row for place in places], np.int32),
        )

    def _column(self, values: list[int] | list[float], dtype: type[np.int32 | np.float32]) -> torch.Tensor:
        return send(np.array(values, dtype), self._device)

    def _place(self, request: Request) -> _RequestRows:
        """The rows of a request; what it has said since they were looked at last is not counted yet."""
        place = self._places.get(id(request))
        if place is None:
            place = _RequestRows(request)
            if not request.sampling.edits_logits:
                return place
            self._places[id(request)] = place
            if request.sampling.penalises:
                place.count_row = self._counts.take(self._counted(request))
                place.num_counted = len(request.token_ids)
            if request.sampling.logit_bias:
                place.bias_row = self._biases.take(self._bias(request))
        return place

    def _counted(self, request: Request) -> npt.NDArray[np.int16]:
        """The row of all tokens there are."""
        token_ids = np.array(request.token_ids, np.int64)
        output = np.bincount(token_ids[request.num_prompt_tokens :], minlength=self._vocab_size)
        row = np.minimum(output, MAX_COUNT).astype(np.int16)
        row[token_ids[: request.num_prompt_tokens]] |= np.int16(IN_PROMPT)
        return row

    def _bias(self, request: Request) -> npt.NDArray[np.float32]:
        row = np.zeros(self._vocab_size, np.float32)
        for token_id, bias in request.sampling.logit_bias.items():
            row[token_id] = bias
        return row

    def _count(self, places: Sequence[_RequestRows]) -> None:
        """Counts the tokens that are new, of all requests at once: few operations on the device, however many they are.

        A request may have several places here, of which the first counts.
        """
        cells: list[int] = []
        added: list[int] = []
        for place in places:
            if place.count_row >= 0:
                new = Counter(place.request.token_ids[place.num_counted :])
                place.num_counted = len(place.request.token_ids)
                cells += [place.count_row * self._vocab_size + token_id for token_id in new]
                added += new.values()
        if cells:
            table = self._counts.table.view(-1)
            at, more = send(np.array([cells, added], np.int64), self._device)
            stored = table[at].int()
            counts = (stored & MAX_COUNT) + more
            table[at] = (counts.clamp(max=MAX_COUNT) | (stored & IN_PROMPT)).to(torch.int16)
