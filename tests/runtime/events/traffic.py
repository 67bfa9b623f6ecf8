"""Random traffic on an engine that publishes KV events, and what its tree and tiers hold after each step."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import torch

from phloem.errors import RequestError
from phloem.kernels import PLACES
from phloem.kernels.lora import LoraLayers
from phloem.radix import PinBudgetExceeded, pack
from phloem.runtime.config import EngineConfig
from phloem.runtime.execute.loading import LoadedModel
from phloem.runtime.models.adapter import Adapter, scoped
from phloem.runtime.request import SamplingParams

from ..fakes import ByteTokenizer, FakeDecoder
from ..stepped import SteppedEngine

SIZE = 4  # tokens per block
ROOTS = [[*range(9)], [*range(5), *range(50, 64)], [*range(100, 117)]]
ADAPTERS = {
    name: Adapter(name, Path(name), digit * 64, LoraLayers([[None] * len(PLACES)], torch.device("cpu")))
    for name, digit in (("poet", "a"), ("clerk", "7"))
}
SCOPES = [("", None), ("", None), ("", None), ("alice", None), ("\0odd", None), ("", "poet"), ("", "clerk")]
SCOPES += [("alice", "poet")]


class Decoder(FakeDecoder):
    """Adapters change nothing of what it says."""

    def forward(self, *step: Any, adapted: object = None) -> torch.Tensor:
        return super().forward(*step)


def make_engine(kv_events_config: dict[str, Any] | None, folder: Path | None = None, **settings: Any) -> SteppedEngine:
    """An engine over the fake model, with adapters; `folder` is said to be the model's."""
    settings = {"num_blocks": 40, "block_size": SIZE, "check_invariants": True, "seed": 0, **settings}
    config = EngineConfig(model="fake", kv_events_config=kv_events_config, **settings)
    parts = (Decoder(), ByteTokenizer(), torch.device("cpu"), torch.float64, torch.float64, folder, ADAPTERS)
    return SteppedEngine.from_loaded(config, LoadedModel(*parts), stopwatch=lambda: 0.0)  # type: ignore[arg-type]


def endpoints(engine: SteppedEngine) -> tuple[str, str]:
    """Where it publishes, and where it replays ("": nowhere)."""
    assert engine.prefix_cache.events is not None
    publisher: Any = engine.prefix_cache.events.publisher
    return publisher.endpoint, publisher.replay_endpoint or ""


class Traffic:
    """Requests of all kinds, with forks, aborts, flushes, pins and faults between them.

    Attributes:
        prompts: that were asked, with their namespaces and adapters.
        num_new_trees: how often the tree was given up after a fault.
    """

    def __init__(self, engine: SteppedEngine, seed: int) -> None:
        self.engine = engine
        self.random = Random(seed)
        self.prompts: list[tuple[list[int], str, str | None]] = []
        self.num_new_trees = 0
        self._open: list[str] = []

    def step(self) -> str:
        """Something happens; returns what."""
        kind = self.random.choices(
            ["add", "steps", "finish", "abort", "fork", "pin", "flush", "fault", "new tree"],
            [30, 30, 12, 5, 5, 5, 3, 2, 1],
        )[0]
        engine, random = self.engine, self.random
        if kind == "add":
            self._add()
        elif kind == "steps":
            self._run(random.randint(1, 6))
        elif kind == "finish":
            self._run(200)
        elif kind in ("abort", "fork") and self._open:
            name = random.choice(self._open)
            if kind == "abort":
                engine.abort(name)
                self._open.remove(name)
            else:
                with suppress(RequestError):  # it is at its last token
                    self._open += engine.fork(name)
        elif kind == "pin" and self.prompts:
            prompt, namespace, adapter = random.choice(self.prompts)
            with suppress(PinBudgetExceeded):
                pin = engine.pin(prompt, ttl=3600.0, namespace=namespace, adapter=adapter)
                if random.random() < 0.7:
                    engine.unpin(pin)
        elif kind == "flush":
            engine.flush_cache()
        elif kind in ("fault", "new tree"):
            self._add()
            self._fail(breaks_tree=kind == "new tree")
        return kind

    def _add(self) -> None:
        random = self.random
        if self.prompts and random.random() < 0.3:
            prompt, namespace, adapter = random.choice(self.prompts)
        else:
            prompt = random.choice(ROOTS) + [random.randrange(3) for _ in range(random.randint(0, 20))]
            namespace, adapter = random.choice(SCOPES)
            self.prompts.append((prompt, namespace, adapter))
        sampling = SamplingParams(max_tokens=random.randint(1, 14), temperature=0.0)
        self._open.append(self.engine.add(prompt, sampling, namespace=namespace, adapter=adapter))

    def _run(self, count: int) -> None:
        for _ in range(count):
            if not self.engine.has_work:
                break
            for delta in self.engine.step():
                if delta.finish_reason is not None and delta.request_id in self._open:
                    self._open.remove(delta.request_id)

    def _fail(self, *, breaks_tree: bool) -> None:
        """Blocks come into the tree, and then something fails; a tree that cannot be put in order is given up."""
        cache: Any = self.engine.prefix_cache
        tree, insert = cache.tree, cache.tree.insert

        def insert_and_fail(*arguments: Any, **options: Any) -> None:
            tree.insert = insert
            insert(*arguments, **options)
            raise RuntimeError("a fault that the test has made")

        tree.insert = insert_and_fail
        if breaks_tree:
            tree.end_leases = insert_and_fail
        self._run(2000)
        assert tree.insert is insert
        self.num_new_trees += cache.tree is not tree

    def finish(self) -> None:
        self._run(2000)
        assert not self.engine.has_work

    def cached(self, prompt: list[int], namespace: str, adapter: str | None) -> int:
        """Whole blocks of a prompt that the tree has."""
        scope = scoped(namespace, ADAPTERS.get(adapter or ""))
        return self.engine.prefix_cache.tree.peek(pack(prompt), scope) // SIZE

    def names(self) -> set[int]:
        """Of all whole blocks in the tree."""
        cache = self.engine.prefix_cache
        assert cache.followers is not None
        return {int.from_bytes(key.digest[:8], "big") for key, _ in cache.followers.keys.of(cache.tree.blocks())}
