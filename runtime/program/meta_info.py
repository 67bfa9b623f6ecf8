"""What is known about a generation or a selection besides its text: the dicts that `s.get_meta_info(name)` returns.

Keys follow SGLang's `meta_info`, so that programs which read them go on working. Knows no engine and no state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..request import Completion, FinishReason, TokenLogprob, Usage
from .chat_format import TextTokenizer


def generation_info(tokenizer: TextTokenizer, completion: Completion) -> dict[str, Any]:
    """Counts, the reason of the end and, if asked for, log-probabilities as `(logprob, token id, text)`."""
    info = count_info(completion.request_id, completion.usage, completion.finish_reason)
    if completion.logprobs:
        info["output_token_logprobs"] = _entries(tokenizer, completion.logprobs)
        info["output_top_logprobs"] = _tops(tokenizer, completion.logprobs)
    if completion.prompt_logprobs:
        info["input_token_logprobs"] = _entries(tokenizer, completion.prompt_logprobs)
        info["input_top_logprobs"] = _tops(tokenizer, completion.prompt_logprobs)
    return info


def count_info(request_id: str, usage: Usage, finish_reason: FinishReason | None = None) -> dict[str, Any]:
    """The counts so far; finish_reason: None while it is under way."""
    return {
        "id": request_id,
        "finish_reason": {"type": finish_reason.value} if finish_reason is not None else None,
        "prompt_tokens": usage.prompt_tokens,
        "cached_tokens": usage.cached_tokens,
        "loaded_tokens": usage.loaded_tokens,
        "completion_tokens": usage.completion_tokens,
        "forked_tokens": usage.forked_tokens,
        "drafted_tokens": usage.drafted_tokens,
        "jumped_tokens": usage.jumped_tokens,
    }


def selection_info(
    tokenizer: TextTokenizer, prompt_tokens: int, means: Sequence[float], scored: Sequence[Sequence[TokenLogprob]]
) -> dict[str, Any]:
    """The mean log-probability of each choice, and those of its tokens."""
    return {
        "prompt_tokens": prompt_tokens,
        "normalized_prompt_logprobs": list(means),
        "input_token_logprobs": [_entries(tokenizer, tokens) for tokens in scored],
    }


def parsed_value(completion: Completion, dtype: type | None) -> object:
    """The text as a value: of the dtype, or what the constraint describes. None if the output was cut short."""
    if dtype is None:
        return completion.parsed
    text = completion.text.strip()
    if dtype is str:
        return text[1:-1] if len(text) > 1 and text.endswith('"') else None
    if dtype is bool:
        return {"True": True, "False": False}.get(text)
    try:
        return dtype(text)
    except ValueError:
        return None


def _tops(tokenizer: TextTokenizer, tokens: Sequence[TokenLogprob]) -> list[list[tuple[float, int, str]]]:
    return [[(logprob, token_id, tokenizer.decode([token_id])) for token_id, logprob in token.top] for token in tokens]


def _entries(tokenizer: TextTokenizer, tokens: Sequence[TokenLogprob]) -> list[tuple[float, int, str]]:
    return [(token.logprob, token.token_id, tokenizer.decode([token.token_id])) for token in tokens]
