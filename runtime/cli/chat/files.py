"""Conversations as files, in the form of OpenAI's chats: `{"model": …, "messages": [{"role": …, "content": …}, …]}`.

So a saved one can be sent to a server as it is. What is loaded may also be the bare list of messages.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ....errors import ConfigError
from ...path_fault import path_fault
from ..options import read_text
from .conversation import Message

ROLES = ("system", "user", "assistant")


def text_of(path: str, command: str) -> str:
    """A file's text; errors name it. A dash is a name like others; a pipe, which may never end, is no file."""
    if "\n" in path:
        raise ConfigError(f"{command} {path.splitlines()[0][:80]!r}: a file's name is one line")
    place = os.path.abspath(os.path.expanduser(path))
    if path_fault(place) is None and os.path.exists(place) and not os.path.isfile(place):
        raise ConfigError(f"{command} {path}: not a file")
    return read_text(place, command)


def save(path: str, model: str, messages: Sequence[Message]) -> Path:
    """Writes a conversation; returns where. Files that are no conversation are not overwritten.

    Raises:
        ConfigError: it cannot be written, or is something else.
    """
    fault = path_fault(path)
    if fault is not None:
        raise ConfigError(f"/save {path[:200]!r}: {fault}")
    file = Path(os.path.abspath(os.path.expanduser(path)))
    if file.exists():
        try:
            load(path)
        except ConfigError as error:
            raise ConfigError(f"/save {path}: it is there, and no conversation; give another name") from error
    try:
        document = json.dumps({"model": model, "messages": messages}, ensure_ascii=False, indent=2)
        file.write_text(document + "\n", encoding="utf-8")
    except (OSError, UnicodeEncodeError) as error:
        raise ConfigError(f"/save {path}: {(getattr(error, 'strerror', None) or str(error)).lower()}") from error
    return file


def load(path: str) -> list[Message]:
    """The messages in a file.

    Raises:
        ConfigError: it cannot be read, or is no conversation of texts; the message names the place.
    """
    text = text_of(path, "/load")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"/load {path}: not JSON ({str(error)[:200]})") from error
    messages = data.get("messages") if isinstance(data, dict) else data
    if not isinstance(messages, list) or not messages:
        raise ConfigError(f'/load {path}: no conversation; expected {{"messages": [{{"role": …, "content": …}}, …]}}')
    return [_message(message, f"/load {path}: messages[{index}]", index) for index, message in enumerate(messages)]


def _message(message: Any, place: str, index: int) -> Message:
    if not isinstance(message, dict):
        raise ConfigError(f'{place}: expected {{"role": …, "content": …}}')
    role, content = message.get("role"), message.get("content")
    if role not in ROLES:
        raise ConfigError(f"{place}.role: {str(role)[:40]!r} has no place here; expected one of {', '.join(ROLES)}")
    if role == "system" and index:
        raise ConfigError(f"{place}.role: the system prompt must be the first message")
    if not isinstance(content, str):
        raise ConfigError(f"{place}.content: expected a text")
    return {"role": role, "content": content}
