"""`phloem chat`: a conversation in the terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ...errors import RequestError
from .engine_options import Settings, load_engine, with_engine_options
from .options import ModelArgument, option
from .sampling import MaxTokens, Seed, Temperature, TopP, UseAdapter, usage_line

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from ..request import Delta, SamplingParams
    from ..server.formats.events import OutputReader
    from ..tokenizer.tokenizer import Tokenizer

HELP = "/reset forgets the conversation, /system TEXT sets the system prompt, /exit leaves"


@with_engine_options
def chat(
    settings: Settings,
    model: ModelArgument = "nano",
    system: Annotated[str | None, option("--system", "-s", help="The system prompt.", env="SYSTEM")] = None,
    stats: Annotated[
        bool, option("--stats/--no-stats", help="Print token counts after each answer.", env="STATS")
    ] = True,
    use_adapter: UseAdapter = None,
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
        Conversation(engine, sampling, system, stats, use_adapter).run(_lines())


def _lines() -> Iterator[str]:
    """The user's lines until the end of the input; Ctrl-C at the prompt ends it too."""
    while True:
        try:
            yield input("> " if sys.stdin.isatty() else "")
        except (EOFError, KeyboardInterrupt):
            return


class Conversation:
    """Turns so far. A turn that fails or is interrupted is forgotten; the conversation goes on."""

    def __init__(
        self, engine: Engine, sampling: SamplingParams, system: str | None, stats: bool, adapter: str | None = None
    ) -> None:
        self._engine = engine
        self._sampling = sampling
        self._system = system
        self._stats = stats
        self._adapter = adapter
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
            chat = self._engine.encode_chat([*opening, *turns], adapter=self._adapter)
            reader, shows_special = _reader(self._engine.tokenizer, chat.token_ids)
            show = _show if reader is None else _apart(reader)
            options = RequestOptions(conversation=chat.text, shows_special=shows_special, adapter=self._adapter)
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


def _reader(tokenizer: Tokenizer, prompt_ids: Sequence[int]) -> tuple[OutputReader | None, bool]:
    """What separates reasoning from the answer to a prompt, if the model has both; whether special tokens mark it."""
    from ..server.formats.harmony import HarmonyReader
    from ..server.formats.thoughts import BEGIN, END, ThoughtReader, thinks, thought_at_end

    if "<|channel|>" in tokenizer.special_ids:
        return HarmonyReader(), True
    if not thinks(tokenizer, "auto"):
        return None, False
    return ThoughtReader(thought_at_end(tokenizer, prompt_ids)), not tokenizer.special_ids.keys().isdisjoint(
        (BEGIN, END)
    )


def _apart(reader: OutputReader) -> Callable[[Delta], str]:
    """Shows reasoning on stderr, faintly, and what is for the user on stdout."""
    from ..server.formats.events import Content, Reasoning

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
