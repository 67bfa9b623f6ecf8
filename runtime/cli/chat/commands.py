"""What can be done between two messages: a table of commands, each a function of the session and the rest of the line.

A command that cannot do what it was asked for raises `ConfigError` or `RequestError` with place and remedy, and has
changed nothing. Lines come in, each a command or a message, and are dealt with until one ends the session; what goes
wrong in a line is said, and the session goes on.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....errors import ConfigError, ConstraintError, RequestError
from . import explanation, files

if TYPE_CHECKING:
    from ...constrain.spec import ConstraintSpec
    from .session import Session

SHOWN_CHARS = 40  # of a message, where messages are listed
LOADED_CHARS = 300  # of the last two messages of a conversation that is loaded


@dataclass(frozen=True, slots=True)
class Command:
    """One command: `/name argument`.

    Attributes:
        takes: the argument, as the help shows it; "": none.
        wants_file: the argument may be the name of a file.
    """

    name: str
    takes: str
    help: str
    run: Callable[[Session, str], None]
    wants_file: bool = False


def find(line: str) -> tuple[Command, str]:
    """The command that a line begins with, and the rest of the line.

    Raises:
        ConfigError: there is none of that name, or it takes no argument.
    """
    name, *rest = line.rstrip().split(maxsplit=1)
    argument = rest[0] if rest else ""
    command = COMMANDS.get({"/quit": "/exit"}.get(name, name))
    if command is None:
        names = " ".join(COMMANDS)
        raise ConfigError(f"{name[:40]}: no such command; {names}; a space before it makes it a message")
    if argument and not command.takes:
        raise ConfigError(f"{command.name} takes no argument, got {argument[:40]!r}")
    return command, argument


def _help(session: Session, _: str) -> None:
    commands = [(f"{command.name} {command.takes}".rstrip(), command.help) for command in COMMANDS.values()]
    session.view.table([*commands, *KEYS])


def _system(session: Session, argument: str) -> None:
    session.conversation.begin_again(system=argument or None)
    session.num_kept = None
    session.view.note(f"system prompt {'set' if argument else 'removed'}; the conversation begins anew")


def _schema(session: Session, argument: str) -> None:
    from ...constrain.spec import json_schema

    is_text = argument[:1] == "{" or argument in ("true", "false")
    text = argument if is_text else files.text_of(argument, "/schema") if argument else ""
    try:
        spec = json_schema(text, extra_keys="never") if argument else None
        _constrain(session, spec, _name_of(text, argument))
    except ConstraintError as error:
        name = "/schema" if is_text else f"/schema {argument}"
        raise ConfigError(f"{name}: {error}") from error


def _name_of(schema: str, argument: str) -> str:
    """A schema's title, or where it is from."""
    try:
        title = json.loads(schema).get("title") if schema else None
    except (ValueError, AttributeError):
        title = None
    found = title if isinstance(title, str) and title else argument
    return f"/schema {found[:SHOWN_CHARS]}"


def _regex(session: Session, argument: str) -> None:
    from ...constrain.spec import regex

    try:
        _constrain(session, regex(argument) if argument else None, f"/regex {argument[:SHOWN_CHARS]}")
    except ConstraintError as error:
        raise ConfigError(f"/regex: {error}") from error


def _constrain(session: Session, spec: ConstraintSpec | None, name: str) -> None:
    if spec is not None:
        session.conversation.engine.request_factory.compile(spec)
    session.conversation.constraint = spec
    session.constrained_by = None if spec is None else name
    session.view.note(
        "answers are free" if spec is None else f"from now on answers match {name}; {name.split()[0]} alone ends that"
    )


def _save(session: Session, argument: str) -> None:
    conversation = session.conversation
    if not argument:
        raise ConfigError("/save: give a file, for example /save chat.json")
    messages = conversation.with_system(conversation.messages)
    if not messages:
        raise ConfigError("/save: there is no message yet")
    file = files.save(argument, session.model, messages)
    session.view.note(f"{len(messages)} messages in {file}")


def _load(session: Session, argument: str) -> None:
    if not argument:
        raise ConfigError("/load: give a file, for example /load chat.json")
    messages = files.load(argument)
    system = messages.pop(0)["content"] if messages[0]["role"] == "system" else None
    session.draft = messages.pop()["content"] if messages and messages[-1]["role"] == "user" else ""
    session.num_kept = None
    session.conversation.begin_again(messages, system)
    waits = "; the last message has no answer yet" if session.draft else ""
    session.view.note(f"{len(messages)} messages from {argument}, in place of what was here{waits}")
    for message in messages[-2:]:
        text = " ".join(message["content"].split())
        session.view.note(f"{message['role']}: {text if len(text) <= LOADED_CHARS else f'{text[:LOADED_CHARS]}…'}")


def _retry(session: Session, _: str) -> None:
    conversation = session.conversation
    places = conversation.questions()
    if not places:
        raise ConfigError("/retry: there is no message yet")
    if conversation.repeats_itself:
        session.view.note("(the same answer is to be expected: --temperature is 0, or there is a --seed)")
    session.num_kept = places[-1]
    session.ask(conversation.messages[places[-1]]["content"])
    session.draft, session.num_kept = "", None  # where it failed, everything is as it was


def _edit(session: Session, argument: str) -> None:
    conversation = session.conversation
    places = conversation.questions()
    if not places:
        raise ConfigError("/edit: there is no message yet")
    number = int(argument) if argument.isdecimal() and len(argument) < 9 else 0 if argument else len(places)
    if not 1 <= number <= len(places):
        raise ConfigError(f"/edit {argument[:20]}: give the number of a message, 1 to {len(places)}")
    session.num_kept = places[number - 1]
    session.draft = conversation.messages[session.num_kept]["content"]
    session.view.note(f"message {number} again; what came after it is forgotten when the next message is sent")


def _tree(session: Session, _: str) -> None:
    report = session.conversation.engine.cache_report(asks_what_if=False)
    used = report.num_blocks - report.num_free_blocks
    session.view.note(f"{used:,} of {report.num_blocks:,} blocks of {report.block_size} tokens are in use")
    session.view.picture(report.tree or "(the tree is empty)")


def _explain(session: Session, _: str) -> None:
    conversation = session.conversation
    if conversation.last is None:
        raise ConfigError("/explain: there is no answer yet")
    for sentence in explanation.sentences(conversation.last):
        session.view.note(sentence)
    session.view.runs(explanation.runs(conversation.last, conversation.engine.tokenizer.show))


def _reset(session: Session, _: str) -> None:
    session.conversation.begin_again(system=session.conversation.system)
    session.num_kept = None
    session.view.note("the messages are forgotten; system prompt and constraint stay")


def _exit(session: Session, _: str) -> None:
    session.has_ended = True


KEYS = (
    ("Alt-Enter", "begins a new line (or \\ before Enter)"),
    ("Ctrl-R", "searches what was typed before"),
    ("Ctrl-C", "ends an answer; its beginning stays"),
    ("Ctrl-D", "leaves"),
)
COMMANDS = {
    command.name: command
    for command in (
        Command("/help", "", "shows this", _help),
        Command("/system", "[TEXT]", "begins anew, with this system prompt", _system),
        Command("/schema", "[FILE|JSON]", "next answers are JSON of this schema", _schema, True),
        Command("/regex", "[PATTERN]", "next answers match this pattern", _regex),
        Command("/save", "FILE", "writes the conversation, as JSON", _save, True),
        Command("/load", "FILE", "goes on with a saved conversation", _load, True),
        Command("/retry", "", "asks for the last answer again", _retry),
        Command("/edit", "[N]", "changes your Nth message, or the last", _edit),
        Command("/tree", "", "draws the prefix cache", _tree),
        Command("/explain", "", "what was cached, jumped and drafted", _explain),
        Command("/reset", "", "forgets the messages, and nothing else", _reset),
        Command("/exit", "", "leaves", _exit),
    )
}


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
