"""A conversation as plain text: answers on stdout, everything else on stderr, and no escape codes."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TextIO

import typer

from ...server.formats.events import Reasoning
from ..terminal import visible
from .conversation import Piece
from .explanation import Run


class PlainTranscript:
    """Shows a session where there is no terminal, or one that understands no escape codes."""

    def note(self, text: str) -> None:
        typer.echo(_safe(text, sys.stderr), err=True)

    def error(self, text: str) -> None:
        self.note(f"error: {text}")

    def table(self, rows: Sequence[tuple[str, str]]) -> None:
        width = max(len(name) for name, _ in rows)
        self.note("\n".join(f"{name:<{width}}  {meaning}" for name, meaning in rows))

    def picture(self, text: str) -> None:
        self.note(text)

    def runs(self, runs: list[Run]) -> None:
        marked = "".join(f"‹{text}›" if is_jumped else text for text, is_jumped in runs)
        self.note(f"{marked}\n(‹›: jumped over)" if "‹" in marked else marked)

    def answer(self, pieces: Iterator[Piece], *, is_literal: bool) -> bool:
        try:
            for piece in pieces:
                if isinstance(piece, Reasoning):
                    typer.echo(_safe(piece.text, sys.stderr), err=True, nl=False)
                else:
                    sys.stdout.write(_safe(piece.text, sys.stdout))
                    sys.stdout.flush()
        except KeyboardInterrupt:
            sys.stdout.write("\n")
            return False
        sys.stdout.write("\n")
        return True


def _safe(text: str, stream: TextIO) -> str:
    """The text; on a terminal, which may obey more than it says, without control characters."""
    return visible(text) if stream.isatty() else text
