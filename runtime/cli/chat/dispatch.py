"""Lines come in, each a command or a message, and are dealt with until one ends the session.

What goes wrong in a line is said, and the session goes on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from ....errors import ConfigError, RequestError
from .commands import find
from .session import Session


def talk(session: Session, lines: Iterator[str]) -> None:
    """Takes lines until there are none, or one ends the session."""
    if sys.stdin.isatty():
        session.view.note(f"{session.model}: /help says what can be done besides, /exit leaves")
    for line in lines:
        take(session, line)
        if session.has_ended:
            return


def take(session: Session, line: str) -> None:
    """Deals with one line: a command begins with a slash, everything else is a message."""
    if not line.startswith("/"):
        if line.strip():
            session.ask(line.strip())
        return
    try:
        command, argument = find(line)
        command.run(session, argument)
    except (ConfigError, RequestError) as error:
        session.view.error(" ".join(str(error).split()))
    except KeyboardInterrupt:
        session.view.note("(interrupted)")


def lines() -> Iterator[str]:
    """Lines of stdin until its end; Ctrl-C at the prompt ends it too."""
    while True:
        try:
            yield input("> " if sys.stdin.isatty() else "")
        except (EOFError, KeyboardInterrupt):
            return
