"""Which token ids the model wrote for which text, so that the next turn of a chat begins with exactly these.

A reply comes back as text. Tokenised anew it may become other tokens than the model chose (it may spell `name` as
`n` + `ame`), and from there on nothing is found in the prefix cache. So what was generated is remembered under the
whole text of the conversation up to the end of the reply, and spliced in when a conversation begins with that text.

::

    conversation so far   [system … user …]  [reply]     [user …]
    token ids             as they were in the pool       tokenised now

Only exact text counts: a template that shows a reply otherwise than it was written, or an edited reply, is simply
tokenised. Keys are digests, per namespace, so nothing can be learned from one tenant's replies by another.

Bounded in bytes, least recently used first. Thread-safe. Cost: one pass of hashing over the conversation per turn.
"""

from __future__ import annotations

import hashlib
import threading
from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..tokenizer.tokenizer import Tokenizer

MAX_BYTES = 64 << 20
ENTRY_BYTES = 200  # key, array and table
MAX_PLACES = 4  # places at which one reply is looked for
CUT = "\0"  # stands where special tokens must not be read across


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation ready to be continued.

    Attributes:
        token_ids: the prompt.
        text: what the prompt says, under which a reply to it is remembered.
        num_spliced_tokens: how many of the first ids are remembered ones.
    """

    token_ids: array[int]
    text: str
    num_spliced_tokens: int


class ReplyMemory:
    """Remembers replies of one model."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._lock = threading.Lock()
        self._kept: OrderedDict[bytes, array[int]] = OrderedDict()

    @property
    def num_bytes(self) -> int:
        """Memory of what is remembered; at most `max_bytes`."""
        return self._num_bytes

    def encode(
        self, tokenizer: Tokenizer, pieces: Sequence[str], messages: Sequence[Mapping[str, Any]], namespace: str
    ) -> Conversation:
        """Token ids of a rendered template (`ChatTemplate.render`), with the ids of the longest remembered part.

        `messages` are those that were rendered: they say where a reply may be.
        """
        if any(CUT in piece for piece in pieces):
            return Conversation(array("i", tokenizer.encode_pieces(pieces)), "", 0)
        text = CUT.join(pieces)
        known, end = self._longest(text, messages, namespace)
        rest = tokenizer.encode_pieces(text[end:].split(CUT), at_start=not end)
        return Conversation(known + array("i", rest), text, len(known))

    def remember(self, text: str, reply: str, token_ids: Sequence[int], namespace: str) -> None:
        """Keeps the ids of a conversation's text and the reply to it."""
        if not text or not reply:
            return
        key = _key(text, reply, namespace)
        with self._lock:
            old = self._kept.pop(key, None)
            if old is not None:
                self._num_bytes -= 4 * len(old) + ENTRY_BYTES
            self._kept[key] = ids = array("i", token_ids)
            self._num_bytes += 4 * len(ids) + ENTRY_BYTES
            while self._num_bytes > self._max_bytes:
                _, dropped = self._kept.popitem(last=False)
                self._num_bytes -= 4 * len(dropped) + ENTRY_BYTES

    def _longest(self, text: str, messages: Sequence[Mapping[str, Any]], namespace: str) -> tuple[array[int], int]:
        """The remembered ids of the longest beginning of `text`, and where that ends."""
        for message in reversed(messages):
            reply = message.get("content")
            if message.get("role") != "assistant" or not isinstance(reply, str) or not reply:
                continue
            start = text.rfind(reply)
            for _ in range(MAX_PLACES):
                if start < 0:
                    break
                end = start + len(reply)
                key = _key(text[:start], reply, namespace)
                with self._lock:
                    if key in self._kept:
                        self._kept.move_to_end(key)
                        return self._kept[key], end
                start = text.rfind(reply, 0, end - 1)
        return array("i"), 0


def _key(text: str, reply: str, namespace: str) -> bytes:
    """Digest of a conversation and the reply to it. A cut just before the reply is there or not: it says nothing."""
    digest = hashlib.blake2b(digest_size=16)
    for part in (namespace, text.removesuffix(CUT), reply):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.digest()
