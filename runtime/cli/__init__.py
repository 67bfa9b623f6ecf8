"""The command line: `phloem serve | chat | generate | extract | bench | plan | inspect | top | doctor`.

Results go to stdout, everything else to stderr. What goes wrong is one line, `error: …`, with place and remedy, and
exit code 2 (what was asked cannot work) or 1 (it failed), never a traceback; `PHLOEM_DEBUG=1` shows it. Options may
also be set as `PHLOEM_<NAME>`. Commands import torch and the engine only when they run; a command is imported only if
it is named, or if all are listed.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ... import __version__
from ...errors import ConfigError, ConstraintError, ModelError, PhloemError, RequestError
from ..engine import gc_tuning

COMMANDS = (
    "serve",
    "chat",
    "generate",
    "extract",
    "bench",
    "plan",
    "inspect",
    "top",
    "doctor",
)  # each in the module of its name
USAGE = 2
FAILED = 1
INTERRUPTED = 130
COMPLETING = "_PHLOEM_COMPLETE"  # set by the scripts that --install-completion installs
# click's own base of usage errors; typer ships click under a private name
_ClickException: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"phloem {__version__}")
        raise typer.Exit


def _root(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """A prefix-caching LLM runtime with structured generation.

    Every option of a command can also be set in the environment, as PHLOEM_<NAME>.
    """


def command_line(arguments: Sequence[str]) -> typer.Typer:
    """The commands, as a Typer application: the one that the arguments begin with, or all."""
    app = typer.Typer(name="phloem", pretty_exceptions_enable=False, rich_markup_mode=None)
    app.callback()(_root)
    for name in arguments[:1] if set(arguments[:1]) & set(COMMANDS) else COMMANDS:
        app.command()(getattr(importlib.import_module(f".{name}", __name__), name))
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """The console entry, which owns the process: runs a command and exits with its code."""
    gc_tuning.hold()
    code = run(sys.argv[1:] if arguments is None else arguments)
    gc_tuning.end()
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Runs a command (without one, says which there are); returns the exit code. Errors are one line on stderr.

    A shell that completes a line asks by the environment instead, and SystemExit ends the process with the answer.
    """
    if not arguments and COMPLETING not in os.environ:
        command_line(arguments)(args=["--help"], prog_name="phloem", standalone_mode=False)
        return USAGE
    try:
        code = command_line(arguments)(args=list(arguments), prog_name="phloem", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except typer.Abort:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone (`| head`); Python must not complain about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        if os.environ.get("PHLOEM_DEBUG"):
            raise
        text, code = _line_and_code(error, arguments)
        typer.echo(f"error: {text}", err=True)
        return code


def _line_and_code(error: Exception, arguments: Sequence[str]) -> tuple[str, int]:
    """An exception as one line and an exit code."""
    if isinstance(error, _ClickException):
        text = str(error.format_message()) if hasattr(error, "format_message") else str(error)
        text = text.replace(": Value error, ", ": ", 1)  # typer reads values by pydantic, which begins so
        text += _variable_of(error)
        command = f" {arguments[0]}" if arguments and not arguments[0].startswith("-") else ""
        known = "" if "No such command" in text else command
        return f"{_line(text)} (see: phloem{known} --help)", USAGE
    if isinstance(error, (ConfigError, ModelError, ConstraintError, RequestError)):
        return _line(str(error)), USAGE
    if isinstance(error, PhloemError):
        return _line(str(error)), FAILED
    if isinstance(error, (OSError, MemoryError)):
        return _line(str(error) or type(error).__name__), FAILED
    return f"internal: {type(error).__name__}: {_line(str(error))} (PHLOEM_DEBUG=1 shows where)", FAILED


def _variable_of(error: Exception) -> str:
    """The variable of the environment that the value at fault is from, as an end of the message; "" if of none."""
    context: Any = getattr(error, "ctx", None)
    if context is None:
        return ""
    for parameter in context.command.params:
        is_at_fault = parameter is getattr(error, "param", None) or getattr(error, "param_hint", None) in parameter.opts
        if is_at_fault and context.get_parameter_source(parameter.name).name == "ENVIRONMENT":
            return f" (from {parameter.envvar})"
    return ""


def _line(text: str) -> str:
    return " ".join(text.split())
