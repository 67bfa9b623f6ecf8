"""`phloem inspect`: what a checkpoint is, what a constraint does, or what a running server's cache holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...errors import ConfigError
from .engine_options import fetched
from .inspect_checkpoint import checkpoint_of
from .looking import constraint_spec, show
from .options import ModelArgument, option
from .running_server import RunningServer
from .terminal import visible

CONSTRAINT = "Constraint (at most one)"
OPTION_OF_SUFFIX = {".json": "--schema", ".ebnf": "--grammar", ".gbnf": "--grammar", ".lark": "--grammar"}


def inspect(
    model: ModelArgument = "nano",
    cache: Annotated[str | None, option("--cache", help="URL of a server: show its cache instead of a model.")] = None,
    api_key: Annotated[str | None, option("--api-key", help="Key for that server.")] = None,
    regex: Annotated[str | None, option("--regex", help="Explain this regular expression.", panel=CONSTRAINT)] = None,
    choice: Annotated[
        list[str] | None, option("--choice", help="Explain a choice of these (repeat the option).", panel=CONSTRAINT)
    ] = None,
    schema: Annotated[
        str | None, option("--schema", help="Explain a JSON Schema: a file, or JSON text.", panel=CONSTRAINT)
    ] = None,
    grammar: Annotated[
        str | None, option("--grammar", help="Explain a grammar (EBNF or Lark): a file, or its text.", panel=CONSTRAINT)
    ] = None,
    structural_tag: Annotated[
        str | None, option("--structural-tag", help="Explain a structural tag: a file, or JSON text.", panel=CONSTRAINT)
    ] = None,
    json_object: Annotated[bool, option("--json-object", help="Explain “any JSON object”.", panel=CONSTRAINT)] = False,
    text: Annotated[
        str | None, option("--text", help='Go through this text ("-": stdin) and show where it leaves the language.')
    ] = None,
    svg: Annotated[str | None, option("--svg", help="Also draw it into this SVG file.")] = None,
    as_json: Annotated[bool, option("--json", help="Print JSON.")] = False,
    tokenizer: Annotated[
        str | None, option("--tokenizer", help="Model whose vocabulary to use (default: the model's own).")
    ] = None,
    whitespace: Annotated[
        str | None, option("--whitespace", help="Layout of JSON: compact, spaced or flexible (default: the model's).")
    ] = None,
    key_order: Annotated[
        str, option("--key-order", help="Order of the keys under a schema: schema or any.")
    ] = "schema",
    extra_keys: Annotated[
        str,
        option(
            "--extra-keys",
            help="Keys that a schema does not name: schema (as JSON Schema defines) or never (the server's default).",
        ),
    ] = "schema",
    max_nodes: Annotated[int, option("--max-nodes", help="Most nodes in one picture.")] = 40,
    width: Annotated[int | None, option("--width", help="Columns to print in (default: the terminal's).")] = None,
) -> None:
    """Shows a checkpoint's shape and tokenizer, a constraint's automaton, or a server's queue, pool and prefix tree.

    Of a constraint: the automaton and its compressed form, what is enforced how and what is not, what is forced, how
    short an output can be, and what it costs. Exit code 2 if it cannot be enforced, 1 if --text leaves the language.
    """
    spec = constraint_spec(
        regex, choice, schema, json_object, grammar, structural_tag, whitespace, key_order, extra_keys
    )
    if spec is not None:
        if cache is not None:
            raise ConfigError("--cache and a constraint exclude each other; give one of them")
        if max_nodes < 2 or (width is not None and width < 40):
            raise ConfigError("--max-nodes must be at least 2, --width at least 40")
        show(
            spec,
            tokenizer=fetched(tokenizer or model, weights=False),
            text=text,
            svg=svg,
            as_json=as_json,
            max_nodes=max_nodes,
            width=width,
        )
        return
    if text is not None or svg is not None:
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
