"""An async engine that answers from a script: for what the protocol does, whatever the model says."""

from __future__ import annotations

import asyncio
import codecs
import itertools
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, ClassVar, Self, Unpack

import numpy as np

from phloem.errors import PromptTooLong, RequestError
from phloem.runtime.cache.cache_report import CacheReport
from phloem.runtime.cache.reply_memory import ChatPrompt
from phloem.runtime.config import EngineConfig
from phloem.runtime.constrain.spec import ConstraintSpec
from phloem.runtime.engine.statistics import EngineStatistics
from phloem.runtime.engine.vectors import Vectors
from phloem.runtime.models.vector_rules import VectorRules
from phloem.runtime.request import Delta, FinishReason, RequestOptions, SamplingParams, TokenLogprob, Usage
from phloem.runtime.sample.output_text import OutputText, StopGuard
from phloem.runtime.tokenizer.chat_message import checked_message

EOS = 256
DEFAULTS = {"namespace": "", "priority": 0, "deadline_seconds": None, "shows_special": False, "explain_cache": False}
VECTOR_SIZE = 8


class FakeTemplate:
    source = ""
    is_default = False
    option_names = frozenset({"enable_thinking"})


class CharTokenizer:
    """Every byte is a token; 256 ends an output."""

    chat_template = FakeTemplate()
    special_ids: ClassVar[dict[str, int]] = {}
    has_text = True
    vocab_size = 257
    eos_ids = (EOS,)

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        return list(text.encode())

    def encode_whole(self, text: str) -> list[int]:
        return self.encode(text)

    def decode(self, token_ids: Sequence[int]) -> str:
        return bytes(token_id for token_id in token_ids if token_id < 256).decode("utf-8", "replace")

    def show(self, token_ids: Sequence[int]) -> str:
        return self.decode(token_ids)

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id]) if token_id < 256 else b""

    def token_text(self, token_id: int) -> str:
        return self.token_bytes(token_id).decode("utf-8", "replace") if token_id < 256 else "<end>"

    def apply_chat_template(
        self,
        messages: Sequence[dict[str, Any]],
        *,
        add_generation_prompt: bool = True,
        continue_final: bool = False,
        tools: Any = None,
        options: dict[str, Any] | None = None,
    ) -> list[int]:
        text = "".join(f"<{message['role']}>{message['content']}" for message in messages)
        if tools:
            text = f"<tools>{[tool['function']['name'] for tool in tools]}" + text
        text += "".join(f"<{name}={value}>" for name, value in (options or {}).items())
        return self.encode(text + ("<assistant>" if add_generation_prompt and not continue_final else ""))


class ByteDetokenizer:
    """Characters as soon as they are whole; a character that never is, is not shown."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def push(self, token_id: int) -> str:
        return self._decoder.decode(bytes([token_id]) if token_id < 256 else b"")

    def flush(self) -> str:
        return ""

    def fork(self) -> Self:
        raise NotImplementedError


def open_gate() -> threading.Event:
    gate = threading.Event()
    gate.set()
    return gate


class FakeRequestFactory:
    """Tokenises; "compiles" whatever is not in `broken`."""

    longest: Callable[[int, int | None], int]

    def __init__(self, tokenizer: CharTokenizer, broken: dict[str, RequestError], gate: threading.Event) -> None:
        self._tokenizer = tokenizer
        self._broken = broken
        self._gate = gate

    def token_ids(self, prompt: str | Sequence[int]) -> list[int]:
        token_ids = self._tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
        for token_id in token_ids:
            if not 0 <= token_id < self._tokenizer.vocab_size:
                raise RequestError(f"prompt: {token_id} is not a token id", param="prompt")
        return token_ids

    def compile(self, spec: ConstraintSpec) -> None:
        assert self._gate.wait(120)
        if spec.source in self._broken:
            raise self._broken[str(spec.source)]


class FakeModelConfig:
    architecture = "FakeForCausalLM"


class FakeAdapters:
    names: tuple[str, ...] = ()


class FakeEngine:
    def __init__(self, broken: dict[str, RequestError], gate: threading.Event) -> None:
        self.adapters = FakeAdapters()
        self.tokenizer = CharTokenizer()
        self.request_factory = FakeRequestFactory(self.tokenizer, broken, gate)
        self.request_factory.longest = lambda prompt_len, kv_budget: self.max_model_len
        self.max_model_len = 2000
        self.config = EngineConfig()
        self.model_config = FakeModelConfig()
        self.prefix_cache = SimpleNamespace(tiers=None, followers=None)
        self.vectors = Vectors(self.tokenizer, VectorRules(), VECTOR_SIZE)  # type: ignore[arg-type]
        self.chats: list[list[Mapping[str, Any]]] = []  # as the template got them
        self.tools: list[Any] = []

    def cache_report(self, *, shows_tree: bool) -> CacheReport:
        tree = "what others sent" if shows_tree else None
        return CacheReport(16, "lru", 64, 40, 10, 4, 0, 10, 90, 45, 3, tree=tree)

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        namespace: str = "",
        adapter: str | None = None,
        **options: Any,
    ) -> ChatPrompt:
        messages = [checked_message(message, "messages") for message in messages]
        self.chats.append(list(messages))
        self.tools.append(options.get("tools"))
        return ChatPrompt(self.tokenizer.apply_chat_template(messages, **options), "", 0)


def joined(deltas: Sequence[Delta], sizes: Sequence[int]) -> list[Delta]:
    """The same with as many tokens at a time as `sizes` says, again and again."""
    found: list[Delta] = []
    begin = 0
    for size in itertools.cycle(sizes):
        together = deltas[begin : begin + size]
        if not together:
            break
        begin += size
        text = "".join(delta.text for delta in together)
        token_ids = tuple(token for delta in together for token in delta.token_ids)
        logprobs = tuple(entry for delta in together for entry in delta.logprobs)
        found.append(replace(together[-1], text=text, token_ids=token_ids, logprobs=logprobs))
    return found


@dataclass
class FakeAsyncEngine:
    """Says `reply`, one byte at a time.

    Attributes:
        refusal: raised before the first delta.
        failure: raised after `fails_after` tokens.
        token_seconds: pause before every token.
        sizes: how many tokens come at a time, again and again.
        broken: constraint sources that do not compile.
        gate: constraints compile once it is set, as it is unless a test closes it.
        calls: what was asked.
        num_open: generators that were started and have neither ended nor been closed.
        num_aborted: generators that were closed early.
    """

    reply: str = "Hello wörld"
    refusal: Exception | None = None
    failure: Exception | None = None
    fails_after: int = 3
    token_seconds: float = 0.0
    sizes: Sequence[int] = (1,)
    broken: dict[str, RequestError] = field(default_factory=dict)
    gate: threading.Event = field(default_factory=open_gate)
    calls: list[dict[str, Any]] = field(default_factory=list)
    num_open: int = 0
    num_aborted: int = 0
    is_alive: bool = True
    last_step_at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.engine = FakeEngine(self.broken, self.gate)

    async def close(self) -> None:
        self.is_alive = False

    def statistics(self) -> EngineStatistics:
        return EngineStatistics(self.num_open, 0, 64, 16, 40, 14, 10, 0, 7, 2, 7, 100, 1, 0, 3, 0, 0, 90, 45, 30, 8, 6)

    async def generate(
        self,
        prompt: Sequence[int],
        sampling: SamplingParams,
        constraint: ConstraintSpec | None = None,
        **options: Unpack[RequestOptions],
    ) -> AsyncIterator[Delta]:
        assert options.keys() <= RequestOptions.__annotations__.keys()
        text = self.engine.tokenizer.decode(prompt)
        self.calls.append(DEFAULTS | options | {"prompt": text, "sampling": sampling, "constraint": constraint})
        if self.refusal is not None:
            raise self.refusal
        if len(prompt) > self.engine.max_model_len:
            raise PromptTooLong("too long", param="prompt")
        self.num_open += 1
        ended = False
        try:
            for position, delta in enumerate(self._deltas(prompt, sampling, options.get("stop_guard"))):
                if self.failure is not None and position == self.fails_after:
                    raise self.failure
                await asyncio.sleep(self.token_seconds)
                yield (
                    delta if options.get("pooling") is None else replace(delta, vector=np.ones(VECTOR_SIZE, np.float32))
                )
            ended = True
        finally:
            self.num_open -= 1
            self.num_aborted += not ended

    def _deltas(
        self, prompt: Sequence[int], sampling: SamplingParams, new_guard: Callable[[], StopGuard] | None
    ) -> list[Delta]:
        tokens = [*self.reply.encode(), EOS]
        reason = FinishReason.STOP
        if sampling.max_tokens is not None and sampling.max_tokens < len(tokens):
            tokens, reason = tokens[: sampling.max_tokens], FinishReason.LENGTH
        found = []
        for index in range(sampling.n):
            guard = new_guard() if new_guard is not None else None
            found += joined(self._output(index, prompt, tokens, reason, sampling, guard), self.sizes)
        return found

    def _output(
        self,
        index: int,
        prompt: Sequence[int],
        tokens: list[int],
        reason: FinishReason,
        sampling: SamplingParams,
        guard: StopGuard | None,
    ) -> list[Delta]:
        usage = Usage(prompt_tokens=len(prompt), cached_tokens=len(prompt) // 2)
        scored = ()
        if sampling.prompt_logprobs_from is not None:
            scored = tuple(TokenLogprob(token, -2.0) for token in prompt[sampling.prompt_logprobs_from :])
        if not tokens:
            return [Delta("fake", index, "", (), reason, usage, prompt_logprobs=scored)]
        deltas = []
        output = OutputText(ByteDetokenizer(), sampling.stop, guard=guard)
        for position, token in enumerate(tokens):
            stopped = output.push(token)
            last = stopped or position == len(tokens) - 1
            if last:
                output.finish()
            usage.completion_tokens += 1
            logprobs = ()
            if sampling.logprobs is not None:
                top = tuple((other, -float(other + 1)) for other in range(sampling.logprobs))
                logprobs = (TokenLogprob(token, -0.5 if position else float("-inf"), top),)
            prompt_logprobs = scored if last else ()
            ended = (FinishReason.STOP if stopped else reason) if last else None
            deltas.append(
                Delta(
                    *("fake", index, output.take(), (token,), ended, usage, logprobs, prompt_logprobs),
                    stopped_by=output.stopped_by,
                )
            )
            if stopped:
                break
        return deltas
