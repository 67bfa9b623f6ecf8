"""An engine that fills a store for others waits for room to copy its blocks, but not for ever."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from phloem.runtime.engine.engine import Engine
from phloem.runtime.offload import DiskTier, tier_writer
from phloem.runtime.request import SamplingParams
from phloem.runtime.server.prefill import stored

from ..fakes import fake_engine, greedy_truth

PROMPT = list(range(1, 122))  # thirty whole blocks
GREEDY = SamplingParams(max_tokens=1, temperature=0.0)


@pytest.fixture(autouse=True)
def _room_for_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tier_writer, "QUEUE_BYTES", 1)


def engine_of(folder: Path, role: str) -> Engine:
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text("{}")
    (folder / "model" / "model.safetensors").write_bytes(b"weights")
    return fake_engine(
        folder=folder / "model", num_blocks=64, block_size=4, disk_cache=str(folder / "blocks"), role=role
    )


def test_a_prefill_worker_drops_nothing(tmp_path: Path) -> None:
    with engine_of(tmp_path, "prefill") as engine:
        assert list(engine.generate(PROMPT, GREEDY).token_ids) == greedy_truth(PROMPT, 1)
        tiers = engine.prefix_cache.tiers
        assert tiers is not None
        tiers.written().result(30)
        assert tiers.statistics().num_stored == 30 and tiers.statistics().num_dropped == 0


def test_another_engine_drops_what_it_has_no_room_for_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    going = threading.Event()
    put = DiskTier.put
    monkeypatch.setattr(DiskTier, "put", lambda tier, key, row: going.wait(30) and put(tier, key, row))
    with engine_of(tmp_path, "both") as engine:
        assert list(engine.generate(PROMPT, GREEDY).token_ids) == greedy_truth(PROMPT, 1)
        tiers = engine.prefix_cache.tiers
        assert tiers is not None and tiers.statistics().num_dropped == 29
        written = tiers.written()
        assert not written.done()
        going.set()
        written.result(30)
        assert tiers.statistics().num_stored == 1


def test_a_store_that_hangs_is_waited_for_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    going = threading.Event()
    monkeypatch.setattr(tier_writer, "PATIENCE", 0.05)
    monkeypatch.setattr(DiskTier, "put", lambda tier, key, row: going.wait(30) and False)
    with engine_of(tmp_path, "prefill") as engine:
        assert list(engine.generate(PROMPT, GREEDY).token_ids) == greedy_truth(PROMPT, 1)
        tiers = engine.prefix_cache.tiers
        assert tiers is not None and tiers.statistics().num_dropped == 29
        assert not asyncio.run(stored(engine, 0.05)), "nor does an answer wait for ever"
        going.set()
        assert asyncio.run(stored(engine, 30))
        assert tiers.statistics().num_faults == 0
