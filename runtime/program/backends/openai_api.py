"""Servers with OpenAI's API as backends: states with messages go to chat completions, plain text goes to completions.

A request says only what OpenAI's own server knows; what others know besides is a line in `DIALECTS`. What is asked
for and an API cannot do is an error.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from ....errors import ProgramError, RequestError
from ...constrain.spec import ConstraintSpec
from ...request import Delta, FinishReason, SamplingParams, TokenLogprob, Usage
from ..run import DeltaStream
from .characters import Characters, sent_prompt
from .http_call import Call, HttpClient
from .remote_stream import RemoteStream
from .text_api import TextServer, changed_fields, closed, unsaid

Dialect = Literal["openai", "vllm", "sglang"]
OFFICIAL = "https://api.openai.com/v1"
OWN = ("max_tokens", "temperature", "stop", "logprobs")  # said in a way of their own
KNOWN = ("top_p", "seed", "presence_penalty", "frequency_penalty", "n")
MORE = ("top_k", "min_p", "repetition_penalty", "min_tokens", "ignore_eos", "stop_token_ids")  # vLLM's and SGLang's
REASONS = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH}

SPECIAL = re.compile(r"[\\.^$*+?()\[\]{}|]")  # in every dialect of regular expressions; `re.escape` has more
Field = Callable[[Any], dict[str, Any]]
DIALECTS: Mapping[str, Mapping[str, Field]] = MappingProxyType(
    {
        "openai": {},
        "vllm": {
            "regex": lambda source: {"structured_outputs": {"regex": source}},
            "choice": lambda source: {"structured_outputs": {"choice": list(source)}},
            "grammar": lambda source: {"structured_outputs": {"grammar": source}},
        },
        "sglang": {
            "regex": lambda source: {"regex": source},
            "choice": lambda source: {"regex": "|".join(SPECIAL.sub(r"\\\g<0>", text) for text in source)},
            "grammar": lambda source: {"ebnf": source},
        },
    }
)
"""How each kind of constraint is asked for, besides JSON, which all know. All but the first know `MORE` too."""


class OpenAI(TextServer):
    """Programs run on a server with OpenAI's API: OpenAI itself, vLLM, SGLang, llama.cpp … See `run.Backend`."""

    def __init__(
        self,
        model_name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        dialect: Dialect = "openai",
        timeout: float = 600.0,
        max_retries: int = 2,
    ) -> None:
        """
        Args:
            base_url: with `/v1`; None: the environment's `OPENAI_BASE_URL`, or OpenAI's own server.
            api_key: None: the environment's `OPENAI_API_KEY`.
            dialect: what the server knows besides OpenAI's fields: "vllm" and "sglang" take regular expressions,
                choices, grammars, `top_k` and the like, and go on with a message that has begun.
            timeout: seconds without a byte after which a request fails.
            max_retries: how often a server that is busy (429, 503) is asked again.

        Raises:
            ProgramError: it is no URL, or no dialect.
        """
        if dialect not in DIALECTS:
            raise ProgramError(f"OpenAI: dialect: {dialect!r} is not one of {', '.join(DIALECTS)}")
        url = base_url or os.environ.get("OPENAI_BASE_URL") or OFFICIAL
        key = api_key or os.environ.get("OPENAI_API_KEY")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        label = f"OpenAI({model_name!r}, dialect={dialect!r})"
        hints = {401: "give the key: backend=phloem.OpenAI(model, api_key=…), or OPENAI_API_KEY in the environment"}
        super().__init__(label, model_name, HttpClient(url, headers, timeout, max_retries, hints=hints))
        self._dialect = dialect
        self._is_official = url.startswith("https://api.openai.com/")

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
        body = self._body(sampling, namespace, adapter) | {"stream": True, "stream_options": {"include_usage": True}}
        body |= self._constraint(constraint) if constraint is not None else {}
        if not said.is_chat:
            body |= {"prompt": said.text}
            body |= {"max_tokens": sampling.max_tokens} if sampling.max_tokens is not None else {}
            body |= {"logprobs": sampling.logprobs} if sampling.logprobs is not None else {}
            return self._stream("/completions", body, sampling, constraint)
        messages = [{"role": role, "content": text} for role, text in said.messages]
        if said.text:
            if self._dialect == "openai":
                raise self._lacks(
                    "go on with an assistant's message that has begun: put gen alone into assistant(…), or, if the"
                    " server can, say so with dialect="
                )
            messages.append({"role": "assistant", "content": said.text})
            body |= {"continue_final_message": True, "add_generation_prompt": False}
        body["messages"] = messages
        if sampling.max_tokens is not None:
            body["max_completion_tokens" if self._is_official else "max_tokens"] = sampling.max_tokens
        if sampling.logprobs is not None:
            body |= {"logprobs": True, "top_logprobs": sampling.logprobs}
        return self._stream("/chat/completions", body, sampling, constraint)

    def begin_scores(
        self,
        prompt: Sequence[int],
        continuations: Sequence[Sequence[int]],
        *,
        namespace: str = "",
        adapter: str | None = None,
    ) -> Sequence[DeltaStream]:
        """A request for each, whose prompt is echoed with log-probabilities."""
        said = sent_prompt(prompt)
        if said.is_chat:
            raise self._lacks(
                "score a given text in a chat, as select does; use gen(json_schema=Literal[…]), or select in a state"
                " without messages"
            )
        streams: list[DeltaStream] = []
        for continuation in continuations:
            text = said.text + self._tokenizer.decode(continuation)
            body = self._body(SamplingParams(temperature=0.0), namespace, adapter)
            body |= {"prompt": text, "max_tokens": 0, "echo": True, "logprobs": 1}
            reader = AnswerReader(self._tokenizer, 1, scored_from=len(said.text))
            streams.append(RemoteStream(self._client.call("/completions", body), reader.read, 1, None))
        return streams

    def _stream(
        self, path: str, body: Mapping[str, Any], sampling: SamplingParams, constraint: ConstraintSpec | None
    ) -> DeltaStream:
        reader = AnswerReader(self._tokenizer, sampling.n)
        return RemoteStream(self._client.call(path, body), reader.read, sampling.n, constraint)

    def _body(self, sampling: SamplingParams, namespace: str, adapter: str | None) -> dict[str, Any]:
        """What all requests have. Fields at their defaults are left to the server, but for the temperature."""
        more = MORE if self._dialect != "openai" else ()
        said, unknown = changed_fields(sampling, (*OWN, *KNOWN, *more), namespace, adapter)
        if unknown:
            raise self._lacks(f"say {', '.join(unknown)}")
        body: dict[str, Any] = {"model": self._model, "temperature": sampling.temperature}
        body |= {name: value for name, value in said.items() if name not in OWN}
        return body | ({"stop": list(sampling.stop)} if sampling.stop else {})

    def _constraint(self, constraint: ConstraintSpec) -> dict[str, Any]:
        if (what := unsaid(constraint)) is not None:
            raise self._lacks(what)
        if constraint.kind == "json_object":
            return {"response_format": {"type": "json_object"}}
        if constraint.kind == "json_schema":
            schema = json.loads(str(constraint.source))
            if constraint.extra_keys == "never":
                schema = closed(schema)
            asked = {"name": "value", "schema": schema, "strict": True}
            return {"response_format": {"type": "json_schema", "json_schema": asked}}
        field = DIALECTS[self._dialect].get(constraint.kind)
        if field is None:
            raise self._lacks(f"constrain an answer by {constraint.kind}; use json_schema")
        return field(constraint.source)


class AnswerReader:
    """What both routes answer, streamed or whole, as deltas.

    scored_from: characters of an echoed prompt before the text whose log-probabilities are wanted.
    """

    def __init__(self, tokenizer: Characters, num_outputs: int, scored_from: int | None = None) -> None:
        self._tokenizer = tokenizer
        self._usages = [Usage() for _ in range(num_outputs)]
        self._scored_from = scored_from

    def read(self, call: Call, events: Iterator[Any]) -> Iterator[Delta]:
        for event in events:
            if event.get("error"):
                raise call.error(None, event)
            yield from (self._delta(str(event.get("id", "")), choice) for choice in event.get("choices", ()))
            if event.get("usage"):
                self._count(event["usage"])

    def _delta(self, request_id: str, choice: Mapping[str, Any]) -> Delta:
        message = choice.get("delta") or choice.get("message") or {}
        text = choice.get("text") or message.get("content") or ""
        if message.get("refusal"):
            raise RequestError(f"the model refuses: {message['refusal']}")
        entries = self._entries(choice["logprobs"]) if choice.get("logprobs") else ()
        is_scored = self._scored_from is not None
        reason = choice.get("finish_reason")
        if reason and reason not in REASONS:
            raise RequestError(f"the answer ended early: {reason}")
        index = choice.get("index", 0)
        return Delta(
            request_id,
            index,
            "" if is_scored else text,
            () if is_scored else tuple(map(ord, text)),
            REASONS[reason] if reason else None,
            self._usages[index],
            logprobs=() if is_scored else entries,
            prompt_logprobs=entries if is_scored else (),
        )

    def _entries(self, logprobs: Mapping[str, Any]) -> tuple[TokenLogprob, ...]:
        number = self._tokenizer.number
        if logprobs.get("content") is not None:  # of a chat
            return tuple(
                TokenLogprob(
                    number(one["token"]),
                    one["logprob"],
                    tuple((number(top["token"]), top["logprob"]) for top in one.get("top_logprobs") or ()),
                )
                for one in logprobs["content"]
            )
        tokens = logprobs.get("tokens") or ()
        tops = logprobs.get("top_logprobs") or [None] * len(tokens)
        offsets = logprobs.get("text_offset") or [0] * len(tokens)
        found = zip(tokens, logprobs.get("token_logprobs") or (), tops, offsets, strict=True)
        least = self._scored_from or 0
        return tuple(
            TokenLogprob(number(token), logprob, tuple((number(one), p) for one, p in (top or {}).items()))
            for token, logprob, top, offset in found
            if logprob is not None and (self._scored_from is None or offset + len(token) > least)
        )

    def _count(self, usage: Mapping[str, Any]) -> None:
        """It is that of all outputs together."""
        details = usage.get("prompt_tokens_details") or {}
        for one in self._usages:
            one.prompt_tokens = usage.get("prompt_tokens") or 0
            one.cached_tokens = details.get("cached_tokens") or 0
        if len(self._usages) == 1:
            self._usages[0].completion_tokens = usage.get("completion_tokens") or 0
