"""A tokenizer for servers that take text: its tokens are characters, and marks at the borders of messages.

So programs keep what was said as they do with a model's own tokens, and `conversation` reads text or messages off the
ids of a prompt. Tokens of the model itself, as log-probabilities name them, get numbers when they are first seen.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ....errors import ProgramError
from ..expression import Role

FIRST_MARK = 0x110000  # after the last character of Unicode
ROLES: tuple[Role, ...] = ("system", "user", "assistant")
MARKS = (*(f"<|{role}|>" for role in ROLES), "<|end|>")
MARK_IDS: Mapping[str, int] = {text: FIRST_MARK + index for index, text in enumerate(MARKS)}
END = MARK_IDS["<|end|>"]
FIRST_NAMED = FIRST_MARK + len(MARKS)


class RoleTemplate:
    """Marks around each message."""

    def render(self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool = True) -> list[str]:
        pieces = [piece for one in messages for piece in (f"<|{one['role']}|>", one["content"], "<|end|>")]
        return [*pieces, "<|assistant|>"] if add_generation_prompt else pieces


class Characters:
    """See `chat_format.TextTokenizer`. Text never becomes a mark, but in `encode_pieces`."""

    bos_id = -1
    chat_template = RoleTemplate()
    control_ids = MARK_IDS

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._named: dict[str, int] = {}
        self._texts: list[str] = []

    def encode(self, text: str) -> list[int]:
        return list(map(ord, text))

    encode_prompt = encode_message = encode

    def encode_pieces(self, pieces: Iterable[str]) -> list[int]:
        ids: list[int] = []
        for part in re.split("(" + "|".join(map(re.escape, MARKS)) + ")", "".join(pieces)):
            ids += [MARK_IDS[part]] if part in MARK_IDS else self.encode(part)
        return ids

    def decode(self, token_ids: Iterable[int]) -> str:
        """Without marks."""
        return "".join(map(self._text, token_ids))

    def token_bytes(self, token_id: int) -> bytes:
        return self._text(token_id).encode("utf-8", "surrogatepass")

    def token_text(self, token_id: int) -> str:
        is_mark = FIRST_MARK <= token_id < FIRST_NAMED
        return MARKS[token_id - FIRST_MARK] if is_mark else self._text(token_id)

    def number(self, text: str) -> int:
        """Of a token of the model, by its text. There are as many as the model's vocabulary has, at most."""
        with self._lock:
            if text not in self._named:
                self._named[text] = FIRST_NAMED + len(self._texts)
                self._texts.append(text)
            return self._named[text]

    def _text(self, token_id: int) -> str:
        if token_id < FIRST_MARK:
            return chr(token_id)
        return self._texts[token_id - FIRST_NAMED] if token_id >= FIRST_NAMED else ""


@dataclass(frozen=True, slots=True)
class SentPrompt:
    """A prompt as a server takes it.

    Attributes:
        messages: role and text of each message that is closed.
        text: the beginning of the answer; or, if it is no chat, all text.
    """

    messages: list[tuple[Role, str]]
    text: str
    is_chat: bool


def sent_prompt(prompt: Sequence[int]) -> SentPrompt:
    """The text or the messages of a prompt.

    Raises:
        ProgramError: there is text between messages, or the open message is not the assistant's.
    """
    messages: list[tuple[Role, str]] = []
    role: Role | None = None
    text = ""
    start = 0
    marks = [at for at, token_id in enumerate(prompt) if token_id >= FIRST_MARK]
    for at in marks:
        text = "".join(map(chr, prompt[start:at]))
        start = at + 1
        if prompt[at] == END:
            assert role is not None, "a message that was not opened"
            messages.append((role, text))
            role = None
            continue
        if text.strip():
            raise ProgramError(f"{text[:40]!r} stands outside of messages, which an API of messages has no place for")
        role = ROLES[prompt[at] - FIRST_MARK]
    text = "".join(map(chr, prompt[start:]))
    if not marks:
        return SentPrompt([], text, is_chat=False)
    if role != "assistant":
        raise ProgramError(f"gen in {role or 'no'} message: an API of messages answers as the assistant only")
    return SentPrompt(messages, text, is_chat=True)
