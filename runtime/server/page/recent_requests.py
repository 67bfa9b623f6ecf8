"""The requests under way and the last that ended: where their time went, how they were cached, how they ended.

It reads what each request's record has gathered (`request_record`); of one that has ended the record goes, and plain
values stay. No text of a prompt is in them, except with admin rights that of the explanation of a miss. Kept is what
asked the engine, and what was refused before it did.
"""

from __future__ import annotations

import time
from collections import deque
from itertools import islice
from typing import Any

from ...cache.cache_explanation import CacheExplanation
from ..request_record import RequestRecord

MAX_REQUESTS = 200
NO_MISS = ("complete", "disabled")  # all was cached, or nothing can be


class RecentRequests:
    """Told of every request by the gate.

    Args:
        model_name: of requests through no adapter.
        shows_text: whether the explanation of a miss may quote the prompt.
    """

    def __init__(self, model_name: str, *, shows_text: bool) -> None:
        self._model_name = model_name
        self._shows_text = shows_text
        self._under_way: dict[str, tuple[str, RequestRecord]] = {}  # by id: route and record
        self._ended: deque[dict[str, Any]] = deque(maxlen=MAX_REQUESTS)

    def begin(self, request_id: str, path: str, record: RequestRecord) -> None:
        """A request has come. Its calls of the engine get its id, and say why no more of their prompts was cached."""
        record.request_id, record.asks_why = request_id, True
        self._under_way[request_id] = path, record

    def end(self, request_id: str, route: str | None, status: int, *, is_read_only: bool) -> None:
        """It is over. route: as it was declared; is_read_only: a GET, which asked for nothing to be computed."""
        _, record = self._under_way.pop(request_id)
        was_refused = status >= 400 and route is not None and route.startswith("/v1/") and not is_read_only
        if not (record.calls or was_refused) or any(call.options.get("is_probe") for call in record.calls):
            return
        record.end()
        assert record.ended_at is not None
        shown = self._described(request_id, route or "", record, record.ended_at)
        self._ended.append({**shown, "status": status, "ended_at": record.ended_at})

    def as_data(self) -> dict[str, Any]:
        """For JSON: the newest first, those under way before those that have ended."""
        now = time.monotonic()
        under_way = ((key, *one) for key, one in reversed(self._under_way.items()) if one[1].calls)
        running = [
            {**self._described(request_id, path, record, now), "status": None, "ended_at": None}
            for request_id, path, record in islice(under_way, MAX_REQUESTS)
            if record.ended_at is None
        ]
        return {"requests": [_at(now, one) for one in [*running, *reversed(self._ended)][:MAX_REQUESTS]]}

    def misses(self, most: int) -> list[dict[str, Any]]:
        """The last requests of whose prompts something was not cached, and why.

        A prompt that is new from its second half on is none of them: so is each turn of a chat.
        """
        now = time.monotonic()
        found: list[dict[str, Any]] = []
        for one in reversed(self._ended):
            if len(found) < most and one["cache"] is not None and _has_missed(one):
                ago = round(now - one["ended_at"], 3)
                found.append({"seconds_ago": ago, "request_id": one["request_id"], **one["cache"]})
        return found

    def _described(self, request_id: str, route: str, record: RequestRecord, until: float) -> dict[str, Any]:
        prompts, outputs = record.usages()
        calls = record.calls
        reasons = [one.delta.finish_reason.value for one in record.outputs.values() if one.delta.finish_reason]
        specs = [call.spec.kind for call in calls if call.spec is not None]
        why = next((usage.cache_explanation for usage in prompts if usage.cache_explanation is not None), None)
        return {
            "request_id": request_id,
            "route": route,
            "model": (calls[0].options.get("adapter") if calls else None) or self._model_name,
            "began_at": record.began_at,
            "seconds": round(until - record.began_at, 6),
            **_milliseconds(record, until),
            **record.counts(),
            "jumped_tokens": sum(usage.jumped_tokens for usage in outputs),
            "drafted_tokens": sum(usage.drafted_tokens for usage in outputs),
            "preemptions": sum(usage.num_preemptions for usage in outputs),
            "constraint": specs[0] if specs else None,
            "finish_reason": ", ".join(dict.fromkeys(reasons)) or None,
            "error": record.error.get("code"),
            "cache": self._why(why) if why is not None else None,
        }

    def _why(self, why: CacheExplanation) -> dict[str, str]:
        sentence = why.sentence
        if self._shows_text and why.differing_text:
            after = f"After {why.agreed_text!r} comes" if why.agreed_text else "It begins with"
            sentence += f" {after} {why.differing_text!r}."
        return {"reason": why.reason, "sentence": sentence}


def _has_missed(one: dict[str, Any]) -> bool:
    reason = one["cache"]["reason"]
    return reason not in NO_MISS and (reason != "never_seen" or 2 * one["cached_tokens"] < one["prompt_tokens"])


def _milliseconds(record: RequestRecord, until: float) -> dict[str, float | None]:
    """Compilation, then the time until a first output was admitted, until a first token came, until the last did: one
    after the other, and together no more than the request took. None: it has not come to that."""
    parts = list(record.parts(until))
    compiled = [part.ended_at - part.began_at for part in parts if part.name == "compile"]
    admitted_at = [part.ended_at for part in parts if part.name == "queue" and part.was_admitted]
    asked_at, first_at = record.asked_at, record.first_at
    last_at = max((one.last_at for one in record.outputs.values()), default=None)
    admitted = min(admitted_at) if admitted_at else first_at
    is_over = record.ended_at is not None
    return {
        "compile_ms": _span(0.0, sum(compiled)) if compiled else None,
        "queue_ms": _span(asked_at, admitted if admitted is not None else until),
        "prefill_ms": _span(admitted, first_at if first_at is not None else until),
        "decode_ms": _span(first_at, last_at if is_over else until),
    }


def _span(began_at: float | None, ended_at: float | None) -> float | None:
    if began_at is None or ended_at is None:
        return None
    return round(max(0.0, ended_at - began_at) * 1000, 3)


def _at(now: float, one: dict[str, Any]) -> dict[str, Any]:
    shown = {name: value for name, value in one.items() if name != "ended_at"}
    ended_at = one["ended_at"]
    ago = None if ended_at is None else round(now - ended_at, 3)
    return {**shown, "ended_seconds_ago": ago, "time": now, "is_running": ended_at is None}
