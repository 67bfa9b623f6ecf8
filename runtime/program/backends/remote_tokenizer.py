"""The tokenizer of a model that a phloem server has, asked over HTTP: the same ids as on the engine itself.

What was asked before is remembered: bytes of tokens, a short text's ids, the text around messages. So once a program
has run, a prompt costs a question for each new text in it. Safe on any thread; its caches only ever gain equal values.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

from ....errors import RequestError
from .http_call import HttpClient

PATH = "/program/text"
PromptPart = Literal["prompt", "inside", "message", "template_start", "template"]
SHORT = 256  # characters of a text whose ids are remembered
MAX_REMEMBERED = 4096  # texts
MAX_TOKENS_ASKED = 1 << 14
FACTS = {"bos_id": int, "bos_text": str, "control_ids": dict, "max_model_len": int}  # of the model, by name


class RemoteTokenizer:
    """See `chat_format.TextTokenizer`; every method may raise RequestError."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client
        self._bytes: dict[int, bytes] = {}
        self._ids: dict[tuple[PromptPart, str], list[int]] = {}

    @property
    def bos_id(self) -> int:
        return int(self._facts["bos_id"])

    @property
    def control_ids(self) -> Mapping[str, int]:
        found: Mapping[str, int] = self._facts["control_ids"]
        return found

    @property
    def max_model_len(self) -> int:
        return int(self._facts["max_model_len"])

    @property
    def chat_template(self) -> RemoteTemplate:
        return RemoteTemplate(self._client)

    def encode(self, text: str) -> list[int]:
        return self._encode("inside", text)

    def encode_prompt(self, text: str) -> list[int]:
        return self._encode("prompt", text)

    def encode_message(self, text: str) -> list[int]:
        return self._encode("message", text)

    def encode_pieces(self, pieces: Iterable[str]) -> list[int]:
        """Of a template's text: the first piece begins the sequence unless it is empty."""
        places: tuple[PromptPart, ...] = ("template_start", "template")
        found = [self._encode(places[min(index, 1)], piece) for index, piece in enumerate(pieces) if piece]
        return [token_id for ids in found for token_id in ids]

    def decode(self, token_ids: Sequence[int]) -> str:
        self.learn(token_ids)
        return b"".join(self._bytes[token_id] for token_id in token_ids).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        self.learn([token_id])
        return self._bytes[token_id]

    def token_text(self, token_id: int) -> str:
        """For people; of special tokens only the first of a text has a name here."""
        return str(self._facts["bos_text"]) if token_id == self.bos_id else self.decode([token_id])

    def learn(self, token_ids: Iterable[int]) -> None:
        """Asks for the bytes of those tokens that are not known yet, all at once."""
        unknown = sorted({token_id for token_id in token_ids if token_id not in self._bytes})
        for start in range(0, len(unknown), MAX_TOKENS_ASKED):
            asked = unknown[start : start + MAX_TOKENS_ASKED]
            answer = ask(self._client, {"tokens": asked}, "token_bytes")
            try:
                self._bytes.update(zip(asked, map(base64.b64decode, answer["token_bytes"]), strict=True))
            except (TypeError, ValueError) as error:
                raise _no_phloem(self._client, "token_bytes") from error

    @cached_property
    def _facts(self) -> Mapping[str, Any]:
        found = ask(self._client, None, *FACTS)
        if any(type(found[name]) is not kind for name, kind in FACTS.items()):
            raise _no_phloem(self._client, *FACTS)
        return found

    def _encode(self, place: PromptPart, text: str) -> list[int]:
        if not text:
            return []
        key = (place, text)
        if (known := self._ids.get(key)) is not None:
            return list(known)
        body = {"texts": [{"text": text, "place": place}]}
        answer = ask(self._client, body, "token_ids")["token_ids"]
        if not (isinstance(answer, list) and len(answer) == 1 and _are(answer[0], int)):
            raise _no_phloem(self._client, "token_ids")
        found: list[int] = answer[0]
        if len(text) <= SHORT and len(self._ids) < MAX_REMEMBERED:
            self._ids[key] = list(found)
        return found


def ask(client: HttpClient, body: Mapping[str, Any] | None, *names: str) -> Mapping[str, Any]:
    """The answer, which has these names.

    Raises:
        RequestError: there is none, or it has not.
    """
    found = client.call(PATH, body).json()
    if not isinstance(found, Mapping) or any(name not in found for name in names):
        raise _no_phloem(client, *names)
    return found


def _no_phloem(client: HttpClient, *names: str) -> RequestError:
    return RequestError(f"{client.base_url}{PATH} does not answer {', '.join(names)}: this is no phloem server")


def _are(found: Any, kind: type) -> bool:
    return isinstance(found, list) and all(type(one) is kind for one in found)


class RemoteTemplate:
    """The chat template of that model."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client

    def render(self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool = True) -> list[str]:
        body = {"messages": [dict(message) for message in messages], "add_generation_prompt": add_generation_prompt}
        found: list[str] = ask(self._client, body, "pieces")["pieces"]
        if not _are(found, str):
            raise _no_phloem(self._client, "pieces")
        return found
