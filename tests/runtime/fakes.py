"""A model and a tokenizer that are small enough to be understood at a glance, and tell the truth about the cache."""

from __future__ import annotations

import functools
import hashlib
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from phloem.fsm import Vocabulary
from phloem.kernels import AttentionPlan
from phloem.runtime.config import EngineConfig
from phloem.runtime.engine.engine import Engine
from phloem.runtime.execute.kv_cache import KVCache
from phloem.runtime.execute.loading import LoadedModel
from phloem.runtime.models.architecture import Architecture
from phloem.runtime.models.architectures import ARCHITECTURES
from phloem.runtime.models.config import LayerConfig
from phloem.runtime.models.kv_shape import KVShape
from phloem.runtime.models.rope_config import RopeConfig
from phloem.runtime.request import SamplingParams
from phloem.runtime.tokenizer.chat_template import CHATML, ChatTemplate

from .stepped import SteppedEngine

EOS = 256
VOCAB_SIZE = 257


@dataclass(frozen=True)
class FakeModelConfig:
    architecture: str = "FakeForCausalLM"
    num_layers: int = 1
    num_heads: int = 1
    num_kv_heads: int = 1
    head_dim: int = 1
    hidden_size: int = 1
    intermediate_size: int = 1
    attention_scale: float = 1.0
    attention_soft_cap: float = 0.0
    num_kv_parts: int = 2
    latent: None = None
    recurrent: None = None
    options: Architecture = ARCHITECTURES["LlamaForCausalLM"]
    layer_inputs: None = None
    altup: None = None
    layers: tuple[LayerConfig, ...] = (LayerConfig(window=0, rope=0),)
    ropes: tuple[RopeConfig, ...] = ()
    vocab_size: int = VOCAB_SIZE
    max_position_embeddings: int = 4096
    dtype: torch.dtype = torch.float64

    @property
    def num_kv_layers(self) -> int:
        return self.num_layers

    def kv_shape(self, index: int) -> KVShape:
        return KVShape(self.num_kv_heads, self.head_dim, self.num_kv_parts)

    def kv_shapes(self, *, windowed: bool | None = None) -> tuple[KVShape, ...]:
        return (self.kv_shape(0),) * len([one for one in self.layers if windowed in (None, one.window > 0)])

    def projected(self, index: int) -> tuple[tuple[str, ...], int]:
        return (), 3

    def attended_size(self, index: int) -> int:
        return 1

    def inner_size(self, index: int) -> int:
        return 1

    def gate_up_size(self, index: int) -> int:
        return 2

    def has_dense(self, index: int) -> bool:
        return True

    def experts_of(self, index: int) -> None:
        return None

    def is_recurrent(self, index: int) -> bool:
        return False


def logits_after(token_ids: Sequence[int]) -> np.ndarray:
    """What the fake model believes after a sequence: a function of every token before, and of nothing else."""
    return _logits_after(array("i", token_ids).tobytes())


@functools.lru_cache(maxsize=4096)
def _logits_after(tokens: bytes) -> np.ndarray:
    digest = hashlib.blake2b(tokens, digest_size=8).digest()
    logits = np.random.default_rng(int.from_bytes(digest, "little")).normal(0.0, 2.0, VOCAB_SIZE)
    logits.flags.writeable = False
    return logits


class FakeDecoder:
    """Writes each token id into its KV slot, reads its context back through the block table, and answers from that.

    A block that was freed, shared or copied wrongly changes the context it reads, and so the answer.
    Its hidden state is the token with its position (`hidden_of`).
    """

    takes_hidden = False

    def __init__(self, config: FakeModelConfig | None = None) -> None:
        self.config = config or FakeModelConfig()
        self.dtype = self.config.dtype

    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        kv_cache: KVCache,
        plan: AttentionPlan,
        slots: torch.Tensor,
        logits_rows: torch.Tensor | None,
    ) -> torch.Tensor:
        memory = kv_cache.keys[0].view(-1)
        memory[slots] = token_ids.to(memory.dtype)
        kv_cache.values[0].view(-1)[slots] = positions.to(memory.dtype)
        if kv_cache.hidden is not None and not self.takes_hidden:
            kv_cache.hidden[slots, 0] = hidden_of(token_ids, positions)
        wanted = range(len(token_ids)) if logits_rows is None else logits_rows.tolist()
        rows = []
        for row in wanted:
            request = int(np.searchsorted(plan.query_starts, row, side="right")) - 1
            end = int(plan.context_lens[request]) - int(plan.query_starts[request + 1]) + row + 1
            context = self._read(kv_cache, plan, request, end)
            rows.append(self.believed(context))
        return torch.from_numpy(np.stack(rows)).float() if rows else torch.empty(0, VOCAB_SIZE)

    def believed(self, context: list[int]) -> np.ndarray:
        return logits_after(context)

    def _read(self, kv_cache: KVCache, plan: AttentionPlan, request: int, end: int) -> list[int]:
        at = np.arange(end)
        blocks = plan.block_tables[request][at // kv_cache.block_size].astype(np.int64)
        slots = torch.from_numpy(blocks * kv_cache.block_size + at % kv_cache.block_size)
        assert kv_cache.values[0].view(-1)[slots].tolist() == at.tolist(), "KV of another position was read"
        return [int(token) for token in kv_cache.keys[0].view(-1)[slots]]


def hidden_of(token_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Of no token but one: zero is the state before the first."""
    return (positions * VOCAB_SIZE + token_ids + 1).to(torch.float64)


class FakeMtpDecoder(FakeDecoder):
    """Believes what the fake model believes, and refuses states that are not those of the tokens before."""

    takes_hidden = True

    def forward(  # type: ignore[override]
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        kv_cache: KVCache,
        plan: AttentionPlan,
        slots: torch.Tensor,
        logits_rows: torch.Tensor,
        *,
        before: torch.Tensor,
    ) -> torch.Tensor:
        logits = super().forward(token_ids, positions, kv_cache, plan, slots, logits_rows)
        assert kv_cache.hidden is not None
        found = kv_cache.hidden[before, 0]
        for row, position in enumerate(positions.tolist()):
            request = int(np.searchsorted(plan.query_starts, row, side="right")) - 1
            expected = 0.0
            if position:
                last = torch.tensor(self._read(kv_cache, plan, request, position)[-1])
                expected = float(hidden_of(last, torch.tensor(position - 1)))
            assert found[row] == expected, "the state of another token was taken"
        kv_cache.hidden[slots[logits_rows], 0] = hidden_of(token_ids, positions)[logits_rows]
        return logits


class BlankDecoder(FakeDecoder):
    """Believes nothing, in no time: for tests that count what is computed and do not read what is said."""

    def forward(self, token_ids: torch.Tensor, *others: Any) -> torch.Tensor:
        logits_rows = others[-1]
        return torch.zeros(len(token_ids) if logits_rows is None else len(logits_rows), VOCAB_SIZE)


class ByteDetokenizer:
    def __init__(self) -> None:
        self._pending = b""

    def push(self, token_id: int) -> str:
        if token_id == EOS:
            return ""
        self._pending += bytes([token_id])
        try:
            text = self._pending.decode()
        except UnicodeDecodeError as error:
            if error.end < len(self._pending) or error.reason != "unexpected end of data":
                text = self._pending.decode(errors="replace")
            else:
                return ""
        self._pending = b""
        return text

    def fork(self) -> ByteDetokenizer:
        twin = ByteDetokenizer()
        twin._pending = self._pending
        return twin

    def flush(self) -> str:
        text, self._pending = self._pending.decode(errors="replace"), b""
        return text


class ByteTokenizer:
    """256 bytes and an end token."""

    has_text = True
    vocab_size = VOCAB_SIZE
    eos_ids = (EOS,)
    json_whitespace = "compact"
    chat_template = ChatTemplate(CHATML, "test", token_texts={}, special_texts=())
    special_ids: ClassVar[dict[str, int]] = {}

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        return list(text.encode())

    def encode_prompt(self, text: str) -> list[int]:
        return self.encode(text)

    def decode(self, token_ids: Sequence[int]) -> str:
        return bytes(token for token in token_ids if token < 256).decode(errors="replace")

    def show(self, token_ids: Sequence[int]) -> str:
        return self.decode(token_ids)

    def vocabulary(self) -> Vocabulary:
        return _byte_vocabulary()

    def detokenizer(self, *, shows_special: bool = False) -> ByteDetokenizer:
        return ByteDetokenizer()


@functools.cache
def _byte_vocabulary() -> Vocabulary:
    return Vocabulary([bytes([byte]) for byte in range(256)] + [b""], [EOS], ByteTokenizer().encode)


def fake_engine(
    clock: Callable[[], float] = time.monotonic,
    decoder: FakeDecoder | None = None,
    folder: Path | None = None,
    stopwatch: Callable[[], float] = lambda: 0.0,
    kind: type[Engine] = SteppedEngine,
    draft_decoder: FakeDecoder | None = None,
    **settings: object,
) -> Any:
    """An engine over the fake model, which `folder` is said to have come from; every step is audited, and by its
    stopwatch nothing takes any time unless another is given. By default its calls step it; an `Engine` has a thread."""
    settings = {"num_blocks": 64, "block_size": 4, "check_invariants": True, "seed": 0, **settings}
    decoder = decoder or FakeDecoder()
    parts = (decoder, ByteTokenizer(), torch.device("cpu"), torch.float64, torch.float64, folder)
    loaded = LoadedModel(*parts, draft_decoder=draft_decoder)  # type: ignore[arg-type]
    return kind.from_loaded(EngineConfig(model="fake", **settings), loaded, clock, stopwatch)  # type: ignore[arg-type]


def threaded_engine(**settings: Any) -> Engine:
    """The same with a step thread."""
    engine: Engine = fake_engine(kind=Engine, **settings)
    return engine


NEVER = ("never said",)  # a stop string: with it the length of an output cannot be known


def expect_short_answers(engine: Engine) -> None:
    """Many that end at once, so that the engine takes in more than it can hold if the next ones go on."""
    ends_at_once = SamplingParams(max_tokens=100, stop_token_ids=tuple(range(engine.tokenizer.vocab_size)))
    engine.generate([[token_id] for token_id in range(32)], ends_at_once)


def greedy_truth(prompt: Sequence[int], max_tokens: int) -> list[int]:
    """What the fake model says, step by step, without any engine."""
    token_ids = list(prompt)
    while len(token_ids) < len(prompt) + max_tokens:
        token_ids.append(int(np.argmax(logits_after(token_ids).astype(np.float32))))
        if token_ids[-1] == EOS:
            break
    return token_ids[len(prompt) :]
