"""`phloem serve`: the OpenAI-compatible server."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ...errors import ConfigError
from ..config import EngineConfig
from ..server.settings import ServerSettings
from ..setting import setting
from .busy import busy
from .engine_options import Settings, fetched, load_engine
from .options import ModelArgument, option, read_text
from .setting_options import with_options

if TYPE_CHECKING:
    from ..engine.engine_core import EngineCore

LOOPBACK = ("127.0.0.1", "::1", "localhost")


SamplingDefaults = Literal["model", "openai"]
LogLevel = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Serving:
    """The options of `phloem serve` besides the address, and those of the server and of its engine."""

    api_key_file: str | None = setting(None, "File with one key per line.")
    served_model_name: tuple[str, ...] = setting(
        (), "Name that callers send as `model` (more: aliases). Default: MODEL."
    )
    sampling_defaults: SamplingDefaults = setting(
        "model", "Sampling of requests that do not set it: from generation_config.json, or OpenAI's (1.0)."
    )
    replicas: int = setting(
        1, "Engines, each a process, on Ray Serve; a request goes where it is cached (phloem[ray]).", least=1
    )
    prefill_replicas: int = setting(
        0, "Further engines that only compute prompts; over --shared-cache or --disk-cache (phloem[ray]).", least=0
    )
    warm_up: bool = setting(
        True, "Before taking requests, build all tables, and on a GPU compile kernels and capture graphs."
    )
    log_level: LogLevel = setting("info", "How much to log.")


@with_options(asked=Serving, server=ServerSettings, settings=EngineConfig)
def serve(
    settings: Settings,
    server: Settings,
    asked: Settings,
    model: ModelArgument = "nano",
    host: Annotated[str, option("--host", help="Address to listen on; 0.0.0.0 is every interface.")] = "127.0.0.1",
    port: Annotated[int, option("--port", help="Port; 0 picks a free one.", min=0, max=65535)] = 8000,
) -> None:
    """Serves a model over HTTP, in OpenAI's protocol. SIGTERM finishes what runs, then exits."""
    serving = Serving(**asked)
    names = serving.served_model_name or (model,)
    if serving.api_key_file is not None:
        server["api_keys"] += _keys(serving.api_key_file)
    server_settings = ServerSettings(model_name=names[0], aliases=names[1:], **server)
    if serving.replicas > 1 or serving.prefill_replicas:
        _serve_replicas(serving, fetched(model), settings, server_settings, host, port)
    else:
        _serve_one(serving, model, settings, for_host(server_settings, host), host, port)


def for_host(settings: ServerSettings, host: str) -> ServerSettings:
    """The same, where it is not said: a page only for callers on this machine, and no foreign names of it without a
    key."""
    is_local = host in LOOPBACK
    page = settings.page if settings.page is not None else is_local
    check = settings.check_host if settings.check_host is not None else is_local and not settings.api_keys
    return replace(settings, page=page, check_host=check)


def _serve_one(
    serving: Serving, model: str, settings: Settings, server_settings: ServerSettings, host: str, port: int
) -> None:
    """One engine, in this process, until it is told to stop."""
    from ..server import create_app
    from ..server.serve import listen, server_of, url_of

    with closing(listen(host, port)) as bound:
        source = fetched(model)
        engine = load_engine(source, settings)
        from ..engine.async_engine import SWITCH_SECONDS, AsyncEngine
        from ..engine.gc_tuning import settle
        from ..engine.warmup import warm_up
        from ..execute.huge_pages import gather

        if serving.warm_up:
            with busy("warming up") as report:
                warm_up(engine, report=report)
        settle()
        sys.setswitchinterval(SWITCH_SECONDS)
        gather()
        if serving.sampling_defaults == "model":
            server_settings = _sampled_as_the_model_says(server_settings, source)
        served = AsyncEngine(engine)
        try:
            app = create_app(served, server_settings)
            num_blocks = engine.statistics().num_blocks
            place = f"{url_of(bound)}/v1 ({num_blocks} KV blocks)"
            typer.echo(f"phloem serves {server_settings.model_name} on {place}", err=True)
            for line in (*parts_of(engine.core), *limits_of(engine.core)):
                typer.echo(line, err=True)
            if server_settings.page:
                typer.echo(f"its live page is at {url_of(bound)}/", err=True)
            if not server_settings.api_keys and host not in LOOPBACK:
                typer.echo(f"warning: {host} can be reached from outside, and no --api-key is set", err=True)
            server = server_of(app, log_level=serving.log_level, access_log=serving.log_level == "debug")
            server.run(sockets=[bound])
            if server.has_failed:
                raise typer.Exit(1)
        finally:
            served.stop()


def parts_of(core: EngineCore) -> list[str]:
    """What computes beside the engine's own model and process, a line for each."""
    lines = []
    if core.processes is not None:
        others = ", ".join(str(number) for number in core.processes.process_ids)
        lines.append(f"{core.processes.size} ranks compute it: processes {os.getpid()} (this one), {others}")
    if core.draft_share is not None:
        lines.append(f"draft model {core.config.speculative_model}: {core.draft_share:.0%} of the memory for KV")
    return lines


def limits_of(core: EngineCore) -> list[str]:
    """A line if the pool cannot hold a request as long as the model's context."""
    context, pool = core.max_model_len, core.monitor.statistics().num_pool_tokens
    if pool >= context:
        return []
    text = f"a request may have {pool:,} tokens, prompt and answer together, since the KV pool holds no more"
    return [f"{text}; for the model's context of {context:,} raise --kv-memory"]


def _serve_replicas(
    serving: Serving, model: str, settings: Settings, server_settings: ServerSettings, host: str, port: int
) -> None:
    from ...cluster.local import serve_here
    from ..server.serve import listen

    replicas, prefill_replicas = serving.replicas, serving.prefill_replicas
    if settings.pop("role") != "both":
        raise ConfigError("--role: replicas have theirs; leave it out, and use --prefill-replicas")
    one_engines = (
        ("--enable-admin", server_settings.admin),
        ("--enable-adapter-loading", server_settings.adapter_loading),
        ("--page", server_settings.page),
        ("--check-host", server_settings.check_host),
    )
    for name, given in one_engines:
        if given:
            raise ConfigError(f"{name}: works on one engine only; leave --replicas out")
    if settings.get("kv_events_config") is not None:
        raise ConfigError("--kv-events-config: replicas publish theirs to the router; leave one of the two out")
    listen(host, port).close()  # a port that is taken is known at once
    if not port:
        raise ConfigError("--port 0: with --replicas the port must be named")
    if serving.sampling_defaults == "model":
        server_settings = _sampled_as_the_model_says(server_settings, model)
    name = server_settings.model_name
    typer.echo(f"starting Ray and {replicas + prefill_replicas} replicas …", err=True)
    serve_here(
        {"model": model, **settings},
        server_settings,
        replicas=replicas,
        prefill_replicas=prefill_replicas,
        host=host,
        port=port,
        announce=lambda: typer.echo(
            f"phloem serves {name} on http://{host}:{port}/v1 ({replicas + prefill_replicas} replicas on Ray Serve)",
            err=True,
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
