"""A backend whose answers are written down beforehand, so that a program's text can be known to the last character."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from phloem.errors import RequestError
from phloem.runtime.constrain.spec import ConstraintSpec
from phloem.runtime.request import Completion, Delta, FinishReason, SamplingParams, TokenLogprob, Usage

BOS, END = 256, 257
SPECIAL_TEXTS = {"<s>": BOS, "<|end|>": END, "<|system|>": 258, "<|user|>": 259, "<|assistant|>": 260}
LONG_TOKENS = {300: b".\n", 301: b" the", 302: b"an", 303: b"\xc3\xa9t", 304: b"ab", 305: b"bc"}
Templates = Callable[[Sequence[Mapping[str, str]], bool], list[str]]


def plain_template(messages: Sequence[Mapping[str, str]], add_generation_prompt: bool) -> list[str]:
    """BOS, then `<|role|>content<|end|>`."""
    pieces = ["<s>"]
    for message in messages:
        pieces += [f"<|{message['role']}|>", message["content"], "<|end|>"]
    return [*pieces, "<|assistant|>"] if add_generation_prompt else pieces


@dataclass
class FakeTemplate:
    """Renders in pieces; special-token text counts within a piece."""

    template: Templates

    def render(self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool = True) -> list[str]:
        return self.template(messages, add_generation_prompt)


class FakeTokenizer:
    """Bytes, a few longer tokens, and five special tokens."""

    bos_id = BOS
    control_ids = SPECIAL_TEXTS

    def __init__(self, template: Templates = plain_template) -> None:
        self.chat_template = FakeTemplate(template)
        self._bytes = {i: bytes([i]) for i in range(256)} | LONG_TOKENS
        self._special = {token_id: text for text, token_id in SPECIAL_TEXTS.items()}

    def encode(self, text: str) -> list[int]:
        data, ids = text.encode(), []
        while data:
            token_id = max(
                (i for i, piece in self._bytes.items() if data.startswith(piece)), key=lambda i: len(self._bytes[i])
            )
            ids.append(token_id)
            data = data[len(self._bytes[token_id]) :]
        return ids

    def encode_message(self, text: str) -> list[int]:
        return self.encode(text)

    def encode_prompt(self, text: str) -> list[int]:
        return [BOS, *self.encode(text)]

    def decode(self, token_ids: Sequence[int]) -> str:
        return b"".join(map(self.token_bytes, token_ids)).decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        return self._bytes.get(token_id, b"")

    def token_text(self, token_id: int) -> str:
        return self._special.get(token_id) or self.token_bytes(token_id).decode(errors="replace")

    def encode_pieces(self, pieces: Iterable[str]) -> list[int]:
        """Special-token text counts within a piece."""
        ids: list[int] = []
        for piece in pieces:
            for part in re.split("(" + "|".join(map(re.escape, SPECIAL_TEXTS)) + ")", piece):
                ids += [SPECIAL_TEXTS[part]] if part in SPECIAL_TEXTS else self.encode(part)
        return ids

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool = True
    ) -> list[int]:
        return self.encode_pieces(self.chat_template.render(messages, add_generation_prompt=add_generation_prompt))


@dataclass
class FakeEngine:
    tokenizer: FakeTokenizer = field(default_factory=FakeTokenizer)


@dataclass
class Asked:
    """One request as the backend got it."""

    prompt: list[int]
    sampling: SamplingParams
    constraint: ConstraintSpec | None


class FakeStream:
    """Two characters at a time."""

    def __init__(self, backend: FakeBackend, asked: Asked, replies: list[str]) -> None:
        self._backend = backend
        self._asked = asked
        self._replies = replies
        self.aborted = threading.Event()
        self._drained = False

    def __iter__(self) -> Iterator[Delta]:
        usage = Usage(prompt_tokens=len(self._asked.prompt))
        for index, reply in enumerate(self._replies):
            for start in range(0, len(reply), 2):
                while not self._backend.gate.wait(0.01):
                    if self.aborted.is_set():
                        return
                if self.aborted.is_set():
                    return
                while self._backend.pace is not None and not self._backend.pace.acquire(timeout=0.01):
                    if self.aborted.is_set():
                        return
                yield Delta("r", index, reply[start : start + 2], (), None, usage)
        self._drained = True

    def completions(self) -> list[Completion]:
        if not self._drained:
            for _ in self:
                pass
        if self.aborted.is_set():
            raise RequestError("the request was aborted")
        tokenizer = self._backend.engine.tokenizer
        out = []
        for index, reply in enumerate(self._replies):
            ids = (*tokenizer.encode(reply), END)
            usage = Usage(prompt_tokens=len(self._asked.prompt), completion_tokens=len(ids))
            parsed = self._asked.constraint.parse(reply) if self._asked.constraint else None
            logprobs = ()
            if self._asked.sampling.logprobs is not None:
                logprobs = tuple(TokenLogprob(i, -1.0, ((i, -1.0),)) for i in ids)
            out.append(Completion("r", index, reply, ids, FinishReason.STOP, usage, logprobs, (), parsed))
        return out

    def abort(self) -> None:
        self.aborted.set()

    def fork(self, n: int = 1) -> list[FakeStream]:
        """They say what it says, and their number."""
        if self._drained:
            raise RequestError("it is not under way")
        forks = [FakeStream(self._backend, self._asked, [f"{self._replies[0]}/{index}"]) for index in range(n)]
        self._backend.streams += forks
        return forks


class FakeScore:
    """A request that scores; it ends when the backend's gate is open."""

    def __init__(self, backend: FakeBackend, logprobs: list[TokenLogprob]) -> None:
        self._backend = backend
        self._logprobs = logprobs
        self.aborted = threading.Event()

    def completions(self) -> list[Completion]:
        while not self._backend.gate.wait(0.01) and not self.aborted.is_set():
            pass
        if self.aborted.is_set():
            raise RequestError("the request was aborted")
        return [Completion("r", 0, "", (), FinishReason.LENGTH, Usage(), (), tuple(self._logprobs), None)]

    def abort(self) -> None:
        self.aborted.set()


class FakeBackend:
    """Answers each request with `reply(prompt text, sampling)`; the prompt text shows special tokens by name.

    While `gate` is clear no stream moves on; with a `pace` each piece of two characters takes one release.
    """

    def __init__(
        self,
        reply: str | Callable[[str], str] = "ok",
        *,
        template: Templates = plain_template,
    ) -> None:
        self.engine = FakeEngine(FakeTokenizer(template))
        self.asked: list[Asked] = []
        self.scored: list[tuple[list[int], list[list[int]]]] = []
        self.streams: list[FakeStream] = []
        self.scores: list[FakeScore] = []
        self.gate = threading.Event()
        self.gate.set()
        self.pace: threading.Semaphore | None = None
        self._reply = reply
        self._lock = threading.Lock()

    @property
    def tokenizer(self) -> FakeTokenizer:
        return self.engine.tokenizer

    def submit(
        self,
        prompt: Sequence[int],
        sampling: SamplingParams | None = None,
        constraint: ConstraintSpec | None = None,
        *,
        namespace: str = "",
        adapter: str | None = None,
    ) -> FakeStream:
        assert sampling is not None
        asked = Asked(list(prompt), sampling, constraint)
        text = self.show(prompt)
        if "REFUSE" in text:
            raise RequestError("refused on purpose", param="prompt")
        replies = [self._reply if isinstance(self._reply, str) else self._reply(text)]
        replies += [f"{replies[0]}{index}" for index in range(1, sampling.n)]
        stream = FakeStream(self, asked, replies)
        with self._lock:
            self.asked.append(asked)
            self.streams.append(stream)
        return stream

    def begin_scores(
        self,
        prompt: Sequence[int],
        continuations: Sequence[Sequence[int]],
        *,
        namespace: str = "",
        adapter: str | None = None,
    ) -> list[FakeScore]:
        scores = [
            FakeScore(self, [TokenLogprob(i, fake_logprob([*prompt, *ids[:at]], i)) for at, i in enumerate(ids)])
            for ids in continuations
        ]
        with self._lock:
            self.scored.append((list(prompt), [list(ids) for ids in continuations]))
            self.scores += scores
        return scores

    def show(self, token_ids: Sequence[int]) -> str:
        tokenizer = self.engine.tokenizer
        pieces = (tokenizer.token_bytes(i) or tokenizer.token_text(i).encode() for i in token_ids)
        return b"".join(pieces).decode(errors="replace")


def fake_logprob(context: Sequence[int], token_id: int) -> float:
    """A number in (-8, 0) that depends on all of the context."""
    digest = hashlib.blake2b(repr((list(context), token_id)).encode(), digest_size=4).digest()
    return -8 * (int.from_bytes(digest, "little") + 1) / (2**32 + 1)
