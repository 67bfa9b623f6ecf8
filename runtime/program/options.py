"""What a run is given besides its program's own arguments."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypedDict

from ...errors import ProgramError
from ..request import SamplingParams
from .api import logprobs_asked
from .backend import AnyBackend


class RunOptions(TypedDict, total=False):
    """What `run` and `run_batch` take besides the program's own arguments.

    The sampling fields are what `gen` uses where it says nothing itself; they mean what they mean in `SamplingParams`.
    """

    max_tokens: int | None
    min_tokens: int
    stop: str | Sequence[str]
    stop_token_ids: Sequence[int]
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    frequency_penalty: float
    presence_penalty: float
    ignore_eos: bool
    logprobs: int | None
    seed: int | None
    n: int
    # SGLang's names for max_tokens and logprobs
    max_new_tokens: int
    return_logprob: bool
    top_logprobs_num: int
    # SGLang's: of the text so far too; and one that says nothing here, for each has its text
    logprob_start_len: int
    return_text_in_logprobs: bool
    # the engine (None: the default one), whose cached prefixes it may share, and a loaded adapter (None: none)
    backend: AnyBackend | None
    namespace: str
    adapter: str | None


RUN_OPTIONS = frozenset(RunOptions.__annotations__)
OF_THE_RUN = ("backend", "namespace", "adapter", "return_text_in_logprobs")
MIN_THREADS = 96  # programs mostly wait for the engine, so there are many more than cores


def check_names(call: str, names: Iterable[str]) -> None:
    """Raises ProgramError, which names the call, if one of the names is no option of a run."""
    unknown = set(names) - RUN_OPTIONS
    if unknown:
        raise ProgramError(f"{call}: {', '.join(sorted(unknown))}: no such option")


def num_threads_of(call: str, num_threads: int | Literal["auto"]) -> int:
    """How many programs run at the same time; "auto": 16 per core, at least 96.

    Raises:
        ProgramError: it is neither; the message names the call.
    """
    if num_threads == "auto":
        return max(MIN_THREADS, 16 * (os.cpu_count() or 1))
    if isinstance(num_threads, bool) or not isinstance(num_threads, int) or num_threads < 1:
        raise ProgramError(f'{call}: num_threads: expected "auto" or a positive integer, got {num_threads!r}')
    return num_threads


def sampling_of(options: RunOptions) -> SamplingParams:
    """What `gen` uses where it says nothing itself.

    Raises:
        RequestError: a field is out of range.
    """
    sampling: dict[str, Any] = {name: value for name, value in options.items() if name not in OF_THE_RUN}
    max_new_tokens = sampling.pop("max_new_tokens", None)
    if max_new_tokens is not None:
        sampling.setdefault("max_tokens", max_new_tokens)
    other_names = ("return_logprob", "top_logprobs_num", "logprob_start_len")
    sampling |= logprobs_asked(sampling.get("logprobs"), *(sampling.pop(name, None) for name in other_names))
    return SamplingParams(**sampling)
