"""What the answers of chats and completions share, as plain dicts in OpenAI's shapes. Knows tokens and usage, no HTTP.

Beyond OpenAI's fields, `usage.completion_tokens_details` says how the tokens came about: `jumped_tokens` (foreseen,
and taken in a step they did not need), `drafted_tokens` and `sampled_tokens`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..cache.cache_explanation import CacheExplanation
from ..request import Delta, TokenLogprob, Usage
from .prefill import transfer_params
from .prepare import EngineCall
from .protocol import StreamOptions
from .stream import DONE, frame

if TYPE_CHECKING:
    from ..tokenizer.tokenizer import Tokenizer
    from .service import Service

LOWEST_LOGPROB = -9999.0  # JSON has no -Infinity; OpenAI sends this number


class Output:
    """What has come of one output, for an answer that is shown whole."""

    def __init__(self) -> None:
        self.token_ids: list[int] = []
        self.logprobs: list[TokenLogprob] = []
        self.reason: str | None = None
        self.stopped_by: str | int | None = None

    def push(self, delta: Delta, logprobs: Sequence[TokenLogprob], reason: str | None) -> None:
        """logprobs: those of its tokens that are shown; reason: why it has ended, in the wire's words."""
        self.token_ids += delta.token_ids
        self.logprobs += logprobs
        self.reason = reason
        self.stopped_by = delta.stopped_by

    def endings(self, *, shows_ids: bool) -> dict[str, Any]:
        return endings(self.stopped_by, self.token_ids if shows_ids else None)


class Choices:
    """The choices of one answer: the body around them, with the usage where it is due.

    Args:
        kind: of the body: "chat.completion" or "text_completion".

    Attributes:
        usages: for each prompt the last usage of its outputs, by index.
        reasoning_tokens: how many there are so far.
    """

    def __init__(
        self,
        service: Service,
        kind: str,
        model: str,
        options: StreamOptions | None,
        calls: Sequence[EngineCall],
    ) -> None:
        self._service = service
        self._options = options or StreamOptions()
        self._calls = calls
        self._explains = explains(calls)
        prefix = "chatcmpl" if kind == "chat.completion" else "cmpl"
        self._head = {
            "id": f"{prefix}-{uuid.uuid4().hex}",
            "object": kind,
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": service.fingerprint,
        }
        self._chunk_head = self._head | ({"object": f"{kind}.chunk"} if kind == "chat.completion" else {})
        self.usages: list[dict[int, Usage]] = [{} for _ in calls]
        self.reasoning_tokens = 0

    def chunk(self, choice: dict[str, Any]) -> dict[str, Any]:
        body = self._chunk_head | {"choices": [choice]}
        if self._options.continuous_usage_stats:
            body["usage"] = self._usage()
        elif self._options.include_usage:
            body["usage"] = None
        return body

    def end(self) -> bytes:
        """The last frames of a stream."""
        if not self._options.include_usage:
            return DONE
        return frame(self._chunk_head | {"choices": [], "usage": self._usage()}) + DONE

    def whole(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        transfer = transfer_params(self._service.engine, str(self._head["id"]), self._calls)
        return self._head | {"choices": choices, "usage": self._usage()} | transfer

    def _usage(self) -> dict[str, Any]:
        outputs = [[usages[index] for index in sorted(usages)] for usages in self.usages]
        return usage_body(outputs, self._explains, reasoning_tokens=self.reasoning_tokens)


def explains(calls: Sequence[EngineCall]) -> list[bool]:
    """Of each call whether its caller asked why no more was cached; to be read before the calls are recorded."""
    return [bool(call.options.get("explain_cache")) for call in calls]


def usage_body(
    usages: Sequence[Sequence[Usage]], explains: Sequence[bool], *, reasoning_tokens: int = 0
) -> dict[str, Any]:
    """The usage of an answer. A prompt shared by n outputs counts once.

    Args:
        usages: for each prompt the usage of its outputs; empty while it has none.
        explains: for each prompt whether the answer says why no more of it was cached.
    """
    total = Usage()
    prompts: list[CacheExplanation | None] = []
    for outputs, is_explained in zip(usages, explains, strict=True):
        if not outputs:
            continue
        why = next((usage.cache_explanation for usage in outputs if usage.cache_explanation), None)
        prompts.append(why if is_explained else None)
        total.prompt_tokens += outputs[0].prompt_tokens
        total.cached_tokens += outputs[0].cached_tokens
        total.loaded_tokens += outputs[0].loaded_tokens
        total.pinned_tokens += max(usage.pinned_tokens for usage in outputs)
        for usage in outputs:
            total.completion_tokens += usage.completion_tokens
            total.drafted_tokens += usage.drafted_tokens
            total.jumped_tokens += usage.jumped_tokens
            total.accepted_prediction_tokens += usage.accepted_prediction_tokens
            total.rejected_prediction_tokens += usage.rejected_prediction_tokens
            total.dropped_tokens += usage.dropped_tokens
    return {
        "prompt_tokens": total.prompt_tokens,
        "completion_tokens": total.completion_tokens,
        "total_tokens": total.total_tokens,
        "prompt_tokens_details": {
            "cached_tokens": total.cached_tokens,
            **pin_details(total),
            **cache_details(prompts),
        },
        "completion_tokens_details": {
            "reasoning_tokens": reasoning_tokens,
            "jumped_tokens": total.jumped_tokens,
            "drafted_tokens": total.drafted_tokens,
            "sampled_tokens": total.sampled_tokens,
            "accepted_prediction_tokens": total.accepted_prediction_tokens,
            "rejected_prediction_tokens": total.rejected_prediction_tokens,
            **drop_details(total),
        },
    }


def pin_details(usage: Usage) -> dict[str, int]:
    """How many prompt tokens stay cached on the request's behalf, and how many of the cached ones were read from a
    tier below the pool, if any."""
    counts = {"loaded_tokens": usage.loaded_tokens, "pinned_tokens": usage.pinned_tokens}
    return {name: count for name, count in counts.items() if count}


def drop_details(usage: Usage) -> dict[str, int]:
    """How many tokens' keys and values were dropped (`kv_budget`), if any."""
    return {"dropped_tokens": usage.dropped_tokens} if usage.dropped_tokens else {}


def cache_details(prompts: Sequence[CacheExplanation | None]) -> dict[str, Any]:
    """Why no more of the prompt was cached, where that was asked for: an object, or one for each of several prompts."""
    if not any(prompts):
        return {}
    shown = [{**asdict(prompt), "sentence": prompt.sentence} if prompt is not None else None for prompt in prompts]
    return {"cache_explanation": shown[0] if len(shown) == 1 else shown}


def chat_logprobs(logprobs: Sequence[TokenLogprob], tokenizer: Tokenizer, *, as_ids: bool = False) -> dict[str, Any]:
    """The `logprobs` object of a chat choice. as_ids: tokens are named by their ids, as in `token_name`."""
    content = []
    for entry in logprobs:
        shown = _chat_token(entry.token_id, entry.logprob, tokenizer, as_ids)
        shown["top_logprobs"] = [_chat_token(token_id, logprob, tokenizer, as_ids) for token_id, logprob in entry.top]
        content.append(shown)
    return {"content": content, "refusal": None}


def token_name(tokenizer: Tokenizer, token_id: int, *, as_ids: bool) -> str:
    """A token among log-probabilities: its text, which others may have too, or `token_id:` and its number (vLLM's)."""
    return f"token_id:{token_id}" if as_ids else tokenizer.token_text(token_id)


def _chat_token(token_id: int, logprob: float, tokenizer: Tokenizer, as_ids: bool) -> dict[str, Any]:
    return {
        "token": token_name(tokenizer, token_id, as_ids=as_ids),
        "logprob": max(logprob, LOWEST_LOGPROB),
        "bytes": list(tokenizer.token_bytes(token_id)),
    }


class CompletionLogprobs:
    """The four parallel arrays of `/v1/completions`; keeps the text offset over the chunks of one output.

    as_ids: tokens are named by their ids, as in `token_name`.
    """

    def __init__(self, tokenizer: Tokenizer, *, as_ids: bool = False) -> None:
        self._tokenizer = tokenizer
        self._as_ids = as_ids
        self._offset = 0

    def body(self, logprobs: Sequence[TokenLogprob], *, first_unscored: int | None = None) -> dict[str, Any]:
        """`first_unscored`: an echoed prompt's first token, which has no log-probability."""
        tokens: list[str] = []
        scores: list[float | None] = []
        tops: list[dict[str, float] | None] = []
        offsets: list[int] = []
        entries: list[tuple[int, TokenLogprob | None]] = [(entry.token_id, entry) for entry in logprobs]
        if first_unscored is not None:
            entries.insert(0, (first_unscored, None))
        for token_id, entry in entries:
            tokens.append(token_name(self._tokenizer, token_id, as_ids=self._as_ids))
            offsets.append(self._offset)
            self._offset += len(self._tokenizer.token_bytes(token_id).decode("utf-8", "replace"))
            scores.append(max(entry.logprob, LOWEST_LOGPROB) if entry is not None else None)
            tops.append(self._top(entry) if entry is not None else None)
        return {"tokens": tokens, "token_logprobs": scores, "top_logprobs": tops, "text_offset": offsets}

    def _top(self, entry: TokenLogprob) -> dict[str, float]:
        """The likeliest tokens and, as OpenAI has it, the token itself if it is none of them."""
        shown: dict[str, float] = {}
        for token, logprob in (*entry.top, (entry.token_id, entry.logprob)):
            shown.setdefault(token_name(self._tokenizer, token, as_ids=self._as_ids), max(logprob, LOWEST_LOGPROB))
        return shown


def endings(stopped_by: str | int | None, token_ids: Sequence[int] | None) -> dict[str, Any]:
    """vLLM's fields of a choice that has ended: what stopped it, if something did, and its tokens, if wanted."""
    found: dict[str, Any] = {"stop_reason": stopped_by} if stopped_by is not None else {}
    return found | ({"token_ids": list(token_ids)} if token_ids is not None else {})
