"""An engine that answers from a script, for what is around a conversation."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from phloem.errors import RequestError
from phloem.runtime.cache.reply_memory import ChatPrompt as Prompt
from phloem.runtime.cli.chat.conversation import Conversation
from phloem.runtime.cli.chat.plain_transcript import PlainTranscript
from phloem.runtime.cli.chat.session import Session, View
from phloem.runtime.request import Delta, FinishReason, SamplingParams, Usage


class ScriptedEngine:
    """Gives every request the same answer. Special tokens are silent unless they are asked for.

    Attributes:
        asked: the messages of every request.
        fails_after: the answer fails after so many pieces; None: it does not.
        at: called before each piece, with its number.
    """

    def __init__(self, reply: Sequence[str], special: Sequence[str] = (), template: str = "", prompt: str = "") -> None:
        self.tokenizer = SimpleNamespace(
            special_ids=dict.fromkeys(special, 3),
            chat_template=SimpleNamespace(source=template, is_default=False),
            has_text=True,
            show=lambda token_ids: prompt,
        )
        self.reply = reply
        self.asked: list[list[dict[str, str]]] = []
        self.fails_after: int | None = None
        self.at: Callable[[int], object] = lambda index: None

    def encode_chat(self, messages: Sequence[dict[str, str]], *, adapter: str | None) -> Prompt:
        self.asked.append([dict(message) for message in messages])
        return Prompt(array("i", [1]), "text", 0)

    def stream(self, prompt: Any, sampling: SamplingParams, constraint: Any, **options: Any) -> Iterator[Delta]:
        silent = () if options["shows_special"] else ("<|", *self.tokenizer.special_ids)
        for index, text in enumerate(self.reply):
            if index == self.fails_after:
                raise RequestError("it failed")
            self.at(index)
            reason = FinishReason.STOP if index == len(self.reply) - 1 else None
            yield Delta("1", 0, "" if text.startswith(silent) else text, (1,), reason, Usage())


def conversation_with(engine: ScriptedEngine) -> Conversation:
    return Conversation(engine, SamplingParams())  # type: ignore[arg-type]


def plain_session(engine: ScriptedEngine, view: View | None = None) -> Session:
    return Session(conversation_with(engine), view or PlainTranscript(), "scripted", stats=False)
