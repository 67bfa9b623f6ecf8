"""Anthropic's messages API as a backend. What it cannot do is an error; nothing is left out in silence."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ....errors import RequestError
from ...constrain.spec import ConstraintSpec
from ...request import Delta, FinishReason, SamplingParams, Usage
from ..run import DeltaStream
from .characters import sent_prompt
from .http_call import Call, HttpClient
from .remote_stream import RemoteStream
from .text_api import TextServer, changed_fields, closed, unsaid

OFFICIAL = "https://api.anthropic.com"
VERSION = "2023-06-01"
OWN = ("max_tokens", "stop")  # said in a way of their own
KNOWN = ("temperature", "top_p", "top_k")
REASONS = {"end_turn": FinishReason.STOP, "stop_sequence": FinishReason.STOP, "max_tokens": FinishReason.LENGTH}


class Anthropic(TextServer):
    """Programs run on a server with Anthropic's messages API. See `run.Backend`."""

    def __init__(
        self,
        model_name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float = 600.0,
        max_retries: int = 2,
    ) -> None:
        """
        Args:
            base_url: without `/v1`; None: the environment's `ANTHROPIC_BASE_URL`, or Anthropic's own server.
            api_key: None: the environment's `ANTHROPIC_API_KEY`.
            timeout: seconds without a byte after which a request fails.
            max_retries: how often a server that is busy (429, 503, 529) is asked again.

        Raises:
            ProgramError: it is no URL.
        """
        url = base_url or os.environ.get("ANTHROPIC_BASE_URL") or OFFICIAL
        key = api_key or os.environ.get("ANTHROPIC_API_KEY")
        headers = {"anthropic-version": VERSION, **({"x-api-key": key} if key else {})}
        hints = {
            401: "give the key: backend=phloem.Anthropic(model, api_key=…), or ANTHROPIC_API_KEY in the environment"
        }
        client = HttpClient(url, headers, timeout, max_retries, hints=hints)
        super().__init__(f"Anthropic({model_name!r})", model_name, client)

    def submit(
        self,
        prompt: Sequence[int],
        sampling: SamplingParams | None = None,
        constraint: ConstraintSpec | None = None,
        *,
        namespace: str = "",
        adapter: str | None = None,
    ) -> DeltaStream:
        sampling = sampling or SamplingParams()
        said = sent_prompt(prompt)
        if not said.is_chat:
            raise self._lacks("go on with plain text; put it into user(…), and gen into assistant(…)")
        body = self._body(sampling, namespace, adapter) | {"stream": True}
        messages = said.messages
        if messages and messages[0][0] == "system":
            body["system"] = messages[0][1]
            messages = messages[1:]
        if any(role == "system" for role, _ in messages):
            raise self._lacks("say a system message after others; begin with it")
        body["messages"] = [{"role": role, "content": text} for role, text in messages]
        if said.text:
            body["messages"].append({"role": "assistant", "content": said.text})
        if constraint is not None:
            body["output_config"] = {"format": {"type": "json_schema", "schema": self._schema(constraint)}}
        return RemoteStream(self._client.call("/v1/messages", body), AnswerReader().read, 1, constraint)

    def begin_scores(
        self,
        prompt: Sequence[int],
        continuations: Sequence[Sequence[int]],
        *,
        namespace: str = "",
        adapter: str | None = None,
    ) -> Sequence[DeltaStream]:
        raise self._lacks("ask for log-probabilities, by which select compares; use gen(json_schema=Literal[…])")

    def _body(self, sampling: SamplingParams, namespace: str, adapter: str | None) -> dict[str, Any]:
        """What all requests have. Fields at their defaults are left to the server."""
        said, unknown = changed_fields(sampling, (*OWN, *KNOWN), namespace, adapter)
        if unknown:
            raise self._lacks(f"say {', '.join(unknown)}")
        if not sampling.max_tokens:
            raise self._lacks("leave max_tokens open, or at 0; give a number")
        body: dict[str, Any] = {"model": self._model, "max_tokens": sampling.max_tokens}
        body |= {name: value for name, value in said.items() if name not in OWN}
        return body | ({"stop_sequences": list(sampling.stop)} if sampling.stop else {})

    def _schema(self, constraint: ConstraintSpec) -> Any:
        if constraint.kind != "json_schema":
            raise self._lacks(f"constrain an answer by {constraint.kind}; use json_schema")
        if (what := unsaid(constraint)) is not None:
            raise self._lacks(what)
        schema = json.loads(str(constraint.source))
        return closed(schema) if constraint.extra_keys == "never" else schema


class AnswerReader:
    """The events of an answer, as deltas of its text."""

    def __init__(self) -> None:
        self._usage = Usage()
        self._id = ""

    def read(self, call: Call, events: Iterator[Any]) -> Iterator[Delta]:
        for event in events:
            match event:
                case {"type": "error"}:
                    raise call.error(None, event)
                case {"type": "message_start", "message": {"id": str(found), "usage": dict(usage)}}:
                    self._id = found
                    self._count(usage)
                case {"type": "content_block_delta", "delta": {"type": "text_delta", "text": str(text)}}:
                    yield Delta(self._id, 0, text, tuple(map(ord, text)), None, self._usage)
                case {"type": "message_delta", "delta": {"stop_reason": str(reason)}}:
                    self._count(event.get("usage") or {})
                    if reason not in REASONS:
                        raise RequestError(f"the answer ended early: {reason}")
                    yield Delta(self._id, 0, "", (), REASONS[reason], self._usage)
                case _:
                    event["type"]  # pings, thoughts, ends of blocks

    def _count(self, usage: Mapping[str, Any]) -> None:
        if usage.get("input_tokens") is not None:
            self._usage.cached_tokens = usage.get("cache_read_input_tokens") or 0
            created = usage.get("cache_creation_input_tokens") or 0
            self._usage.prompt_tokens = usage["input_tokens"] + self._usage.cached_tokens + created
        self._usage.completion_tokens = usage.get("output_tokens") or self._usage.completion_tokens
