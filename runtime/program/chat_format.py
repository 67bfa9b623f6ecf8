"""The role markers that open and close a message, read off the model's chat template.

The template is asked to render conversations whose every content is one marker character M. What it puts between the
markers are the role markers::

    template([user M, assistant M])  =  <s><|user|> M <|end|><|assistant|> M <|end|>
                                        `---------´   `------------------´   `-----´
                                        begin(user)    glue                   end(assistant)

    glue = end(user) + begin(assistant);  end(user) is what follows the last M of template([user M]).

A marker's special tokens are ids; plain text before its first and after its last one is left as text, for it becomes
tokens together with the text that it touches.

So a program's text is that of the chat template for the same messages, although the messages arrive piece by piece;
what a program computed, a chat request finds in the cache, and the other way round. An assistant message opens with
the template's generation prompt where there is one. Templates that move a system message into the user's turn
(Llama 2, Gemma) work too: what cannot be separated yet is part of the next `begin`.

Knows the template by its output only. Cost: one or two renderings for each new sequence of roles; results are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from ...errors import PhloemError, ProgramError, RequestError
from .expression import Role

MARKER = "\ue000"  # a private-use character: no template has it


class Template(Protocol):
    """The part of a chat template that this module uses."""

    def render(self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool = True) -> Sequence[str]: ...


class TextTokenizer(Protocol):
    """The part of a tokenizer that programs use."""

    @property
    def chat_template(self) -> Template: ...

    @property
    def control_ids(self) -> Mapping[str, int]: ...

    @property
    def bos_id(self) -> int: ...

    def encode(self, text: str) -> list[int]: ...

    def encode_prompt(self, text: str) -> list[int]: ...

    def encode_message(self, text: str) -> list[int]: ...

    def encode_pieces(self, pieces: Iterable[str]) -> list[int]: ...

    def token_bytes(self, token_id: int) -> bytes: ...

    def token_text(self, token_id: int) -> str: ...

    def decode(self, token_ids: Sequence[int]) -> str: ...


@dataclass(frozen=True, slots=True)
class Marker:
    """One role marker: `text` is the whole, `before` and `after` what is plain text on either side of `token_ids`."""

    text: str
    before: str
    token_ids: tuple[int, ...]
    after: str


class ChatFormat:
    """Role markers of one chat template. Shared by threads; its caches only ever gain equal values."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self._begins: dict[tuple[Role, ...], str] = {}
        self._ends: dict[tuple[Role, ...], str] = {}
        self._markers: dict[tuple[str, bool], Marker] = {}

    def marker(self, text: str, *, at_start: bool) -> Marker:
        """A marker as ids. `at_start`: nothing stands before it, so its beginning is settled."""
        key = (text, at_start)
        if key not in self._markers:
            self._markers[key] = self._split(text, at_start)
        return self._markers[key]

    def begin(self, before: Sequence[Role], role: Role) -> str:
        """The text that opens a message of `role` after messages of the roles `before`.

        Raises:
            ProgramError: the template refuses this sequence of roles, or does not grow at its end.
        """
        key = (*before, role)
        if key not in self._begins:
            self._begins[key] = self._find_begin(tuple(before), role)
        return self._begins[key]

    def end(self, roles: Sequence[Role]) -> str:
        """The text that closes the last message of a conversation of these roles."""
        key = tuple(roles)
        if key not in self._ends:
            pieces = self._render(key)
            self._ends[key] = pieces[-1] if isinstance(pieces, list) else ""
        return self._ends[key]

    @cached_property
    def _control_ids(self) -> frozenset[int]:
        return frozenset(self._tokenizer.control_ids.values())

    def _split(self, text: str, at_start: bool) -> Marker:
        ids = self._tokenizer.encode_pieces([text] if at_start else ["", text])
        places = [at for at, token_id in enumerate(ids) if token_id in self._control_ids]
        if at_start:
            places = [0, *places] if places else [0, len(ids) - 1]
        if not places:
            return Marker(text, text, (), "")
        first, last = places[0], places[-1]
        decode = self._tokenizer.decode
        return Marker(text, decode(ids[:first]), tuple(ids[first : last + 1]), decode(ids[last + 1 :]))

    def _find_begin(self, before: tuple[Role, ...], role: Role) -> str:
        closed = self.end(before) if before else ""
        if role == "assistant" and before:
            pieces = self._render(before, add_generation_prompt=True)
            # Equal to `closed`: the template has no generation prompt, or needs none.
            if isinstance(pieces, list) and pieces[-1].startswith(closed) and pieces[-1] != closed:
                return pieces[-1].removeprefix(closed)
        pieces = self._render((*before, role))
        if not isinstance(pieces, list) and role == "system":
            # A system message may show only in the turn that follows it.
            follower = self._render((*before, role, "user"))
            pieces = follower[:-1] if isinstance(follower, list) else pieces
        if not isinstance(pieces, list):
            raise ProgramError(f"the chat template refuses {_arrow((*before, role))}: {pieces}") from pieces
        opening = pieces[len(before)]
        if not opening.startswith(closed):
            raise ProgramError(
                f"the chat template rewrites earlier messages when {_arrow((*before, role))} is reached;"
                " a program's text only grows, so this template cannot be used with roles"
            )
        return opening.removeprefix(closed)

    def _render(self, roles: tuple[Role, ...], *, add_generation_prompt: bool = False) -> list[str] | PhloemError:
        """The text around the contents: one piece more than there are messages. Or the reason why there is none."""
        messages = [{"role": role, "content": MARKER} for role in roles]
        try:
            pieces = self._tokenizer.chat_template.render(messages, add_generation_prompt=add_generation_prompt)
        except PhloemError as error:
            if isinstance(error, RequestError) and error.is_fault:
                raise  # a server that is not reached, or asks for a key, says nothing of its template
            return error
        around = "".join(pieces).split(MARKER)
        if len(around) != len(roles) + 1:
            return ProgramError(f"it shows {len(around) - 1} of {len(roles)} messages")
        return around


def _arrow(roles: Sequence[Role]) -> str:
    return " → ".join(roles)
