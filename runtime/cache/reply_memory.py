"""Which token ids the model wrote for which text, so that the next turn of a chat begins with exactly these.

A reply comes back as text. Tokenised anew it may become other tokens than the model chose (it may spell `name` as
`n` + `ame`), and from there on nothing is found in the prefix cache. So what was generated is remembered under the
whole text of the conversation up to the end of the reply, and spliced in when a conversation begins with that text.

::

    conversation so far   [system … user …]  [reply]     [user …]
    token ids             as they were in the pool       tokenised now

A reply with calls of tools comes back as calls, not as text, and the template writes them again. Where the model marks
them with special tokens, what was generated is remembered under the conversation alone, and spliced in if the template
has written the very same text at one of its marks; that it was these marks and not their spelling is checked before
(`tokenizer.shows_marks`), and a mark in a user's text is cut, so it never is the same text.

A reply that was cut (its request was aborted, a stop string ended it) comes back as far as its reader had it. It is
remembered under the conversation alone as well; the ids of as much of it as came back are spliced in.

Only exact text counts: a template that shows a reply otherwise than it was written, or an edited reply, is simply
tokenised. Keys are digests, per namespace, so nothing can be learned from one tenant's replies by another.

Bounded in bytes, least recently used first. Thread-safe. Cost: one pass of hashing over the conversation for each of
its turns.
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
class ChatPrompt:
    """The prompt of a chat, ready to be continued.

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
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()

    @property
    def num_bytes(self) -> int:
        """Memory of what is remembered; at most `max_bytes`."""
        return self._num_bytes

    def encode(
        self, tokenizer: Tokenizer, pieces: Sequence[str], messages: Sequence[Mapping[str, Any]], namespace: str
    ) -> ChatPrompt:
        """Token ids of a rendered template (`ChatTemplate.render`), with the ids of the longest remembered part.

        `messages` are those that were rendered: they say where a reply may be.
        """
        if any(CUT in piece for piece in pieces):
            return ChatPrompt(array("i", tokenizer.encode_pieces(pieces)), "", 0)
        text = CUT.join(pieces)
        known, end = self._longest(tokenizer, text, messages, namespace)
        rest = tokenizer.encode_pieces(text[end:].split(CUT), at_start=not end)
        return ChatPrompt(known + array("i", rest), text, len(known))

    def remember(
        self, text: str, reply: str, token_ids: Sequence[int], namespace: str, *, has_marks: bool = False
    ) -> None:
        """Keeps the ids of a conversation's text and the reply to it. has_marks: special tokens mark calls in it."""
        if not text or not reply:
            return
        key = _call_key(_digest(text), namespace) if has_marks else _key(text, reply, namespace)
        self._keep(key, _Kept(array("i", token_ids), reply if has_marks else ""))

    def remember_cut(
        self, text: str, reply: str, token_ids: Sequence[int], num_prompt_tokens: int, namespace: str
    ) -> None:
        """Keeps the ids of a conversation's text and of a reply of which less may come back."""
        if text and reply:
            kept = _Kept(array("i", token_ids), reply, num_prompt_tokens)
            self._keep(_key(text, CUT, namespace), kept)  # no reply says that

    def _keep(self, key: bytes, kept: _Kept) -> None:
        with self._lock:
            old = self._kept.pop(key, None)
            if old is not None:
                self._num_bytes -= old.num_bytes
            self._kept[key] = kept
            self._num_bytes += kept.num_bytes
            while self._num_bytes > self._max_bytes:
                _, dropped = self._kept.popitem(last=False)
                self._num_bytes -= dropped.num_bytes

    def _longest(
        self, tokenizer: Tokenizer, text: str, messages: Sequence[Mapping[str, Any]], namespace: str
    ) -> tuple[array[int], int]:
        """The remembered ids of the longest beginning of `text`, and where that ends."""
        for message in reversed(messages):
            if message.get("role") != "assistant":
                continue
            reply = message.get("content")
            if message.get("tool_calls") and not reply:
                found = self._calls(tokenizer, text, namespace)
                if found is not None:
                    return found
            if not isinstance(reply, str) or not reply:
                continue
            shown = tokenizer.chat_template.cut(reply, CUT)
            start = text.rfind(shown)
            for _ in range(MAX_PLACES):
                if start < 0:
                    break
                end = start + len(shown)
                kept = self._recall(_key(text[:start], reply, namespace))
                if kept is not None:
                    return kept.token_ids, end
                cut = self._recall(_key(text[:start], CUT, namespace))
                if cut is not None and shown == reply and cut.reply.startswith(reply):
                    token_ids, num_chars = cut.beginning(tokenizer, len(reply))
                    return token_ids, start + num_chars
                start = text.rfind(shown, 0, end - 1)
        return array("i"), 0

    def _calls(self, tokenizer: Tokenizer, text: str, namespace: str) -> tuple[array[int], int] | None:
        """The longest beginning of `text` that ends with a remembered reply which began with a mark."""
        digest = hashlib.blake2b(digest_size=16)
        done = 0
        found = None
        for mark in tokenizer.special_pattern.finditer(text):
            digest.update(text[done : mark.start()].encode("utf-8", "surrogatepass"))
            done = mark.start()
            kept = self._recall(_call_key(digest.digest(), namespace))
            if kept is not None and text.startswith(kept.reply, done):
                found = kept.token_ids, done + len(kept.reply)
        return found

    def _recall(self, key: bytes) -> _Kept | None:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        return None


@dataclass(frozen=True, slots=True)
class _Kept:
    """Ids of a conversation and the reply to it; the reply itself where it is not in the key; of a cut one, how many of
    the ids are of the conversation."""

    token_ids: array[int]
    reply: str
    num_prompt_tokens: int = 0

    def beginning(self, tokenizer: Tokenizer, num_chars: int) -> tuple[array[int], int]:
        """As many ids as say no more than the reply's first characters, and how many of these they say."""
        first, last = self.num_prompt_tokens, len(self.token_ids)
        while first < last:  # the most tokens whose text is no longer
            middle = (first + last + 1) // 2
            if len(tokenizer.decode(self.token_ids[self.num_prompt_tokens : middle])) <= num_chars:
                first = middle
            else:
                last = middle - 1
        while first > self.num_prompt_tokens:  # a part of a character says another one
            said = tokenizer.decode(self.token_ids[self.num_prompt_tokens : first])
            if len(said) <= num_chars and self.reply.startswith(said):
                return self.token_ids[:first], len(said)
            first -= 1
        return self.token_ids[:first], 0

    @property
    def num_bytes(self) -> int:
        return 4 * len(self.token_ids) + len(self.reply) + ENTRY_BYTES


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _call_key(digest: bytes, namespace: str) -> bytes:
    """Of a conversation whose reply has calls. One byte longer than other keys, so it is none of them."""
    return b"c" + _digest(digest.hex() + namespace)


def _key(text: str, reply: str, namespace: str) -> bytes:
    """Digest of a conversation and the reply to it. A cut just before the reply is there or not: it says nothing."""
    digest = hashlib.blake2b(digest_size=16)
    for part in (namespace, text.removesuffix(CUT), reply):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.digest()
