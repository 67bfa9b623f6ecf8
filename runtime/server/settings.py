"""How the server behaves: one frozen value, validated once. Nothing here concerns the engine."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from ...errors import ConfigError
from ..constrain.spec import ExtraKeys
from ..setting import check_choices, setting
from .formats.call_formats import CALL_FORMATS

CacheIsolation = Literal["auto", "key", "none"]
MetricNames = Literal["phloem", "vllm", "sglang"]
ReasoningFormat = Literal["auto", "none", "think"]
if TYPE_CHECKING:
    ToolCallFormat = str
else:
    ToolCallFormat = Literal[("auto", "none", *CALL_FORMATS)]  # the table is the one place that names them


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings of one HTTP application.

    Attributes:
        model_name: the name clients send as `model`; further names are `aliases`.
        api_keys: accepted bearer keys; empty: no key is asked for.
        cache_isolation: whether callers share cached prefixes. "key": one namespace per API key; "none": shared by
            all; "auto": "key" as soon as there is more than one key.
        max_body_bytes: larger request bodies are answered with 413.
        max_json_depth: deepest nesting of a request body.
        max_outputs: most outputs of one HTTP request (`n` times the number of prompts).
        ping_interval: seconds of silence on a stream after which a comment line is sent.
        body_timeout: seconds a client may take to send its body.
        header_timeout: seconds in which a connection must bring the whole head of a request, counted from when it was
            opened, or from its last answer.
        send_timeout: seconds for which a client's system may take nothing of what is written to it before its
            connection, and with it its request, is ended.
        max_connections: most connections at a time; more are answered with 503. None: what the limit on open files
            leaves, 8192 at most.
        prepare_timeout: seconds that tokenisation, template and constraint compilation may take.
        drain_timeout: seconds that running requests get to finish after SIGTERM.
        retry_after: seconds of the `Retry-After` that clients get which are refused because the queue is full.
        cors_origins: browser origins that may call the server; empty: none.
        admin: whether `GET /cache` shows the prefix tree (with the beginnings of prompts) and `POST /flush_cache` is
            served.
        page: whether the live page is served at `/` (see `page`); None: where the server listens on a loopback address
            only, which `phloem serve` knows; an application by itself has none then.
        check_host: whether requests must be for `localhost`, an IP address or the host of one of `cors_origins`, so
            that no page of a foreign name that is bound to this address reads answers (DNS rebinding); None: where the
            server listens on a loopback address only and has no key, which `phloem serve` knows.
        adapter_loading: whether `POST /v1/load_lora_adapter` and `/v1/unload_lora_adapter` are served. A caller
            of them has the server open any folder that it can read.
        tool_call_format: how the model writes tool calls (see `formats.call_formats`); "auto": as its chat template
            shows them, "none": calls are not looked for in free text.
        reasoning_format: whether answers begin with a thought in tags (see `formats.thoughts`); "auto": as the chat
            template shows, "think": they do, "none": tags are content. Harmony's channels are read whatever it says.
        extra_keys: whether objects under a request's schema may have keys that it does not name, where neither the
            schema nor the request says so; "schema": as JSON Schema has it, they may.
        reranker_template: the prompt of a reranker (see `reranker`): a file, or "qwen3"; None: that of the checkpoint,
            if its files say that it is one.
        metric_names: whose metric names `/metrics` uses in addition to phloem's own ("vllm" or "sglang").
        otlp_traces_endpoint: where traces of requests are sent (see `tracing`); None: there are none.
        sampling_defaults: what a request is sampled with where it says nothing, by the names of its fields; what is
            not in it is OpenAI's default.
    """

    model_name: str = "nano"
    aliases: tuple[str, ...] = ()
    api_keys: tuple[str, ...] = setting((), "Key that callers must send (may be repeated).", flag="api-key")
    cache_isolation: CacheIsolation = setting(
        "auto", "Whether API keys see each other's cached prefixes; auto: not if there are several keys."
    )
    max_body_bytes: int = setting(1 << 20, "Largest request body (1MiB …).", size=True)
    max_json_depth: int = 100
    max_outputs: int = 1024
    ping_interval: float = 15.0
    body_timeout: float = 30.0
    header_timeout: float = setting(
        30.0, "Seconds in which a connection must bring a request's head; also the keep-alive timeout.", least=0.1
    )
    send_timeout: float = 60.0
    max_connections: int | None = setting(
        None,
        "Most connections at a time; more get 503. Default: 8192, or what the limit on open files leaves.",
        least=1,
    )
    prepare_timeout: float = 30.0
    drain_timeout: float = setting(30.0, "Seconds that running requests get after SIGTERM.", least=0)
    retry_after: int = 1
    cors_origins: tuple[str, ...] = setting((), "Browser origin that may call (repeatable).", flag="cors-origin")
    metric_names: MetricNames = setting("phloem", "Also use the metric names of …")
    admin: bool = setting(
        False,
        "Show the prefix tree (beginnings of prompts) on GET /cache, and serve POST /flush_cache.",
        flag="enable-admin",
    )
    page: bool | None = setting(
        None, "Serve the live page at /. Default: where --host is a loopback address.", flag="page"
    )
    check_host: bool | None = setting(
        None,
        "Take requests for localhost and IP addresses alone. Default: where --host is loopback, without a key.",
        flag="check-host",
    )
    adapter_loading: bool = setting(
        False,
        "Serve POST /v1/load_lora_adapter and /v1/unload_lora_adapter (callers name folders of this disk).",
        flag="enable-adapter-loading",
    )
    tool_call_format: ToolCallFormat = setting(
        "auto", "How the model writes tool calls; auto: as its chat template shows them.", "--tool-call-parser"
    )
    reasoning_format: ReasoningFormat = setting(
        "auto", "Whether answers begin with <think> … </think>; auto: as the chat template shows.", "--reasoning-parser"
    )
    extra_keys: ExtraKeys = setting(
        "never", "Keys that a request's schema does not name: never, or as JSON Schema defines it."
    )
    reranker_template: str | None = setting(
        None, "The model is a reranker, with the prompt in this file; qwen3: with that of Qwen3-Reranker."
    )
    otlp_traces_endpoint: str | None = setting(
        None, "Send traces of requests to this OpenTelemetry collector, http://HOST:4317 (phloem[otel])."
    )
    sampling_defaults: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if any(not key or not key.isascii() or not key.isprintable() or " " in key for key in self.api_keys):
            raise ConfigError("api_key: a key must be non-empty printable ASCII without spaces")
        check_choices(self)
        if self.cache_isolation == "key" and not self.api_keys:
            raise ConfigError('cache_isolation: "key" needs at least one API key (--api-key)')
        if not self.model_name:
            raise ConfigError("served_model_name: give a non-empty name")
        for name in ("max_body_bytes", "max_json_depth", "max_outputs", "retry_after"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: {getattr(self, name)} is out of range; it must be at least 1")
        if self.max_connections is not None and self.max_connections < 1:
            raise ConfigError(f"max_connections: {self.max_connections} is out of range; it must be at least 1")
        for name in ("ping_interval", "body_timeout", "header_timeout", "send_timeout", "prepare_timeout"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name}: {getattr(self, name)} is out of range; it must be above 0 seconds")
        if self.otlp_traces_endpoint is not None:
            _check_collector(self.otlp_traces_endpoint)

    @property
    def isolates_keys(self) -> bool:
        return self.cache_isolation == "key" or (self.cache_isolation == "auto" and len(self.api_keys) > 1)


def _check_collector(url: str) -> None:
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        raise ConfigError(f"otlp_traces_endpoint: {url!r} is no address of a collector; write http://127.0.0.1:4317")
    try:
        found = all(importlib.util.find_spec(f"opentelemetry.{name}") for name in ("sdk", "exporter.otlp.proto.grpc"))
    except ModuleNotFoundError:
        found = False
    if not found:
        raise ConfigError("otlp_traces_endpoint: needs OpenTelemetry; run pip install 'phloem[otel]'")
