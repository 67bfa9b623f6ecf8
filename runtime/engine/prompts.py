"""Prompts as callers give them: text to be tokenised, lists, arrays or tensors of ids, each checked; one or several.

Knows a tokenizer and the width of the logits, no request. An `array("i")` of ids is taken as it is, which costs next to
nothing however long it is.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from contextlib import suppress
from numbers import Integral, Number
from typing import TypeGuard, TypeVar, cast

import numpy as np

from ...errors import RequestError
from ..sampling_params import shown
from ..tokenizer.no_tokenizer import refuse_text
from ..tokenizer.tokenizer import Tokenizer

Prompt = str | Sequence[int]
T = TypeVar("T")


class TokenIds:
    """Of one tokenizer; ids must lie below `vocab_size`. All raise RequestError, which names the parameter."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size

    def of_prompt(self, prompt: Prompt) -> array[int]:
        """Those of a prompt, which is not empty; text with the beginning-of-text token if the tokenizer adds one."""
        if isinstance(prompt, str):
            token_ids = array("i", self._tokenizer.encode_prompt(prompt))
        else:
            token_ids = self.of_ids(prompt, "prompt")
        if not token_ids:
            raise RequestError("prompt: it is empty; give at least one token", param="prompt")
        return token_ids

    def of_prediction(self, prediction: Prompt) -> array[int]:
        """Those of a text that follows another."""
        if isinstance(prediction, str):
            if not self._tokenizer.has_text:
                refuse_text("prediction", "send it as token ids")
            return array("i", self._tokenizer.encode(prediction))
        return self.of_ids(prediction, "prediction")

    def of_ids(self, given: object, param: str) -> array[int]:
        """Ids in the vocabulary, from any sequence of integers, an array or a tensor."""
        ids, size = _as_sequence(given, param), self._vocab_size
        is_array = isinstance(ids, array) and ids.typecode == "i"
        # The usual cases in C; the loop finds out which id is wrong.
        if is_array or {int}.issuperset(map(type, ids)):
            with suppress(OverflowError):
                token_ids = ids if isinstance(ids, array) else array("i", ids)
                numbers = np.frombuffer(token_ids, np.int32)
                if not numbers.size or (numbers.min() >= 0 and numbers.max() < size):
                    return token_ids
        for position, token_id in enumerate(ids):
            if isinstance(token_id, bool) or not isinstance(token_id, Integral) or not 0 <= token_id < size:
                raise RequestError(
                    f"{param}: {shown(token_id)} at position {position} is not a token id in [0, {size})", param=param
                )
        return array("i", ids)


def _as_sequence(given: object, param: str) -> Sequence[int]:
    """Ids as a sequence: those of a NumPy array or a tensor as Python's integers."""
    if not isinstance(given, Sequence) and hasattr(given, "tolist"):
        given = given.tolist()
    if isinstance(given, (bytes, bytearray)) or not isinstance(given, Sequence):
        raise RequestError(f"{param}: expected text or token ids, got {type(given).__name__}", param=param)
    return given


def for_each(prompts: Sequence[Prompt], given: T | Sequence[T], name: str, *, is_one: bool) -> Sequence[T]:
    """What was given for each of the prompts; one for all of them, if it is no list."""
    if not isinstance(given, (list, tuple)):
        return [cast(T, given)] * len(prompts)
    if is_one:
        raise RequestError(
            f"{name}: a list of {len(given)}, but there is one prompt; give a list of prompts", param=name
        )
    if len(given) != len(prompts):
        text = f"{name}: a list of {len(given)} for {len(prompts)} prompts; give one for each, or a single one for all"
        raise RequestError(text, param=name)
    return given


def is_one_prompt(prompts: Prompt | Sequence[Prompt]) -> TypeGuard[Prompt]:
    """Whether it is one: a text, or ids."""
    if isinstance(prompts, str) or not isinstance(prompts, Sequence):  # arrays and tensors are no sequences
        return getattr(prompts, "ndim", 1) == 1
    return len(prompts) > 0 and isinstance(prompts[0], Number)
