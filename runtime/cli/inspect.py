"""`phloem inspect`: what a checkpoint is, what a constraint does, or what a running server's cache holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ...errors import ConfigError
from .engine_options import fetched
from .inspect_checkpoint import checkpoint_of
from .inspect_constraint import ConstraintOptions
from .options import ModelArgument, option
from .running_server import RunningServer
from .setting_options import with_options
from .terminal import visible

OPTION_OF_SUFFIX = {".json": "--schema", ".ebnf": "--grammar", ".gbnf": "--grammar", ".lark": "--grammar"}


@with_options(asked=ConstraintOptions)
def inspect(
    asked: dict[str, Any],
    model: ModelArgument = "nano",
    cache: Annotated[str | None, option("--cache", help="URL of a server: show its cache instead of a model.")] = None,
    api_key: Annotated[str | None, option("--api-key", help="Key for that server.")] = None,
) -> None:
    """Shows a checkpoint's shape and tokenizer, a constraint's automaton, or a server's queue, pool and prefix tree.

    Of a constraint: the automaton and its compressed form, what is enforced how and what is not, what is forced, how
    short an output can be, and what it costs. Exit code 2 if it cannot be enforced, 1 if --text leaves the language.
    """
    options = ConstraintOptions(**asked)
    spec = options.constraint()
    if spec is not None:
        if cache is not None:
            raise ConfigError("--cache and a constraint exclude each other; give one of them")
        if options.max_nodes < 2 or (options.width is not None and options.width < 40):
            raise ConfigError("--max-nodes must be at least 2, --width at least 40")
        options.show(spec, fetched(options.tokenizer or model, weights=False))
        return
    if options.text is not None or options.svg is not None:
        raise ConfigError("--text and --svg need a constraint; add --regex, --choice, --schema or --grammar")
    if cache is not None:
        typer.echo(cache_of(cache, api_key))
        return
    if (name := _option_of(model)) is not None:
        raise ConfigError(f"{model[:80]}: this is no checkpoint; to explain what is in it, give it with {name}")
    typer.echo(checkpoint_of(model))


def _option_of(model: str) -> str | None:
    """The option that takes what was given in the place of a model; None if it may be a model."""
    if model.lstrip().startswith("{"):
        return "--schema"
    return OPTION_OF_SUFFIX.get(Path(model).suffix.lower())


def cache_of(url: str, api_key: str | None) -> str:
    """What `GET /cache` of the server at `url` says, with its queue on top.

    Raises:
        ConfigError: there is no such server, or it does not let us in.
    """
    from ..cache.cache_report import CacheReport  # brings numpy, for which no other command line should wait

    server = RunningServer(url, api_key, "--cache")
    statistics = server.json("/statistics")
    data = server.json("/cache")
    try:
        queue = f"{statistics['num_running']} requests run, {statistics['num_waiting']} wait"
        report = CacheReport.from_data(data)
    except (KeyError, TypeError) as error:
        place = f"{server.url}/cache"
        raise ConfigError(f"{place}: this is no report of a cache ({error!r}); is it a phloem server?") from error
    hint = "" if report.tree is not None else "\n\n(the tree is shown by servers started with --enable-admin)"
    return visible(f"{queue}\n{report}{hint}")
