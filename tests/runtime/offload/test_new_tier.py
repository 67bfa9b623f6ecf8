"""A tier below the pool is one file and one line: this one, and `STORES`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from phloem import KVStore
from phloem.errors import ConfigError
from phloem.runtime.engine.async_engine import AsyncEngine
from phloem.runtime.engine.engine import Engine
from phloem.runtime.offload import BlockKey
from phloem.runtime.offload.stores import STORES
from phloem.runtime.offload.tier import Changed, Tier, ignore_changes
from phloem.runtime.request import SamplingParams
from phloem.runtime.server import ServerSettings, create_app

from ..fakes import fake_engine, greedy_truth, threaded_engine
from ..server.wire import exchange

GREEDY = SamplingParams(max_tokens=5, temperature=0.0, ignore_eos=True)
PROMPT = [index * 7 % 50 + 1 for index in range(40)]
Row = npt.NDArray[np.uint8]


class ToyTier(Tier):
    """Blocks in a dict that all engines of this process share."""

    name = "toy"
    writes_through = True

    def __init__(self, blocks: dict[bytes, bytes], changed: Changed) -> None:
        self._blocks, self._changed = blocks, changed

    @property
    def num_bytes(self) -> int:
        return sum(map(len, self._blocks.values()))

    def may_have(self, key: BlockKey) -> bool:
        return key.digest in self._blocks

    def read_blocks(self, keys: Sequence[BlockKey], rows: Row) -> int:
        number = self.count(keys)
        for key, row in zip(keys[:number], rows, strict=False):
            row[:] = np.frombuffer(self._blocks[key.digest], np.uint8)
        return number

    def put_blocks(self, keys: Sequence[BlockKey], rows: Row) -> int:
        new = {key.digest: row.tobytes() for key, row in zip(keys, rows, strict=True) if self.wants(key)}
        self._blocks.update(new)
        self._changed([(digest, True) for digest in new])
        return len(new)

    def touch(self, keys: Sequence[BlockKey]) -> None:
        pass


@pytest.fixture(autouse=True)
def _one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks: dict[bytes, bytes] = {}

    def make(
        fingerprint: bytes, block_bytes: int, *, ttl: float | None = None, changed: Changed = ignore_changes
    ) -> ToyTier:
        return ToyTier(blocks, changed)

    monkeypatch.setitem(STORES, "toy", lambda url: make)


@pytest.fixture
def new_engine(tmp_path: Path) -> Iterator[Callable[..., Engine]]:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    yield lambda make=fake_engine: make(folder=tmp_path, num_blocks=40, shared_cache="toy://here")


def test_engines_share_what_it_holds_and_report_it_under_its_name(new_engine: Callable[..., Engine]) -> None:
    for expected in (False, True):
        with new_engine() as engine:
            done = engine.generate(PROMPT, GREEDY)
            assert list(done.token_ids) == greedy_truth(PROMPT, 5)
            assert (done.usage.loaded_tokens > 0) is expected
            assert engine.prefix_cache.tiers is not None and engine.prefix_cache.tiers.settle()
            num_bytes = engine.statistics().tier_bytes["toy"]
            assert num_bytes > 0 and list(engine.statistics().tier_bytes) == ["toy"]
            assert engine.cache_report().tier_bytes == {"toy": num_bytes}
            assert "below the pool: toy 0 MiB" in str(engine.cache_report())


def test_metrics_have_it_under_its_name(new_engine: Callable[..., Engine]) -> None:
    driver = AsyncEngine(new_engine(threaded_engine))
    app = create_app(driver, ServerSettings(tool_call_format="none", reasoning_format="none"))

    async def scrape() -> str:
        async with app.router.lifespan_context(app):
            return (await exchange(app, "GET", "/metrics", b"")).body.decode()

    try:
        assert 'phloem_kv_tier_bytes{tier="toy"} ' in asyncio.run(scrape())
    finally:
        driver.stop()


def test_a_store_of_kv_takes_its_urls() -> None:
    kv = torch.arange(32.0).view(32, 1)
    with KVStore("toy://here", model="m", token_shape=(1,), dtype=torch.float32, namespace="") as store:
        assert store.put(range(32), kv) == 32
        num_tokens, found = store.get_closest(range(40))
        assert num_tokens == 32 and torch.equal(found, kv)
    with pytest.raises(ConfigError, match=r"place: 'tin://here': expected redis://.*unix://,.* toy://"):
        KVStore("tin://here", model="m", token_shape=(1,), dtype=torch.float32, namespace="")
