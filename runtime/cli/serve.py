"""`phloem serve`: the OpenAI-compatible server."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from ...errors import ConfigError
from .busy import busy
from .engine_options import Settings, fetched, load_engine, with_engine_options
from .options import ModelArgument, option, read_text, size

if TYPE_CHECKING:
    from ..server import ServerSettings

SERVER = "Server"
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Isolation(StrEnum):
    auto = "auto"
    key = "key"
    none = "none"


class MetricNames(StrEnum):
    phloem = "phloem"
    vllm = "vllm"
    sglang = "sglang"


class ToolCallFormat(StrEnum):
    auto = "auto"
    none = "none"
    hermes = "hermes"
    llama3_json = "llama3_json"
    function_tag = "function_tag"
    mistral = "mistral"
    qwen3_coder = "qwen3_coder"
    glm45 = "glm45"
    glm47 = "glm47"


class ReasoningFormat(StrEnum):
    auto = "auto"
    none = "none"
    think = "think"


class ExtraKeys(StrEnum):
    never = "never"
    schema = "schema"


class SamplingDefaults(StrEnum):
    model = "model"
    openai = "openai"


class LogLevel(StrEnum):
    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


@with_engine_options
def serve(
    settings: Settings,
    model: ModelArgument = "nano",
    host: Annotated[
        str, option("--host", help="Address to listen on; 0.0.0.0 is every interface.", env="HOST", panel=SERVER)
    ] = "127.0.0.1",
    port: Annotated[
        int, option("--port", help="Port; 0 picks a free one.", env="PORT", panel=SERVER, min=0, max=65535)
    ] = 8000,
    api_key: Annotated[
        list[str] | None,
        option("--api-key", help="Key that callers must send (may be repeated).", env="API_KEY", panel=SERVER),
    ] = None,
    api_key_file: Annotated[
        str | None,
        option("--api-key-file", help="File with one key per line.", env="API_KEY_FILE", panel=SERVER),
    ] = None,
    served_model_name: Annotated[
        list[str] | None,
        option(
            "--served-model-name",
            help="Name that callers send as `model` (more: aliases). Default: MODEL.",
            env="SERVED_MODEL_NAME",
            panel=SERVER,
        ),
    ] = None,
    cache_isolation: Annotated[
        Isolation,
        option(
            "--cache-isolation",
            help="Whether API keys see each other's cached prefixes; auto: not if there are several keys.",
            env="CACHE_ISOLATION",
            panel=SERVER,
        ),
    ] = Isolation.auto,
    max_body: Annotated[
        str, option("--max-body-bytes", help="Largest request body (1MiB …).", env="MAX_BODY_BYTES", panel=SERVER)
    ] = "1MiB",
    header_timeout: Annotated[
        float,
        option(
            "--header-timeout",
            help="Seconds in which a connection must bring a request's head; also the keep-alive timeout.",
            env="HEADER_TIMEOUT",
            panel=SERVER,
            min=0.1,
        ),
    ] = 30.0,
    max_connections: Annotated[
        int | None,
        option(
            "--max-connections",
            help="Most connections at a time; more get 503. Default: 8192, or what the limit on open files leaves.",
            env="MAX_CONNECTIONS",
            panel=SERVER,
            min=1,
            show_default=False,
        ),
    ] = None,
    drain_timeout: Annotated[
        float,
        option(
            "--drain-timeout",
            help="Seconds that running requests get after SIGTERM.",
            env="DRAIN_TIMEOUT",
            panel=SERVER,
            min=0,
        ),
    ] = 30.0,
    admin: Annotated[
        bool,
        option(
            "--enable-admin",
            help="Show the prefix tree (beginnings of prompts) on GET /cache, and serve POST /flush_cache.",
            env="ENABLE_ADMIN",
            panel=SERVER,
        ),
    ] = False,
    adapter_loading: Annotated[
        bool,
        option(
            "--enable-adapter-loading",
            help="Serve POST /v1/load_lora_adapter and /v1/unload_lora_adapter (callers name folders of this disk).",
            env="ENABLE_ADAPTER_LOADING",
            panel=SERVER,
        ),
    ] = False,
    cors_origin: Annotated[
        list[str] | None,
        option("--cors-origin", help="Browser origin that may call (repeatable).", env="CORS_ORIGIN", panel=SERVER),
    ] = None,
    metric_names: Annotated[
        MetricNames,
        option("--metric-names", help="Also use the metric names of …", env="METRIC_NAMES", panel=SERVER),
    ] = MetricNames.phloem,
    otlp_traces_endpoint: Annotated[
        str | None,
        option(
            "--otlp-traces-endpoint",
            help="Send traces of requests to this OpenTelemetry collector, http://HOST:4317 (phloem[otel]).",
            env="OTLP_TRACES_ENDPOINT",
            panel=SERVER,
        ),
    ] = None,
    tool_call_format: Annotated[
        ToolCallFormat,
        option(
            "--tool-call-format",
            "--tool-call-parser",
            help="How the model writes tool calls; auto: as its chat template shows them.",
            env="TOOL_CALL_FORMAT",
            panel=SERVER,
        ),
    ] = ToolCallFormat.auto,
    reasoning_format: Annotated[
        ReasoningFormat,
        option(
            "--reasoning-format",
            "--reasoning-parser",
            help="Whether answers begin with <think> … </think>; auto: as the chat template shows.",
            env="REASONING_FORMAT",
            panel=SERVER,
        ),
    ] = ReasoningFormat.auto,
    extra_keys: Annotated[
        ExtraKeys,
        option(
            "--extra-keys",
            help="Keys that a request's schema does not name: never, or as JSON Schema defines it.",
            env="EXTRA_KEYS",
            panel=SERVER,
        ),
    ] = ExtraKeys.never,
    sampling_defaults: Annotated[
        SamplingDefaults,
        option(
            "--sampling-defaults",
            help="Sampling of requests that do not set it: from generation_config.json, or OpenAI's (1.0).",
            env="SAMPLING_DEFAULTS",
            panel=SERVER,
        ),
    ] = SamplingDefaults.model,
    replicas: Annotated[
        int,
        option(
            "--replicas",
            help="Engines, each a process, on Ray Serve; a request goes where it is cached (phloem[ray]).",
            env="REPLICAS",
            panel=SERVER,
            min=1,
        ),
    ] = 1,
    warm_up: Annotated[
        bool,
        option(
            "--warm-up/--no-warm-up",
            help="Before taking requests, build all tables, and on a GPU compile kernels and capture graphs.",
            env="WARM_UP",
            panel=SERVER,
        ),
    ] = True,
    log_level: Annotated[LogLevel, option("--log-level", help="How much to log.", env="LOG_LEVEL", panel=SERVER)] = (
        LogLevel.info
    ),
) -> None:
    """Serves a model over HTTP, in OpenAI's protocol. SIGTERM finishes what runs, then exits."""
    keys = tuple(api_key or ()) + (_keys(api_key_file) if api_key_file is not None else ())
    names = served_model_name or [model]
    from ..server import ServerSettings, create_app
    from ..server.serve import listen, server_of, url_of

    server_settings = ServerSettings(
        model_name=names[0],
        aliases=tuple(names[1:]),
        api_keys=keys,
        cache_isolation=cache_isolation.value,
        max_body_bytes=size(max_body, "--max-body-bytes"),
        header_timeout=header_timeout,
        max_connections=max_connections,
        drain_timeout=drain_timeout,
        admin=admin,
        adapter_loading=adapter_loading,
        cors_origins=tuple(cors_origin or ()),
        metric_names=metric_names.value,
        otlp_traces_endpoint=otlp_traces_endpoint,
        tool_call_format=tool_call_format.value,
        reasoning_format=reasoning_format.value,
        extra_keys=extra_keys.value,
    )
    if replicas > 1:
        _serve_replicas(replicas, fetched(model), settings, server_settings, host, port, sampling_defaults)
        return
    with closing(listen(host, port)) as bound:
        source = fetched(model)
        engine = load_engine(source, settings)
        from ..async_engine import SWITCH_SECONDS, AsyncEngine
        from ..garbage import settle
        from ..huge_pages import gather
        from ..warm_up import warm_up as warm

        if warm_up:
            with busy("warming up"):
                warm(engine)
        settle()
        sys.setswitchinterval(SWITCH_SECONDS)
        gather()
        if sampling_defaults is SamplingDefaults.model:
            server_settings = _sampled_as_the_model_says(server_settings, source)
        served = AsyncEngine(engine)
        try:
            num_blocks = engine.statistics().num_blocks
            typer.echo(f"phloem serves {names[0]} on {url_of(bound)}/v1 ({num_blocks} KV blocks)", err=True)
            if not keys and host not in LOOPBACK:
                typer.echo(f"warning: {host} can be reached from outside, and no --api-key is set", err=True)
            app = create_app(served, server_settings)
            server_of(app, log_level=log_level.value, access_log=log_level == LogLevel.debug).run(sockets=[bound])
        finally:
            served.stop()


def _serve_replicas(
    replicas: int,
    model: str,
    settings: Settings,
    server_settings: ServerSettings,
    host: str,
    port: int,
    defaults: SamplingDefaults,
) -> None:
    from ...cluster.local import serve_here
    from ..server.serve import listen

    one_engines = (
        ("--enable-admin", server_settings.admin),
        ("--enable-adapter-loading", server_settings.adapter_loading),
    )
    for name, given in one_engines:
        if given:
            raise ConfigError(f"{name}: works on one engine only; leave --replicas out")
    if settings.get("kv_events_config") is not None:
        raise ConfigError("--kv-events-config: replicas publish theirs to the router; leave one of the two out")
    listen(host, port).close()  # a port that is taken is known at once
    if not port:
        raise ConfigError("--port 0: with --replicas the port must be named")
    if defaults is SamplingDefaults.model:
        server_settings = _sampled_as_the_model_says(server_settings, model)
    name = server_settings.model_name
    typer.echo(f"starting Ray and {replicas} replicas …", err=True)
    serve_here(
        {"model": model, **settings},
        server_settings,
        replicas=replicas,
        host=host,
        port=port,
        announce=lambda: typer.echo(
            f"phloem serves {name} on http://{host}:{port}/v1 ({replicas} replicas on Ray Serve)", err=True
        ),
    )


def _sampled_as_the_model_says(settings: ServerSettings, model: str) -> ServerSettings:
    from ..models import resolve_model
    from ..models.generation_config import sampling_defaults

    found = sampling_defaults(resolve_model(model))
    if found:
        shown = ", ".join(f"{name} {value:g}" for name, value in found.items())
        typer.echo(f"sampled as the model says, where requests do not: {shown}", err=True)
    return replace(settings, sampling_defaults=found)


def _keys(file: str) -> tuple[str, ...]:
    keys = tuple(line.strip() for line in read_text(file, "--api-key-file").splitlines() if line.strip())
    if not keys:
        raise ConfigError(f"--api-key-file {file}: it holds no key")
    return keys
