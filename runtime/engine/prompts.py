"""Prompts as callers give them: one, or several, and what is given for each. Knows no engine."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Number
from typing import TypeGuard, TypeVar, cast

from ...errors import RequestError
from .token_ids import Prompt

T = TypeVar("T")


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
