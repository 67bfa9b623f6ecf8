"""Constraints in `transformers`: a logits processor for `model.generate`.

::

    vocabulary = ph.Vocabulary.from_transformers(tokenizer, size=model.config.vocab_size)
    constraint = ph.Compiler(vocabulary).json_schema(schema)
    processor = ConstraintProcessor(constraint, max_new_tokens=200)
    model.generate(**inputs, max_new_tokens=200, logits_processor=[processor])

It keeps no place of its own: which cursor belongs to a row is found by the row's tokens, so beams may be reordered,
candidates of assisted generation refused, and rows repeated. Where there are fewer texts than beams, `generate` fills
up the sampled ones with tokens of probability 0: such a row has the score -inf, and is left alone. Knows no model.
Cost: one mask per row and step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import ConfigError
from ..fsm import Constraint, Cursor
from .arguments import compiled, number


class ConstraintProcessor:
    """Forbids what a constraint forbids; for one call of `generate`.

    Args:
        constraints: one for all prompts, or a list with one for each.
        max_new_tokens: what `generate` is given; every output is complete within it. None: outputs may be cut short.
        prompt_length: of `input_ids`, in tokens, padding included; None: as long as they are at the first call.

    Raises:
        ConfigError: no text is within `max_new_tokens`, or what is given is no constraint. At the first call: a list
            has not one for each prompt.
    """

    def __init__(
        self,
        constraints: Constraint | Sequence[Constraint],
        *,
        max_new_tokens: int | None = None,
        prompt_length: int | None = None,
    ) -> None:
        self._constraints: list[Constraint] = _listed(constraints)
        self._is_one_each = isinstance(constraints, list | tuple)
        if not self._constraints:
            raise ConfigError("constraints: an empty list; give one for all prompts, or one for each")
        if max_new_tokens is not None:
            max_new_tokens = number("max_new_tokens", max_new_tokens, "a number of tokens")
        if prompt_length is not None:
            prompt_length = number("prompt_length", prompt_length, "a number of tokens", 0)
        for constraint in self._constraints:
            compiled("constraints", constraint)
            # transformers counts the end token
            if max_new_tokens is not None and not constraint.is_within(max_new_tokens - 1):
                least = constraint.min_tokens() + 1
                raise ConfigError(f"max_new_tokens: {max_new_tokens} is too little for any text; give at least {least}")
        self._max_new_tokens = max_new_tokens
        self._prompt_length = prompt_length
        self._cursors: dict[tuple[int, bytes], Cursor | None] = {}  # None: a text that is not in the constraint

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """input_ids `[rows, length]`, scores `[rows, vocabulary]` -> the scores, -inf for what is forbidden.

        Rows of one prompt stand next to each other, as many for each. A row that has ended is left as it is. Where
        all that is allowed has the score -inf already, it gets 0: the constraint goes before `min_new_tokens`.
        """
        if np.ndim(input_ids) != 2 or np.ndim(scores) != 2 or len(input_ids) != len(scores):
            raise ConfigError("input_ids, scores: give tensors [rows, length] and [rows, vocabulary], of as many rows")
        if self._prompt_length is None:
            self._prompt_length = input_ids.shape[1]
        written = input_ids[:, self._prompt_length :].cpu().numpy().astype(np.int64)
        each = len(written) // len(self._constraints)
        if self._is_one_each and (not self._cursors or each * len(self._constraints) != len(written)):
            self._check_number(input_ids[:, : self._prompt_length], each)
        found: dict[tuple[int, bytes], Cursor | None] = {}
        allowed, is_live = np.ones(scores.shape, np.bool_), np.zeros(len(written), np.bool_)
        for row, tokens in enumerate(written):
            which = row // each
            cursor = found[which, tokens.tobytes()] = self._cursor(which, tokens)
            if cursor is not None and not cursor.is_finished:
                allowed[row], is_live[row] = _flags(self._bits(cursor), scores.shape[1]), True
        self._cursors = found
        may, live = (torch.from_numpy(flags).to(scores.device) for flags in (allowed, is_live))
        masked = scores.masked_fill(~may, -torch.inf)
        nothing_left = live & masked.isneginf().all(1)  # others forbid what has to come, as min_new_tokens does the end
        return masked.masked_fill(nothing_left[:, None] & may, 0.0)

    def _check_number(self, prompts: Tensor, each: int) -> None:
        """ConfigError if a constraint of the list would be that of several prompts, or of a part of one's rows."""
        count = len(self._constraints)
        is_fit = each * count == len(prompts) and torch.equal(prompts, prompts[::each].repeat_interleave(each, dim=0))
        if not is_fit:
            raise ConfigError(
                f"constraints: a list of {count} for {len(prompts)} rows of the batch; give one for each prompt, or "
                "one alone without a list"
            )

    def _bits(self, cursor: Cursor) -> np.ndarray:
        if self._max_new_tokens is None:
            return cursor.row()
        return cursor.row_within(self._max_new_tokens - 1 - cursor.num_consumed)

    def _cursor(self, which: int, tokens: np.ndarray) -> Cursor | None:
        """Where a row is: what the row without its last token was at the last call, and that token."""
        now, before = (which, tokens.tobytes()), (which, tokens[:-1].tobytes())
        if now in self._cursors:
            return self._cursors[now]
        if len(tokens) and before in self._cursors:
            last = self._cursors[before]
            cursor = None if last is None else last.fork()
            is_within = cursor is None or cursor.is_finished or cursor.advance(int(tokens[-1]))
            return cursor if is_within else None
        cursor = self._constraints[which].cursor()
        for token_id in tokens.tolist():
            if cursor.is_finished:
                break  # padding
            if not cursor.advance(token_id):
                raise ConfigError(
                    f"token {token_id} is not in the constraint; a processor is for one call of generate, and "
                    "prompt_length is that of its input_ids"
                )
        return cursor


def _listed(constraints: object) -> list[Any]:
    return [*constraints] if isinstance(constraints, list | tuple) else [constraints]


def _flags(bits: np.ndarray, width: int) -> np.ndarray:
    flags = np.unpackbits(bits.view(np.uint8), bitorder="little").view(np.bool_)[:width]
    return flags if len(flags) == width else np.pad(flags, (0, width - len(flags)))
