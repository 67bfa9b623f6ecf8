"""A conversation as plain text: answers on stdout, everything else on stderr, and no escape codes."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import typer

from ...server.formats.events import Reasoning
from .conversation import Piece
from .explanation import Run


class PlainTranscript:
    """Shows a session where there is no terminal, or one that understands no escape codes."""

    def note(self, text: str) -> None:
        typer.echo(text, err=True)

    def error(self, text: str) -> None:
        typer.echo(f"error: {text}", err=True)

    def picture(self, text: str) -> None:
        typer.echo(text, err=True)

    def runs(self, runs: list[Run]) -> None:
        marked = "".join(f"‹{text}›" if is_jumped else text for text, is_jumped in runs)
        typer.echo(f"{marked}\n(‹›: jumped over)" if "‹" in marked else marked, err=True)

    def answer(self, pieces: Iterator[Piece], *, is_literal: bool) -> bool:
        try:
            for piece in pieces:
                if isinstance(piece, Reasoning):
                    typer.echo(piece.text, err=True, nl=False)
                else:
                    sys.stdout.write(piece.text)
                    sys.stdout.flush()
        except KeyboardInterrupt:
            sys.stdout.write("\n")
            return False
        sys.stdout.write("\n")
        return True
