"""A conversation with an engine: its messages, what its answers must look like, and how the last one came about.

Knows no terminal. A message joins the conversation together with its answer, as soon as there is any of it: a turn that
fails, or is cut before it says anything, leaves everything as it was.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from ....errors import RequestError
from ...request import RequestOptions
from ...server.formats.events import Content, Reasoning
from ...server.formats.table import output_format_of
from ...server.protocol import ChatRequest

if TYPE_CHECKING:
    from ...constrain.spec import ConstraintSpec
    from ...engine.engine import Engine
    from ...request import Delta, SamplingParams, Usage

Message = dict[str, str]
"""`{"role": …, "content": …}`, both texts."""

Piece = Content | Reasoning


@dataclass(frozen=True, slots=True)
class Answer:
    """How an answer came about.

    Attributes:
        token_ids: all that were generated, with those of reasoning and the end token.
        seconds: from the message to its end.
        is_cut: it was interrupted.
    """

    token_ids: tuple[int, ...]
    usage: Usage
    seconds: float
    is_cut: bool


class Conversation:
    """Messages so far, and how to go on.

    Attributes:
        engine: which answers.
        messages: without the system prompt.
        system: the system prompt; None: there is none.
        constraint: what the next answers must look like; None: anything.
        last: of the last answer; None: there is none.
    """

    def __init__(
        self, engine: Engine, sampling: SamplingParams, system: str | None = None, adapter: str | None = None
    ) -> None:
        self.engine = engine
        self.messages: list[Message] = []
        self.system = system
        self.constraint: ConstraintSpec | None = None
        self.last: Answer | None = None
        self._sampling = sampling
        self._adapter = adapter
        self._format = output_format_of(engine.tokenizer, "none", "auto")
        self._request = ChatRequest.model_validate({"messages": [{"role": "user", "content": ""}]})  # nothing special

    @property
    def repeats_itself(self) -> bool:
        """Whether the same messages get the same answer."""
        return self._sampling.temperature == 0 or self._sampling.seed is not None

    def begin_again(self, messages: Sequence[Message] = (), system: str | None = None) -> None:
        """Goes on from these messages; the constraint stays."""
        self.messages, self.system, self.last = list(messages), system, None

    def with_system(self, messages: Sequence[Message]) -> list[Message]:
        """Messages as the engine and files have them."""
        opening = [] if self.system is None else [{"role": "system", "content": self.system}]
        return [*opening, *messages]

    def questions(self) -> list[int]:
        """Where the user's messages are."""
        return [index for index, message in enumerate(self.messages) if message["role"] == "user"]

    def ask(self, text: str, num_kept: int | None = None) -> Generator[Piece]:
        """Sends a message, and yields its answer piece by piece; closing the iterator cuts the answer there.

        num_kept: it follows the first n messages, and what came after them is forgotten; None: it follows all.

        Raises:
            RequestError: it is not answered, or the answer failed. Nothing has changed.
        """
        asked = [*self.messages[:num_kept], {"role": "user", "content": text}]
        started_at = time.perf_counter()
        prompt = self.engine.encode_chat(self.with_system(asked), adapter=self._adapter)
        reading = self._format.reading(self._request, self.constraint, None, prompt.token_ids)
        reader = reading.new_reader()
        options = RequestOptions(
            conversation=prompt.text, shows_special=reading.has_marks, adapter=self._adapter, explain_cache=True
        )
        said, usage, is_cut = "", None, True
        token_ids: list[int] = []
        try:
            stream = self.engine.stream(prompt.token_ids, self._sampling, reading.spec, **options)
            with closing(cast("Generator[Delta]", stream)) as deltas:
                for delta in deltas:
                    usage = delta.usage
                    token_ids += delta.token_ids
                    for event in reader.push(delta.text, is_last=delta.finish_reason is not None):
                        if isinstance(event, Content | Reasoning):  # no calls: there are no tools
                            said += event.text if isinstance(event, Content) else ""
                            yield event
            is_cut = False
        except RequestError:
            usage = None
            raise
        finally:
            if usage is not None and (said or not is_cut):
                self.messages = [*asked, {"role": "assistant", "content": said}]
                self.last = Answer(tuple(token_ids), usage, time.perf_counter() - started_at, is_cut)
