"""The line that a person types in: prompt_toolkit with our keys, completion of commands and files, and a history.

Enter sends; Alt-Enter, or a backslash before Enter, begins a new line; a pasted text is inserted as it is, line breaks
included. The history is a file in the user's state folder that only the user can read; where there can be no such file,
it lasts as long as the session. Texts longer than `MAX_KEPT_CHARS` (pasted documents) are not kept in it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import completion_is_selected, is_searching
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import Output
from prompt_toolkit.shortcuts import CompleteStyle
from prompt_toolkit.styles import Style

from ..terminal import visible
from .commands import COMMANDS, SHOWN_CHARS
from .session import Session
from .word_wrap import WordWrap

MAX_KEPT_CHARS = 10_000
HINTS = "· Alt-Enter: new line · /help"  # the end of the line below, which is always in sight
STYLE = Style.from_dict({"bottom-toolbar": "noreverse fg:ansibrightblack", "prompt": "bold ansicyan"})


class InputLine:
    """Lines of a session. input, output: of prompt_toolkit; None: the terminal."""

    def __init__(
        self, session: Session, history: Path | None = None, input: Input | None = None, output: Output | None = None
    ) -> None:
        self._session = session
        self._prompts: PromptSession[str] = PromptSession(
            multiline=True,
            input_processors=[WordWrap(lambda: len(self._mark()))],
            key_bindings=_keys(),
            history=history_in(history_file() if history is None else history),
            completer=LineCompleter(session),
            complete_style=CompleteStyle.COLUMN,
            bottom_toolbar=lambda: FormattedText([("class:bottom-toolbar", visible(self._status()))]),
            prompt_continuation=lambda width, number, wraps: " " * width,
            style=STYLE,
            reserve_space_for_menu=6,
            input=input,
            output=output,
        )

    def lines(self) -> Iterator[str]:
        """What is typed, until Ctrl-D. Each line begins as the session's draft, which it takes."""
        session = self._session
        while True:
            draft, session.draft = session.draft, ""
            try:
                yield self._prompts.prompt(f"\n{self._mark()}", default=draft)
            except EOFError:
                return
            except KeyboardInterrupt:
                was_editing, session.num_kept = session.num_kept is not None, None
                session.view.note("(nothing is forgotten)" if was_editing else "(Ctrl-D or /exit leaves)")

    def _mark(self) -> str:
        """What stands before the line: the number of the question."""
        session = self._session
        return f"{len([at for at in session.conversation.questions() if at < _end(session)]) + 1}> "

    def _status(self) -> str:
        session = self._session
        facts = [session.model]
        if session.conversation.system:
            facts.append(f"system: {_beginning(session.conversation.system)}")
        if session.constrained_by:
            facts.append(session.constrained_by)
        if session.num_kept is not None:
            facts.append("editing: Ctrl-C leaves the conversation as it is")
        room = self._prompts.output.get_size().columns - len(HINTS) - 3
        known = " · ".join(facts)
        return f" {known if len(known) <= room else known[: max(0, room - 1)] + '…'} {HINTS}"


def _end(session: Session) -> int:
    return len(session.conversation.messages) if session.num_kept is None else session.num_kept


def _beginning(text: str) -> str:
    line = " ".join(text[: 2 * SHOWN_CHARS].split())
    return line if len(line) <= SHOWN_CHARS else f"{line[: SHOWN_CHARS - 1]}…"


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter", filter=~completion_is_selected & ~is_searching)
    def send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.is_cursor_at_the_end and buffer.text.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("enter", filter=completion_is_selected)
    def take(event: KeyPressEvent) -> None:
        event.current_buffer.complete_state = None

    @keys.add("escape", "enter")
    def begin_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-c", filter=~is_searching)
    def drop(event: KeyPressEvent) -> None:
        event.current_buffer.append_to_history()
        event.app.exit(exception=KeyboardInterrupt, style="class:aborting")

    return keys


class LineCompleter(Completer):
    """Completes commands, and their arguments where they are files or numbers of messages."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._files = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        before = document.text_before_cursor
        if not before.startswith("/") or "\n" in before:
            return
        name, space, argument = before.partition(" ")
        if not space:
            for command in COMMANDS.values():
                if command.name.startswith(name):
                    text = f"{command.name} " if command.takes else command.name
                    yield Completion(text, -len(name), display=command.name, display_meta=command.help)
        elif name == "/edit":
            messages = self._session.conversation.messages
            for number, place in enumerate(self._session.conversation.questions(), 1):
                if str(number).startswith(argument):
                    meta = visible(_beginning(messages[place]["content"]))
                    yield Completion(str(number), -len(argument), display_meta=meta)
        elif name in COMMANDS and COMMANDS[name].wants_file:
            yield from self._files.get_completions(Document(argument), complete_event)


def history_file() -> Path:
    """Where the history is: `$XDG_STATE_HOME/phloem/chat_history`, by default under `~/.local/state`."""
    state = os.environ.get("XDG_STATE_HOME", "")
    return (Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state") / "phloem" / "chat_history"


class KeptHistory(FileHistory):
    """A history in a file, without long texts."""

    def store_string(self, string: str) -> None:
        if len(string) <= MAX_KEPT_CHARS:
            super().store_string(string)


def history_in(file: Path) -> History:
    """The history in a file, which is made if need be; in memory only if it cannot be."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(file, os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC, 0o600))
    except OSError:
        return InMemoryHistory()
    return KeptHistory(str(file))
