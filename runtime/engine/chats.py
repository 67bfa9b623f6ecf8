"""Conversations as prompts, in which the replies of this engine are the very tokens that it generated.

Safe on any thread. Knows no queue and no blocks.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack

from ..cache.reply_memory import ChatPrompt, ReplyMemory
from ..models.adapter import LONG
from ..request import FinishReason, Request
from ..tokenizer.tokenizer import Tokenizer, shows_marks
from .request_factory import RequestFactory

Message = Mapping[str, Any]


class ChatOptions(TypedDict, total=False):
    """How a conversation becomes a prompt: for whose cache, and the arguments of `ChatTemplate.render`."""

    namespace: str
    adapter: str | None
    add_generation_prompt: bool
    continue_final: bool
    tools: Sequence[Mapping[str, Any]] | None
    options: Mapping[str, Any] | None


class Chats:
    """The chat template and the replies that are remembered.

    Args:
        most_bytes: of token ids of replies.
    """

    def __init__(self, tokenizer: Tokenizer, request_factory: RequestFactory, most_bytes: int) -> None:
        self._tokenizer = tokenizer
        self._request_factory = request_factory
        self._replies = ReplyMemory(most_bytes)

    @property
    def num_bytes(self) -> int:
        """What is remembered."""
        return self._replies.num_bytes

    def encode(self, messages: Sequence[Message], **options: Unpack[ChatOptions]) -> ChatPrompt:
        """A conversation as a prompt. Give its `text` to the request as `conversation`, so that the reply is remembered
        in turn."""
        namespace = self._request_factory.namespace(options.pop("namespace", ""), options.pop("adapter", None))
        template: dict[str, Any] = {"add_generation_prompt": True, **options}
        pieces = self._tokenizer.chat_template.render(messages, **template)
        return self._replies.encode(self._tokenizer, pieces, messages, namespace)

    def remember_reply(self, request: Request) -> None:
        """So that the next turn begins with the tokens of a request that has ended."""
        if request.conversation:
            self.remember(
                request.conversation,
                request.num_prompt_tokens,
                request.token_ids,
                request.output.text,
                request.namespace.removeprefix(LONG),  # a conversation is the same one, however long
                may_be_cut=request.finish_reason is FinishReason.ABORT,
            )

    def remember(
        self,
        conversation: str,
        num_prompt_tokens: int,
        token_ids: Sequence[int],
        text: str,
        namespace: str,
        *,
        may_be_cut: bool = False,
    ) -> None:
        """Lets the next turn of a conversation begin with these tokens, its prompt and its reply, or with as much of
        the reply as comes back, if its text was cut (a stop string, half a character).

        namespace: as `RequestFactory.namespace` writes it; may_be_cut: its reader may have less than the text.
        """
        tokenizer = self._tokenizer
        kept = array("i", token_ids)
        while len(kept) > num_prompt_tokens and kept[-1] in tokenizer.eos_ids:
            kept.pop()
        said = kept[num_prompt_tokens:]
        is_plain = tokenizer.decode(said) == text
        if is_plain or shows_marks(tokenizer, said, text):
            self._replies.remember(conversation, text, kept, namespace, has_marks=not is_plain)
            if not may_be_cut:
                return
        self._replies.remember_cut(conversation, tokenizer.decode(said), kept, num_prompt_tokens, namespace)
