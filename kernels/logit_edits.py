"""LogitEdits: what a request changes in its own logits before they are sampled, as tables that live on the device.

::

    counts   [S, V] int16   one row per request with penalties: bits 0-14 how often a token stands in the output (up to
                            32,767), bit 15 (the sign) whether it stands in the prompt. A new token is one increment.
    biases   [S, V] fp32    one row per request with biases
    rows     [R]    int32   which row of the tables a row of logits uses, -1 for none

A dense row of counts for a vocabulary of 128k tokens is 256 KB, the size of two tokens' KV in an 8B model; kept sparse
it would have to be searched for every logit. The definitions are OpenAI's for bias, presence and frequency, CTRL's
(arXiv 1909.05858) for repetition; the order is that of vLLM's sampler (`vllm/v1/sample/sampler.py`)::

    x = x + bias
    x = x / repetition if x > 0 else x * repetition        for tokens of prompt or output
    x = x - (presence + frequency * count)                 for tokens of the output, count times
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

MAX_COUNT = 0x7FFF
IN_PROMPT = -0x8000


@dataclass(frozen=True, slots=True)
class LogitEdits:
    """Edits of the rows of a step; all tensors on one device.

    Attributes:
        counts: `[S, V]` int16, see above.
        count_rows: `[R]` int32 into counts, -1: no penalties.
        repetition, presence, frequency: `[R]` fp32.
        drafted: `[R, D]` int32, tokens that are taken as written for this row only (a draft), -1 for none; D may be 0.
        biases: `[B, V]` fp32; B may be 0.
        bias_rows: `[R]` int32 into biases, -1: none.
    """

    counts: Tensor
    count_rows: Tensor
    repetition: Tensor
    presence: Tensor
    frequency: Tensor
    drafted: Tensor
    biases: Tensor
    bias_rows: Tensor
