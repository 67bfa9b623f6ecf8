"""A conversation on a terminal, rendered by rich: answers as Markdown while they come, wrapped by words.

An answer is shown in two parts::

    finished blocks    printed once, and never touched again
    the last block     drawn anew as it grows, at most `FRAMES` times a second, a long one less often; its last lines

so what has scrolled by stays as it was, and nothing flickers. Control characters of a model are shown, not obeyed. Keys
that are pressed while an answer comes are for the next line.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.constrain import Constrain
from rich.live import Live
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from ...server.formats.events import Reasoning
from ..terminal import keys, visible
from .conversation import Piece
from .explanation import Run
from .markdown import AnswerMarkdown, blocks, finished_blocks

FRAMES = 15.0
REST = 9.0  # after a frame, this many times its own time without one: the rest of the processor is the engine's
MAX_COLUMNS = 100  # longer lines are hard to read


class Transcript:
    """Shows a session on a terminal; console: None: stdout."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = Console(highlight=False) if console is None else console

    def note(self, text: str) -> None:
        self._console.print(Text(visible(text), "dim"))

    def error(self, text: str) -> None:
        self._console.print(Text.assemble(("error: ", "bold red"), visible(text)))

    def table(self, rows: Sequence[tuple[str, str]]) -> None:
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        for row in rows:
            grid.add_row(*map(visible, row))
        self._print(grid)

    def picture(self, text: str) -> None:
        self._console.print(Text(visible(text)), no_wrap=True, overflow="ellipsis", crop=True)

    def runs(self, runs: list[Run]) -> None:
        styled = [(visible(text), "green underline" if is_jumped else "") for text, is_jumped in runs]
        self._print(Text.assemble(*styled))
        if any(is_jumped for _, is_jumped in runs):
            self._console.print(Text.assemble(("underlined", "green underline"), (": jumped over", "dim")))

    def answer(self, pieces: Iterator[Piece], *, is_literal: bool) -> bool:
        with keys(by_line=True):
            try:
                with self._console.status("", spinner="dots"):
                    first = next(pieces, None)
                if first is not None:
                    self._console.print()
                    self._parts(first, pieces, is_literal)
            except KeyboardInterrupt:
                return False
        return True

    def _parts(self, piece: Piece | None, pieces: Iterator[Piece], is_literal: bool) -> None:
        """Reasoning and content, one after the other, each of which goes on as long as its kind."""
        while piece is not None:
            kind = type(piece)
            is_reasoning = kind is Reasoning
            form = REASONING if is_reasoning else LITERAL if is_literal else MARKDOWN
            with GrowingText(self._console, form) as growing:
                while piece is not None and type(piece) is kind:
                    growing.push(piece.text)
                    piece = next(pieces, None)
            if piece is not None:
                self._console.print()

    def _print(self, renderable: RenderableType) -> None:
        self._console.print(Constrain(renderable, MAX_COLUMNS))


@dataclass(frozen=True, slots=True)
class Form:
    """How a text is shown.

    Attributes:
        finished: its parts that can no longer change, while it grows.
        parts: all of them, at its end.
        render: makes of a part what is shown.
        gap: what stands between two parts.
    """

    finished: Callable[[str], list[str]]
    parts: Callable[[str], list[str]]
    render: Callable[[str], RenderableType]
    gap: str


def _lines(text: str) -> list[str]:
    return [text] if text else []


def _whole_lines(text: str) -> list[str]:
    return _lines(text[: text.rfind("\n") + 1])


MARKDOWN = Form(finished_blocks, blocks, lambda text: Block(AnswerMarkdown(text)), "\n")
LITERAL = Form(_whole_lines, _lines, lambda text: Text(text.removesuffix("\n")), "")
REASONING = Form(_whole_lines, _lines, lambda text: Text(text.removesuffix("\n"), "dim italic"), "")


class GrowingText:
    """A text that grows on the terminal, as a context."""

    def __init__(self, console: Console, form: Form) -> None:
        self._console = console
        self._form = form
        self._rest = ""
        self._new: list[str] = []  # what has come since the last frame
        self._gap = ""  # before what comes next: nothing before the first part
        self._due_at = 0.0
        self._live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False)

    def __enter__(self) -> GrowingText:
        self._live.start()
        return self

    def push(self, text: str) -> None:
        """Adds text, and shows it if the last frame is old enough."""
        self._new.append(visible(text))
        begin = time.monotonic()
        if begin < self._due_at:
            return
        self._take()
        if finished := self._form.finished(self._rest):
            self._rest = self._rest[sum(map(len, finished)) :]
            self._live.update(Text(""))
            self._print(finished)
        last = Block(self._form.render(self._rest), most=max(1, self._console.size.height - 3))
        gap = [Text()] if self._gap else []
        self._live.update(Group(*gap, Constrain(last, MAX_COLUMNS)), refresh=True)
        end = time.monotonic()
        self._due_at = end + max(1 / FRAMES, REST * (end - begin))

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        self._take()
        self._print(self._form.parts(self._rest))

    def _take(self) -> None:
        self._rest += "".join(self._new)
        self._new.clear()

    def _print(self, parts: list[str]) -> None:
        for part in parts:
            self._console.print(self._gap, end="")
            self._console.print(Constrain(self._form.render(part), MAX_COLUMNS))
            self._gap = self._form.gap


class Block:
    """Something without blank lines around it, and without blanks after a line; of more than `most` lines the last."""

    def __init__(self, renderable: RenderableType, most: int | None = None) -> None:
        self._renderable = renderable
        self._most = most

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._renderable, options.update(height=None), pad=False)
        shown = [index for index, line in enumerate(lines) if not _is_blank(line)]
        lines = lines[shown[0] : shown[-1] + 1] if shown else []
        for line in lines if self._most is None else lines[-self._most :]:
            while line and _is_blank(line[-1:]):  # rich fills lines with blanks
                line.pop()
            if line and (line[-1].style is None or line[-1].style.bgcolor is None):
                line[-1] = Segment(line[-1].text.rstrip(), line[-1].style)
            yield from line
            yield Segment.line()


def _is_blank(line: list[Segment]) -> bool:
    return all(not part.text.strip() and (part.style is None or part.style.bgcolor is None) for part in line)
