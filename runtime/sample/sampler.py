"""Logits → tokens, under each request's parameters and constraint.

Every row of logits is decided on its own, from the same distribution and the same noise as if it had been reached one
token at a time: noise is a pure function of (seed, position, token id). So a drafted token is verified simply by
deciding its row and comparing, which is the exact speculative-sampling rule for a deterministic draft (Leviathan et
al., arXiv 2211.17192, with a point mass as the draft's distribution: accept with probability p(draft), else draw from
the rest), and output does not depend on drafts, batch or cache.

Knows tensors and requests; constraints only through their cursors.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial

import numpy as np
import torch

from ...errors import ConstraintTooLarge, RequestError
from ...fsm import Cursor
from ...kernels import LogitEdits, Logprobs, SamplingRows, ops, send
from ..device import Reading, on_device
from ..execute.batch import Batch, Extend
from ..request import Phase, Request
from .logit_edit_table import EditTable
from .mask_table import MaskTable, Row
from .sampler_output import (
    PromptReport,
    RowReport,
    SamplerOutput,
    TokenReport,
    UnreadLogprobs,
    UnreadOutputs,
    cause_of,
)
from .token_notes import decisions
from .token_rules import TokenRules

# Work that one request's mask may take in one step (`Room.allow`): 2 to 5 ms in a step with others, ten times that
# alone.
MASK_WORK = 25_000
MASK_WORK_ALONE = 250_000
MANY_MASKS = 8  # requests under a constraint that may take so much each; where there are more, they share it
MAX_STOP_SETS = 256  # sets of stop tokens whose rows are kept

NO_MASK = (-1,)
COOLEST = 1e-6  # below, logits that are divided by it leave the range of numbers, and the largest is certain anyway

# What `ops.sample` is given for one row of logits: its index, the slot of its mask (-1: none), temperature, top-k,
# top-p, min-p, seed, position. They travel to the device together, eight bytes each, as whole columns.
_Row = tuple[int, int, float, int, float, float, int, int]
_COLUMN_TYPES = (
    (np.int64, torch.int64),
    (np.int32, torch.int32),
    (np.float32, torch.float32),
    (np.int32, torch.int32),
    (np.float32, torch.float32),
    (np.float32, torch.float32),
    (np.int64, torch.int64),
    (np.int64, torch.int64),
)


def mask_work(num_requests: int, num_constrained: int) -> int:
    """Work that one mask may take in a step, so that all of them together do not take long."""
    if num_requests == 1:
        return MASK_WORK_ALONE
    return MASK_WORK * MANY_MASKS // max(num_constrained, MANY_MASKS)


class Sampler:
    """Chooses tokens for a batch. What it remembers from step to step are rows of masks and of counted tokens.

    Args:
        vocab_size: width of the logits.
        eos_ids: end tokens; like a request's stop tokens they are forbidden before its `min_tokens`.
    """

    def __init__(self, vocab_size: int, eos_ids: tuple[int, ...], device: torch.device) -> None:
        self._masks = MaskTable(-(-vocab_size // 32), device)
        self._edits = EditTable(vocab_size, device)
        self._vocab_size = vocab_size
        self._rows_of_one: dict[int, Row] = {}  # of closing marks
        self._goes_on = lru_cache(MAX_STOP_SETS)(partial(_all_but, vocab_size, eos_ids))
        self._device = device

    def forget(self) -> None:
        """Empties the tables, which a fault may have left half written; they are filled again from the requests."""
        self._masks = MaskTable(-(-self._vocab_size // 32), self._device)
        self._edits = EditTable(self._vocab_size, self._device)

    @property
    def num_table_bytes(self) -> int:
        """Memory of the tables on the device."""
        return self._masks.num_bytes + self._edits.num_bytes

    def choose(self, logits: torch.Tensor, batch: Batch, hidden: torch.Tensor | None = None) -> list[SamplerOutput]:
        """Decides every wanted row of `logits` `[R, vocab_size]`, and waits for the tokens."""
        return self.launch(logits, batch, hidden).read()

    @torch.inference_mode()
    def launch(self, logits: torch.Tensor, batch: Batch, hidden: torch.Tensor | None = None) -> UnreadOutputs:
        """Decides every wanted row of `logits` `[R, vocab_size]`; on a GPU all of it is queued, and nothing waited for.

        Nothing is decided for requests that have ended, nor for those with a readout, which get their rows.

        hidden: of `batch.hidden_rows`; None: there are none.
        """
        with on_device(self._device):
            return self._launch(logits, batch, hidden)

    def _launch(self, logits: torch.Tensor, batch: Batch, hidden: torch.Tensor | None) -> UnreadOutputs:
        self._masks.begin_step()
        self._edits.begin_step()
        outputs = [SamplerOutput() for _ in batch.extends]
        rows: list[_Row] = []
        spans: list[slice] = []
        prompt_reports: list[PromptReport] = []
        row_reports: list[RowReport] = []
        first = first_hidden = 0
        work = mask_work(len(batch.extends), sum(extend.request.cursor is not None for extend in batch.extends))
        for extend, output, num_logits in zip(batch.extends, outputs, batch.num_logits, strict=True):
            num_decided, readout = 0, extend.request.readout
            if readout is not None:
                rows_read = None
                if readout.reads_hidden and hidden is not None:
                    rows_read = hidden[first_hidden : first_hidden + extend.num_wanted]
                    first_hidden += extend.num_wanted
                elif num_logits:
                    rows_read = logits[first : first + num_logits, readout.token_ids].float()
                if rows_read is not None and len(rows_read):
                    row_reports.append(RowReport(output, Reading(rows_read)))
            elif extend.request.phase is not Phase.FINISHED:
                num_decided = len(extend.draft) + 1 if extend.reaches_end else 0
                if num_logits > num_decided:
                    prompt_reports += self._score(logits, first, extend, output, num_logits - num_decided)
            first += num_logits
            if num_decided:
                num_decided = self._gather(extend, output, first - num_decided, num_decided, rows, work)
            spans.append(slice(len(rows) - num_decided, len(rows)))
        token_ids, reports = self._decide(logits, batch.extends, outputs, spans, rows)
        return UnreadOutputs(outputs, spans, token_ids, Reading(token_ids), prompt_reports, reports, row_reports)

    def _decide(
        self,
        logits: torch.Tensor,
        extends: list[Extend],
        outputs: list[SamplerOutput],
        spans: list[slice],
        rows: list[_Row],
    ) -> tuple[torch.Tensor, list[TokenReport]]:
        """Samples the gathered rows, of which each extend has a span: tokens, and log-probabilities if asked for."""
        if not rows:
            return torch.empty(0, dtype=torch.int64, device=self._device), []
        edits, num_top = None, None
        decided = [
            (extend, output, span)
            for extend, output, span in zip(extends, outputs, spans, strict=True)
            if span.start < span.stop
        ]
        if any(extend.request.sampling.edits_logits for extend, _, _ in decided):
            edits = self._edits.edits(
                [
                    (extend.request, extend.draft[:i])
                    for extend, _, span in decided
                    for i in range(span.stop - span.start)
                ]
            )
        wanted = [extend.request.sampling.logprobs for extend, _, _ in decided]
        if None not in wanted:  # out of the same pass
            num_top = max(top for top in wanted if top is not None)
        token_ids, found = self._sample(logits, rows, edits, num_top)
        if found is not None:
            of_all = UnreadLogprobs(found)
            return token_ids, [
                TokenReport(output, of_all, span, top)
                for (_, output, span), top in zip(decided, wanted, strict=True)
                if top is not None
            ]
        reports = []
        for (_, output, span), top in zip(decided, wanted, strict=True):
            if top is not None:
                first, count = rows[span.start][0], span.stop - span.start
                own = ops.logprobs(logits[first : first + count], token_ids[span], top)
                reports.append(TokenReport(output, UnreadLogprobs(own), slice(0, count), top))
        return token_ids, reports

    def _score(
        self, logits: torch.Tensor, first: int, extend: Extend, output: SamplerOutput, num_scored: int
    ) -> list[PromptReport]:
        """Log-probabilities of the prompt tokens that follow the extend's scored rows."""
        if extend.request.sampling.prompt_logprobs_from is None:
            return []
        position = max(extend.start, extend.logits_from) + 1
        followers = list(extend.request.token_ids[position : position + num_scored])
        num_top = extend.request.sampling.logprobs or 0
        token_ids = send(np.array(followers, np.int64), self._device)
        found = ops.logprobs(logits[first : first + len(followers)], token_ids, num_top)
        return [PromptReport(output, followers, UnreadLogprobs(found), num_top)]

    def _gather(
        self, extend: Extend, output: SamplerOutput, first: int, num_decided: int, rows: list[_Row], work: int
    ) -> int:
        """Adds the rows of one extend; returns how many there are (fewer if the draft breaks the constraint)."""
        request = extend.request
        sampling, cursor = request.sampling, request.cursor
        position = len(request.token_ids)
        num_output = position - request.num_prompt_tokens
        num_before_end = sampling.min_tokens - num_output
        goes_on = self._goes_on(sampling.stop_token_ids) if num_before_end > 0 else None
        slots: Sequence[int]
        due = None if request.thought is None else request.thought.due
        if due is not None and (cursor is None or _allows(cursor.row_soon(request.max_tokens - num_output, work), due)):
            slots = [self._masks.slot(self._only(due))]
        elif request.rules is not None:
            try:
                slots = self._rule_slots(
                    request, request.rules, extend.draft[: num_decided - 1], num_before_end, goes_on
                )
            except RequestError as error:
                output.error = error
                return 0
        elif cursor is None:
            slots = NO_MASK if num_decided == 1 else NO_MASK * num_decided
            if goes_on is not None:
                slots = [self._masks.slot(goes_on) if i < num_before_end else -1 for i in range(num_decided)]
        else:
            remaining = request.max_tokens - num_output
            try:
                masks = self._mask_rows(cursor, extend.draft, remaining, num_before_end, goes_on, work)
            except Exception as error:  # the cursor may have been left anywhere
                output.error = cause_of("the constraint", error)
                return 0
            if not masks:
                output.is_postponed = True
                return 0
            slots = [self._masks.slot(row) for row in masks]
            if request.notes is not None:
                output.decisions = decisions(cursor, extend.draft, masks)
        top_k = min(sampling.top_k, self._vocab_size) if sampling.top_k > 0 else 0
        temperature = sampling.temperature if sampling.temperature >= COOLEST else 0.0
        top_p, min_p, seed = sampling.top_p, sampling.min_p, request.seed
        for slot in slots:
            rows.append((first, slot, temperature, top_k, top_p, min_p, seed, position))
            first += 1
            position += 1
        return len(slots)

    def _only(self, token_id: int) -> Row:
        """The row of one token."""
        row = self._rows_of_one.get(token_id)
        if row is None:
            row = np.zeros(-(-self._vocab_size // 32), np.int32)
            row.view(np.uint32)[token_id >> 5] = 1 << (token_id & 31)
            row.flags.writeable = False
            self._rows_of_one[token_id] = row
        return row

    def _rule_slots(
        self, request: Request, rules: TokenRules, draft: list[int], num_before_end: int, goes_on: Row | None
    ) -> list[int]:
        """The masks of a request's rules: at the end of its output, then after each drafted token.

        The first `num_before_end` of them leave out what `goes_on` leaves out: end tokens and stop tokens.

        Raises:
            RequestError: nothing may follow the output. Where nothing may follow a draft, the masks end.
        """
        first = max(request.num_prompt_tokens, len(request.token_ids) - rules.reach)
        said = list(request.token_ids[first:])
        slots: list[int] = []
        for index in range(len(draft) + 1):
            try:
                row = rules.row(said)
                if goes_on is not None and index < num_before_end:
                    row = row & goes_on[: len(row)]
                    if not row.any():
                        raise RequestError(
                            "before 'min_tokens', 'allowed_token_ids' and 'bad_words' leave only tokens that end the "
                            "output; allow more",
                            param="allowed_token_ids",
                        )
            except RequestError:
                if not slots:
                    raise
                break
            slots.append(self._masks.slot(row))
            said += draft[index : index + 1]
        return slots

    def _mask_rows(
        self, cursor: Cursor, draft: list[int], remaining: int, num_before_end: int, goes_on: Row | None, work: int
    ) -> list[Row]:
        """One mask per row: at the cursor, then after each drafted token while the constraint allows it.

        The first `num_before_end` of them leave out what `goes_on` leaves out, where the constraint allows others.

        Ends where a mask is not ready: a heavy one is made over several steps, so that the others get theirs.
        """
        row = cursor.row_soon(remaining, work)
        if row is None:
            return []
        if goes_on is not None:
            row = _without(row, goes_on)
        rows = [row]
        if not draft:
            return rows
        num_advanced = 0
        try:
            for token_id in draft:
                if not cursor.advance(token_id):
                    break
                num_advanced += 1
                row = cursor.row_soon(remaining - num_advanced, work)
                if row is None:
                    break
                if goes_on is not None and num_before_end > num_advanced:
                    row = _without(row, goes_on)
                rows.append(row)
        except ConstraintTooLarge:  # after tokens that may never be written
            pass
        finally:
            if num_advanced:
                cursor.rollback(num_advanced)
        return rows

    def _sample(
        self, logits: torch.Tensor, rows: list[_Row], edits: LogitEdits | None, num_top: int | None
    ) -> tuple[torch.Tensor, Logprobs | None]:
        """The tokens of the gathered rows, and log-probabilities unless `num_top` is None."""
        num_rows = len(rows)
        # every column begins at a multiple of 16 bytes, or an odd number of rows would need kernels of its own
        packed = np.empty((len(_COLUMN_TYPES), num_rows + num_rows % 2), np.int64)
        for column, values, (dtype, _) in zip(packed, zip(*rows, strict=True), _COLUMN_TYPES, strict=True):
            column.view(dtype)[:num_rows] = values
        sent = send(packed, self._device)
        index, *columns = (
            column.view(dtype)[:num_rows] for column, (_, dtype) in zip(sent, _COLUMN_TYPES, strict=True)
        )
        if num_rows != logits.shape[0]:
            logits = logits[index]
        masks = self._masks.tensor()
        return ops.sample(logits, masks if len(masks) else None, SamplingRows(*columns), edits, num_top)


def _allows(row: Row | None, token_id: int) -> bool:
    """Whether a token may come; where the row is not ready, that is for later."""
    return row is not None and bool(row[token_id >> 5] >> (token_id & 31) & 1)


def _without(row: Row, goes_on: Row) -> Row:
    """The row without the tokens that end an output; the row itself if nothing else may come."""
    others = row[: len(goes_on)] & goes_on[: len(row)]
    return others if others.any() else row


def _all_but(vocab_size: int, eos_ids: Sequence[int], stop_token_ids: Sequence[int]) -> Row:
    """The row of all other tokens; ids that the vocabulary does not have count for nothing."""
    flags = np.ones(-(-vocab_size // 32) * 32, np.bool_)
    flags[[token_id for token_id in (*eos_ids, *stop_token_ids) if 0 <= token_id < vocab_size]] = False
    row = np.packbits(flags, bitorder="little").view(np.int32)
    row.flags.writeable = False
    return row
