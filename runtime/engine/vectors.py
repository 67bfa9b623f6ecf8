"""Vectors of texts: the requests that are read for them, and what is made of the hidden states that were read.

A text is tokenised as a whole sequence, with the end token that the checkpoint's tokenizer asks for. Knows no step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import RequestError
from ..models.vector_rules import VectorRules
from ..readout import POOLINGS, Pooling, Readout, Rows
from ..request import SamplingParams
from ..sampling_params import shown
from ..tokenizer.no_tokenizer import refuse_text
from ..tokenizer.tokenizer import Tokenizer

READ = SamplingParams(max_tokens=0, temperature=0.0)
LEAST_NORM = 1e-12  # a vector of nothing stays one


class Vectors:
    """Makes vectors as a checkpoint's files say.

    Attributes:
        rules: what they say.
        size: numbers of a vector.
    """

    def __init__(self, tokenizer: Tokenizer, rules: VectorRules, size: int) -> None:
        self.rules = rules
        self.size = size
        self._tokenizer = tokenizer

    def tokens(self, text: str | Sequence[int], param: str = "texts") -> Sequence[int]:
        """A text as a whole sequence; token ids are taken as they are.

        Raises:
            RequestError: it is empty, neither text nor ids, or there is no tokenizer.
        """
        if not hasattr(text, "__len__"):
            raise RequestError(f"{param}: expected a text or token ids, got {shown(text)}", param=param)
        if isinstance(text, str) and not self._tokenizer.has_text:
            refuse_text(param, "send it as token ids")
        if not len(text):
            raise RequestError(f"{param}: it is empty; give at least one token", param=param)
        return self._tokenizer.encode_whole(text) if isinstance(text, str) else text

    def check(self, dimensions: int | None, normalise: bool | None = None) -> None:
        """Raises RequestError: one of these is of another type, or out of range."""
        if dimensions is not None and (isinstance(dimensions, bool) or not isinstance(dimensions, int)):
            raise RequestError(f"dimensions: expected an integer, got {shown(dimensions)}", param="dimensions")
        if dimensions is not None and not 1 <= dimensions <= self.size:
            text = f"dimensions: {shown(dimensions)} is out of range; this model's vectors have {self.size} numbers"
            raise RequestError(text, param="dimensions")
        if normalise is not None and not isinstance(normalise, bool):
            raise RequestError(f"normalise: expected True or False, got {shown(normalise)}", param="normalise")

    def finish(
        self, found: Sequence[Rows | None], dimensions: int | None = None, normalise: bool | None = None
    ) -> Rows:
        """Vectors `[n, dimensions]` of what was read: cut to the first `dimensions`, and then of length 1 if they are
        normalised (None: as the checkpoint says).

        Raises:
            RequestError: the model's hidden states are no numbers.
        """
        rows = [vector for vector in found if vector is not None]
        vectors = np.stack(rows) if rows else np.empty((0, self.size), np.float32)
        if not np.isfinite(vectors).all():
            raise RequestError(
                "the model's hidden states are not numbers here; if it is loaded as float16, "
                'dtype="bfloat16" or "float32" has the range that this text needs'
            )
        vectors = vectors[:, :dimensions]
        if not (self.rules.normalises if normalise is None else normalise):
            return vectors
        norms = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
        normalised: Rows = (vectors / np.maximum(norms, LEAST_NORM)).astype(np.float32)
        return normalised


def readout_of(
    pooling: Pooling | None, logits_of: Sequence[int], num_tokens: int, sampling: SamplingParams
) -> Readout | None:
    """What is read of a request with a prompt of `num_tokens`; None: it is answered.

    Raises:
        RequestError: the options contradict each other.
    """
    if pooling is None and not logits_of:
        return None
    if pooling is not None and (logits_of or pooling not in POOLINGS):
        known = ", ".join(map(repr, POOLINGS))
        raise RequestError(f"pooling: {shown(pooling)}; it is one of {known}, without logits_of", param="pooling")
    if sampling.max_tokens != 0 or sampling.n != 1 or sampling.prompt_logprobs_from is not None:
        name = "logits_of" if logits_of else "pooling"
        text = f"{name}: such a request is read and not answered; give SamplingParams(max_tokens=0) alone"
        raise RequestError(text, param=name)
    return Readout(num_tokens, pooling or "last", tuple(logits_of))
