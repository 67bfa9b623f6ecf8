"""How an answer came about, in words and on its tokens: what was cached, jumped, drafted, sampled.

Knows no engine and no terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from .conversation import Answer

Run = tuple[str, bool]
"""Text of tokens that came about in the same way: whether they were jumped over."""


def sentences(answer: Answer) -> list[str]:
    """Of the prompt and of the answer."""
    usage = answer.usage
    num_computed = usage.prompt_tokens - usage.cached_tokens
    loaded = f" ({usage.loaded_tokens} of them from a tier below the pool)" if usage.loaded_tokens else ""
    found = usage.cache_explanation
    rejected = usage.drafted_tokens - usage.jumped_tokens
    drafted = f"; {usage.drafted_tokens} were drafted, and {rejected} of them rejected" if usage.drafted_tokens else ""
    return [
        f"prompt: {usage.prompt_tokens} tokens, {usage.cached_tokens} cached{loaded}, {num_computed} computed",
        *([] if found is None else [found.sentence, *_divergence(found.agreed_text, found.differing_text)]),
        f"answer: {usage.completion_tokens} tokens in {usage.num_steps} steps, {usage.sampled_tokens} sampled,"
        f" {usage.jumped_tokens} jumped{drafted}" + (" (interrupted)" if answer.is_cut else ""),
    ]


def _divergence(agreed: str, differing: str) -> list[str]:
    if not differing:
        return []
    begins = f"{differing!r}…"  # both texts are cut where they are far from the place
    return [f"it agreed up to …{agreed!r} and differed from {begins} on" if agreed else f"it began {begins}"]


def runs(answer: Answer, show: Callable[[Sequence[int]], str]) -> list[Run]:
    """The answer's text in runs of tokens that were jumped over or not. show: text of tokens, for people."""
    jumped = set(answer.usage.jumped_at)
    grouped = groupby(enumerate(answer.token_ids), lambda one: one[0] in jumped)
    return [(show([token_id for _, token_id in run]), is_jumped) for is_jumped, run in grouped]
