"""phloem's own server as a backend: prompts and answers are token ids, so programs say what they say on its engine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from ....errors import ConstraintError, DeadlineExceeded, ProgramError, PromptTooLong, QueueFull, RequestError
from ...constrain.spec import ConstraintSpec
from ...request import Completion, Delta, FinishReason, SamplingParams, TokenLogprob, Usage
from ..run import DeltaStream
from ..task import sampling_of_fork
from .http_call import Call, HttpClient
from .remote_stream import RemoteStream
from .remote_tokenizer import RemoteTokenizer

_KINDS: tuple[type[RequestError], ...] = (PromptTooLong, QueueFull, DeadlineExceeded, *ConstraintError.__subclasses__())
ERRORS = {str(kind.code): kind for kind in _KINDS}
REFUSED = ("logit_bias", "allowed_token_ids", "bad_words")
SAID_OTHERWISE = ("max_tokens", "stop", "stop_token_ids", "prompt_logprobs_from", *REFUSED)
# fields of SamplingParams that the server knows by the same name
SENT = tuple(field.name for field in fields(SamplingParams) if field.name not in SAID_OTHERWISE)
TOKEN_NAME = "token_id:"
QUESTION_SECONDS = 60.0  # most that the tokenizer may be silent for


class RuntimeEndpoint:
    """Programs run on the phloem server at a URL. See `run.Backend`.

    A run's `adapter` is asked for as the request's model, its `namespace` as the `cache_salt`.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        verify: str | None = None,
        *,
        model: str | None = None,
        timeout: float = 600.0,
        max_retries: int = 2,
    ) -> None:
        """
        Args:
            base_url: `http://host:8000`, with or without `/v1`.
            verify: a file of certificates to trust instead of the system's.
            model: a name that the server must know; None: whatever it serves.
            timeout: seconds without a byte after which a request fails.
            max_retries: how often a server whose queue is full is asked again.

        Raises:
            ProgramError: it is no URL. Nothing is asked before a program runs.
        """
        self._client = HttpClient(
            base_url.rstrip("/").removesuffix("/v1"),
            {"Authorization": f"Bearer {api_key}"} if api_key else {},
            timeout,
            max_retries,
            verify,
            ERRORS,
            {401: "give the server's key: backend=phloem.RuntimeEndpoint(url, api_key=…)"},
        )
        self._model = model
        hints = {
            **self._client.hints,
            404: "is it phloem's? The servers of others are phloem.OpenAI(model, base_url=…)",
        }
        asked = replace(self._client, timeout=min(timeout, QUESTION_SECONDS), hints=hints)
        self._tokenizer = RemoteTokenizer(asked)

    @property
    def tokenizer(self) -> RemoteTokenizer:
        return self._tokenizer

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
        if any(getattr(sampling, name) for name in REFUSED):
            raise ProgramError(f"{', '.join(REFUSED)}: give them to an engine in this process")
        scored_from = sampling.prompt_logprobs_from
        room = self._tokenizer.max_model_len - len(prompt)
        wanted = room if sampling.max_tokens is None else sampling.max_tokens
        body = self._body(namespace, adapter) | {name: getattr(sampling, name) for name in SENT}
        body |= {
            "prompt": list(prompt),
            "max_tokens": min(wanted, room) if room > 0 and not sampling.beyond_context else wanted,
            "stop": list(sampling.stop),
            "stop_token_ids": list(sampling.stop_token_ids),
            "return_token_ids": True,
            "stream": scored_from is None,
            **({"stream_options": {"include_usage": True}} if scored_from is None else {}),
            **({"logprob_start_len": scored_from} if scored_from is not None else {}),
            **(constraint_fields(constraint) if constraint is not None else {}),
        }
        num_scored = 0 if scored_from is None else len(prompt) - scored_from
        return self._stream(body, sampling, constraint, num_scored)

    def _stream(
        self,
        body: dict[str, Any],
        sampling: SamplingParams,
        constraint: ConstraintSpec | None,
        num_scored: int,
        begun: Delta | None = None,
    ) -> DeltaStream:
        """A request; begun: what was said already, if it goes on from there."""

        def go_on(said: Delta, number: int) -> DeltaStream:
            own = sampling_of_fork(replace(sampling, n=1), number)
            more = {"n": 1, "seed": own.seed, "output_ids": list(said.token_ids)}
            return self._stream({**body, **more}, own, constraint, num_scored, said)

        reader = CompletionReader(sampling.n, sampling.logprobs or 0, num_scored, begun=begun)
        call = self._client.call("/v1/completions", body)
        return RemoteStream(call, reader.read, sampling.n, constraint, self._learn, go_on)

    def begin_scores(
        self,
        prompt: Sequence[int],
        continuations: Sequence[Sequence[int]],
        *,
        namespace: str = "",
        adapter: str | None = None,
    ) -> Sequence[DeltaStream]:
        """All in one request."""
        body = self._body(namespace, adapter) | {
            "prompt": [[*prompt, *continuation] for continuation in continuations],
            "max_tokens": 0,
            "logprobs": 0,
            "logprob_start_len": len(prompt),
        }
        shared = SharedAnswer(self._client.call("/v1/completions", body))
        return [
            RemoteStream(shared.call, CompletionReader(1, 0, len(ids), shared, index).read, 1, None, self._learn)
            for index, ids in enumerate(continuations)
        ]

    def flush_cache(self) -> int:
        """Drops what no request uses; how many blocks that were. Only of a server with `--enable-admin`."""
        return int(self._client.call("/flush_cache", {}).json()["num_freed_blocks"])

    def _body(self, namespace: str, adapter: str | None) -> dict[str, Any]:
        model = adapter if adapter is not None else self._model
        return {
            "return_tokens_as_token_ids": True,
            **({"model": model} if model is not None else {}),
            **({"cache_salt": namespace} if namespace else {}),
        }

    def _learn(self, completions: list[Completion]) -> None:
        """The bytes of all tokens that are about to be looked at, in one question."""
        entries = [entry for one in completions for entry in (*one.logprobs, *one.prompt_logprobs)]
        tops = [token_id for entry in entries for token_id, _ in entry.top]
        ids = [token_id for one in completions for token_id in one.token_ids]
        self._tokenizer.learn([*ids, *(entry.token_id for entry in entries), *tops])


class SharedAnswer:
    """One answer to several requests; the first that is read waits for it."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self._lock = threading.Lock()
        self._events: list[Any] | None = None

    def events(self) -> list[Any]:
        with self._lock:
            if self._events is None:
                self._events = list(self.call.events())
            return self._events


class CompletionReader:
    """What `/v1/completions` answers, as deltas.

    num_tops: alternatives that were asked for; num_scored: tokens of the prompt whose log-probabilities come first;
    shared: where the events are instead, of which only the choice `only` counts; begun: what comes first of all.
    """

    def __init__(
        self,
        num_outputs: int,
        num_tops: int,
        num_scored: int,
        shared: SharedAnswer | None = None,
        only: int = 0,
        begun: Delta | None = None,
    ) -> None:
        self._usages = [Usage() for _ in range(num_outputs)] if begun is None else [begun.usage]
        self._begun = begun
        self._num_tops = num_tops
        self._num_scored = num_scored
        self._shared = shared
        self._only = only

    def read(self, call: Call, events: Iterator[Any]) -> Iterator[Delta]:
        if self._begun is not None:
            yield self._begun
        for event in events if self._shared is None else self._shared.events():
            if "error" in event:
                raise call.error(None, event)
            for choice in event["choices"]:
                if self._shared is None or choice["index"] == self._only:
                    yield self._delta(event["id"], choice)
            if event.get("usage"):
                self._count(event["usage"])

    def _delta(self, request_id: str, choice: Mapping[str, Any]) -> Delta:
        index = 0 if self._shared is not None else choice["index"]
        token_ids = tuple(choice.get("token_ids", ()))
        usage = self._usages[index]
        usage.completion_tokens += len(token_ids)
        entries = self._entries(choice["logprobs"]) if choice.get("logprobs") else ()
        reason = choice.get("finish_reason")
        return Delta(
            request_id,
            index,
            choice["text"],
            token_ids,
            FinishReason(reason) if reason is not None else None,
            usage,
            logprobs=entries[self._num_scored :],
            prompt_logprobs=entries[: self._num_scored],
            stopped_by=choice.get("stop_reason"),
        )

    def _entries(self, logprobs: Mapping[str, Any]) -> tuple[TokenLogprob, ...]:
        """Of tokens that are named by their ids. A top that is longer than asked for has the token itself last."""
        columns = zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True)
        return tuple(
            TokenLogprob(
                _token_id(name), logprob, tuple((_token_id(one), p) for one, p in list(top.items())[: self._num_tops])
            )
            for name, logprob, top in columns
            if logprob is not None
        )

    def _count(self, usage: Mapping[str, Any]) -> None:
        """Usage comes for all outputs together: the prompt's part is that of each, the rest is known of one alone."""
        prompt, output = usage["prompt_tokens_details"], usage["completion_tokens_details"]
        for one in self._usages:
            one.prompt_tokens = usage["prompt_tokens"]
            one.cached_tokens = prompt["cached_tokens"]
            one.loaded_tokens = prompt.get("loaded_tokens", 0)
        if len(self._usages) == 1:
            self._usages[0].drafted_tokens = output["drafted_tokens"]
            self._usages[0].jumped_tokens = output["jumped_tokens"]
            self._usages[0].dropped_tokens = output.get("dropped_tokens", 0)


def _token_id(name: str) -> int:
    return int(name.removeprefix(TOKEN_NAME))


def constraint_fields(constraint: ConstraintSpec) -> dict[str, Any]:
    """The fields of a request that ask for it."""
    source = constraint.source
    layout = {"whitespace": constraint.whitespace} if constraint.whitespace is not None else {}
    match constraint.kind:
        case "regex":
            return {"regex": source}
        case "choice":
            return {"structured_outputs": {"choice": list(source)}}
        case "grammar":
            return {"ebnf": source}
        case "structural_tag":
            return {"structural_tag": json.loads(str(source))}
        case "json_object":
            return {"response_format": {"type": "json_object", **layout}}
        case "json_schema":
            asked = {"name": "value", "schema": json.loads(str(source))}
            options: dict[str, Any] = {"key_order": constraint.key_order, "extra_keys": constraint.extra_keys, **layout}
            if constraint.resources:
                options["resources"] = json.loads(constraint.resources)
            return {"response_format": {"type": "json_schema", "json_schema": asked, **options}}
