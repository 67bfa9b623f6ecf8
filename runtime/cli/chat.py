"""`phloem chat`: a conversation in the terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from ...errors import RequestError
from .engine_options import Settings, load_engine, with_engine_options
from .options import ModelArgument, option
from .sampling import MaxTokens, Seed, Temperature, TopP, usage_line

if TYPE_CHECKING:
    from ..engine import Engine
    from ..request import Delta, SamplingParams

HELP = "/reset forgets the conversation, /system TEXT sets the system prompt, /exit leaves"


@with_engine_options
def chat(
    settings: Settings,
    model: ModelArgument = "nano",
    system: Annotated[str | None, option("--system", "-s", help="The system prompt.", env="SYSTEM")] = None,
    stats: Annotated[
        bool, option("--stats/--no-stats", help="Print token counts after each answer.", env="STATS")
    ] = True,
    max_tokens: MaxTokens = 512,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    seed: Seed = None,
) -> None:
    """Talks to a model. Lines may also come from a pipe: one line, one turn."""
    from ..request import SamplingParams

    sampling = SamplingParams(max_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed)
    with load_engine(model, settings) as engine:
        if sys.stdin.isatty():
            typer.echo(f"{model}: {HELP}", err=True)
        Conversation(engine, sampling, system, stats).run(_lines())


def _lines() -> Iterator[str]:
    """The user's lines until the end of the input; Ctrl-C at the prompt ends it too."""
    while True:
        try:
            yield input("> " if sys.stdin.isatty() else "")
        except (EOFError, KeyboardInterrupt):
            return


class Conversation:
    """Turns so far. A turn that fails or is interrupted is forgotten; the conversation goes on."""

    def __init__(self, engine: Engine, sampling: SamplingParams, system: str | None, stats: bool) -> None:
        self._engine = engine
        self._sampling = sampling
        self._system = system
        self._stats = stats
        self._turns: list[dict[str, str]] = []

    def run(self, lines: Iterator[str]) -> None:
        for line in lines:
            text = line.strip()
            if text in ("/exit", "/quit"):
                return
            if text == "/reset":
                self._turns.clear()
            elif text == "/system" or text.startswith("/system "):
                self._system = text.removeprefix("/system").strip() or None
                self._turns.clear()
            elif text.startswith("/"):
                typer.echo(HELP, err=True)
            elif text:
                self._answer(text)

    def _answer(self, text: str) -> None:
        from ..request import RequestOptions

        opening = [{"role": "system", "content": self._system}] if self._system is not None else []
        turns = [*self._turns, {"role": "user", "content": text}]
        started_at = time.perf_counter()
        said = ""
        usage = None
        try:
            chat = self._engine.encode_chat([*opening, *turns])
            show = _channels() if "<|channel|>" in self._engine.tokenizer.special_ids else _show
            options = RequestOptions(conversation=chat.text, shows_special=show is not _show)
            for delta in self._engine.stream(chat.token_ids, self._sampling, **options):
                said += show(delta)
                usage = delta.usage
        except KeyboardInterrupt:
            typer.echo("\n(interrupted)", err=True)
            return
        except RequestError as error:
            typer.echo(f"error: {error}", err=True)
            return
        sys.stdout.write("\n")
        self._turns = [*turns, {"role": "assistant", "content": said}]
        if self._stats and usage is not None:
            typer.echo(usage_line(usage, time.perf_counter() - started_at), err=True)


def _channels() -> Callable[[Delta], str]:
    """Shows gpt-oss' reasoning on stderr, faintly, and what is for the user on stdout."""
    from ..server.harmony import HarmonyReader
    from ..server.tool_calls import Content, Reasoning

    reader = HarmonyReader()

    def show(delta: Delta) -> str:
        said = ""
        for piece in reader.push(delta.text, is_last=delta.finish_reason is not None):
            if isinstance(piece, Reasoning):
                typer.secho(piece.text, err=True, nl=False, dim=True)
            elif isinstance(piece, Content):
                said += _written(piece.text)
        return said

    return show


def _show(delta: Delta) -> str:
    """Shows what came, and returns what of it is for the user."""
    return _written(delta.text)


def _written(text: str) -> str:
    sys.stdout.write(text)
    sys.stdout.flush()
    return text
