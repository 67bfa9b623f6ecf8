"""What a step decides: tokens that are on the device first, and on the host when they are read.

::

    sampler.launch ──► UnreadOutputs.token_ids, on the device ──► the next forward may compute on them
                            └──► transfers to the host, queued at once ──► read() ──► one SamplerOutput per extend

Knows tensors; what the tokens do to a request is the stepper's matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ...errors import RequestError
from ...kernels import Logprobs
from ..device import Reading
from ..request import TokenLogprob
from .token_notes import Decision


@dataclass(slots=True)
class SamplerOutput:
    """What was decided for one extend.

    Attributes:
        token_ids: one per decided row, in order; empty while a prompt is still being computed. The first follows the
            last known token, each further one holds only if the draft agreed with all before.
        logprobs: one per token, if asked for.
        prompt_logprobs: of prompt tokens whose predecessor's logits this step computed.
        decisions: of the decided rows of a request with `notes` and a constraint (see `token_notes`).
        rows: of a request with a readout, the rows that this step computed for it, `[n, size]`.
        error: the request's constraint failed; nothing was decided.
        is_postponed: its mask takes long and is not ready yet; nothing was decided, and is decided in a later step.
    """

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprob] = field(default_factory=list)
    decisions: Sequence[Decision] = ()
    rows: npt.NDArray[np.float32] | None = None
    error: RequestError | None = None
    is_postponed: bool = False


class UnreadLogprobs:
    """Log-probabilities on their way to the host."""

    __slots__ = ("_readings",)

    def __init__(self, found: Logprobs) -> None:
        self._readings = [Reading(values) for values in found]

    def read(self) -> Logprobs:
        """Waits for them."""
        return Logprobs(*(reading.tensor() for reading in self._readings))


@dataclass(frozen=True, slots=True)
class PromptReport:
    """Log-probabilities of prompt tokens (`followers`), for one extend."""

    output: SamplerOutput
    followers: list[int]
    found: UnreadLogprobs
    num_top: int


@dataclass(frozen=True, slots=True)
class TokenReport:
    """Log-probabilities of the tokens decided for one extend: some rows (`span`) of what was found."""

    output: SamplerOutput
    found: UnreadLogprobs
    span: slice
    num_top: int


@dataclass(frozen=True, slots=True)
class RowReport:
    """Rows of hidden states, or of some logits, for one extend."""

    output: SamplerOutput
    reading: Reading


@dataclass(frozen=True, slots=True)
class UnreadOutputs:
    """What was decided for a batch and is not on the host yet, except what is known without the device.

    Attributes:
        outputs: by extend; errors and postponements are known, tokens and log-probabilities come with `read`.
        spans: by extend, the rows of `token_ids` that are its own.
        token_ids: `[R]` int64 on the device, -1 where nothing is allowed.
    """

    outputs: list[SamplerOutput]
    spans: list[slice]
    token_ids: Tensor
    reading: Reading
    prompt_reports: list[PromptReport]
    token_reports: list[TokenReport]
    row_reports: list[RowReport]

    def read(self) -> list[SamplerOutput]:
        """The outputs, complete. Waits until the device has decided them, and for nothing queued after that."""
        token_ids: list[int] = self.reading.tensor().tolist()
        for output, span in zip(self.outputs, self.spans, strict=True):
            output.token_ids = token_ids[span]
        for scored in self.prompt_reports:
            scored.output.prompt_logprobs = _listed(scored.followers, scored.found.read(), scored.num_top)
        for report in self.token_reports:
            own = report.found.read().of_rows(report.span)
            report.output.logprobs = _listed(report.output.token_ids, own, report.num_top)
        for rows in self.row_reports:
            rows.output.rows = rows.reading.tensor().numpy()
        return self.outputs


def _listed(token_ids: list[int], found: Logprobs, num_top: int) -> list[TokenLogprob]:
    """What was found, one per token."""
    own: list[float] = found.chosen.tolist()
    if not num_top:
        return [TokenLogprob(t, value) for t, value in zip(token_ids, own, strict=True)]
    ids, values = found.top_ids[:, :num_top].tolist(), found.top[:, :num_top].tolist()
    tops = [tuple(zip(i, v, strict=True)) for i, v in zip(ids, values, strict=True)]
    return [TokenLogprob(t, value, top) for t, value, top in zip(token_ids, own, tops, strict=True)]


def cause_of(what: str, error: BaseException) -> RequestError:
    """An exception as the error of a request."""
    if isinstance(error, RequestError):
        return error
    if not isinstance(error, Exception):
        return RequestError(f"{what} was interrupted")
    return RequestError(f"{what} failed: " + ": ".join(filter(None, (type(error).__name__, str(error)))))
