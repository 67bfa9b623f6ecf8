"""A session: what is known between two lines, and what becomes of a message.

A message that was not answered is offered again. Knows neither prompt_toolkit nor rich, and no command.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Protocol

from ....errors import RequestError
from ..sampling import usage_line
from .conversation import Conversation, Piece
from .explanation import Run


class View(Protocol):
    """What shows a session."""

    def note(self, text: str) -> None:
        """Something about the conversation, or what an answer took."""

    def error(self, text: str) -> None:
        """What cannot be done, and the remedy."""

    def table(self, rows: Sequence[tuple[str, str]]) -> None:
        """Names, and what each of them means."""

    def picture(self, text: str) -> None:
        """A drawing; its lines are cut rather than wrapped."""

    def runs(self, runs: list[Run]) -> None:
        """An answer with the tokens marked that were jumped over."""

    def answer(self, pieces: Iterator[Piece], *, is_literal: bool) -> bool:
        """Shows an answer as it comes; whether it came to its end. Ctrl-C ends it. is_literal: it is no Markdown."""


class Session:
    """What is known between two lines.

    Attributes:
        model: what is talked to, by its name.
        constrained_by: the constraint's name in words; None: there is none.
        draft: what the next line begins with.
        num_kept: the next message follows the first n messages, and those after them are forgotten; None: all stay.
        has_ended: no more lines are wanted.
    """

    def __init__(self, conversation: Conversation, view: View, model: str, stats: bool) -> None:
        self.conversation = conversation
        self.view = view
        self.model = model
        self.constrained_by: str | None = None
        self.draft = ""
        self.num_kept: int | None = None
        self.has_ended = False
        self._stats = stats

    def ask(self, text: str) -> None:
        """Sends a message and shows its answer."""
        conversation, before = self.conversation, self.conversation.last
        is_literal = conversation.constraint is not None
        try:
            with closing(conversation.ask(text, self.num_kept)) as pieces:
                has_ended = self.view.answer(pieces, is_literal=is_literal)
        except RequestError as error:
            self.view.error(str(error) + ("; chat --max-tokens N sets it" if error.param == "max_tokens" else ""))
            self.draft = text
            return
        if conversation.last is before:
            self.view.note("(interrupted before there was an answer)")
            self.draft = text
            return
        self.num_kept = None
        if not has_ended:
            self.view.note("(interrupted; what was said stays in the conversation)")
        if self._stats and conversation.last is not None:
            self.view.note(usage_line(conversation.last.usage, conversation.last.seconds))
