"""Tiers that are slow, silent, broken or read-only cost what they hold, and no request its answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phloem.errors import ConfigError
from phloem.runtime.offload import DiskTier, loads

from ..fakes import FakeDecoder, fake_engine, greedy_truth
from .tiered_engines import GREEDY, LONG, ROOTS, say, settle, tiered_engine


class SlowDisk(DiskTier):
    """Answers when it is let."""

    gate = threading.Event()

    def read_blocks(self, keys: Any, rows: Any) -> int:
        self.gate.wait()
        return super().read_blocks(keys, rows)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    monkeypatch.setattr("phloem.runtime.engine.follower_setup.DiskTier", SlowDisk)
    SlowDisk.gate.clear()
    yield SlowDisk.gate
    SlowDisk.gate.set()


def test_others_go_on_while_one_waits_for_the_disk(checkpoint: Path, tmp_path: Path, gate: threading.Event) -> None:
    gate.set()
    with tiered_engine(checkpoint, tmp_path, num_blocks=40) as engine:
        say(engine, LONG)
    gate.clear()
    with tiered_engine(checkpoint, tmp_path, num_blocks=40) as engine:
        slow = engine.add(LONG, GREEDY)
        fast = engine.add([99, 98, 97, 96, 95], GREEDY)
        ended: list[str] = []
        while fast not in ended:
            ended += [delta.request_id for delta in engine.step() if delta.finish_reason]
        assert slow not in ended
        gate.set()
        while engine.has_work:
            deltas = engine.step()
            ended += [delta.request_id for delta in deltas if delta.finish_reason]
        assert ended[-1] == slow and deltas[-1].usage.loaded_tokens == 40


def test_when_all_loads_are_taken_those_who_need_none_go_on(
    checkpoint: Path, tmp_path: Path, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loads, "MOST_LOOKS", 2)
    gate.set()
    stored = [[number, *LONG] for number in range(50, 50 + loads.MOST_LOADS + 3)]
    with tiered_engine(checkpoint, tmp_path, num_blocks=200) as engine:
        engine.generate(stored, GREEDY)
    gate.clear()
    with tiered_engine(checkpoint, tmp_path, num_blocks=200) as engine:
        slow = {engine.add(prompt, GREEDY): prompt for prompt in stored}
        fast = [engine.add([200 + number] * 9, GREEDY) for number in range(3)]
        ended: dict[str, int] = {}
        said: dict[str, list[int]] = {name: [] for name in (*slow, *fast)}
        while engine.has_work:
            for delta in engine.step():
                said[delta.request_id] += delta.token_ids
                if delta.finish_reason:
                    ended[delta.request_id] = delta.usage.loaded_tokens
            if set(fast) <= set(ended):
                gate.set()
            assert gate.is_set() or not set(slow) & set(ended)
        assert all(said[name] == greedy_truth(prompt, 5) for name, prompt in slow.items())
        assert [ended[name] for name in slow] == [40] * len(slow)


def test_in_a_small_pool_one_is_loaded_after_the_other(checkpoint: Path, tmp_path: Path) -> None:
    prompts = [[number, *LONG] for number in range(50, 55)]
    with tiered_engine(checkpoint, tmp_path) as engine:
        engine.generate(prompts, GREEDY)
    with tiered_engine(checkpoint, tmp_path) as engine:
        done = engine.generate(prompts, GREEDY)
        assert [list(one.token_ids) for one in done] == [greedy_truth(prompt, 5) for prompt in prompts]
        assert [one.usage.loaded_tokens for one in done] == [40] * 5


def test_an_abort_while_a_load_is_under_way_leaves_nothing(
    checkpoint: Path, tmp_path: Path, gate: threading.Event
) -> None:
    gate.set()
    with tiered_engine(checkpoint, tmp_path) as engine:
        say(engine, LONG)
    gate.clear()
    with tiered_engine(checkpoint, tmp_path) as engine:
        name = engine.add(LONG, GREEDY)
        engine.step()
        assert engine.abort(name) and not engine.has_work
        assert engine.statistics().num_free_blocks == 12
        gate.set()
        assert say(engine, LONG)[1] == 40


def test_a_disk_that_never_answers_is_waited_for_only_so_long(
    checkpoint: Path, tmp_path: Path, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loads, "PATIENCE", 0.05)
    gate.set()
    with tiered_engine(checkpoint, tmp_path) as engine:
        say(engine, LONG)
    gate.clear()
    with tiered_engine(checkpoint, tmp_path) as engine:
        assert say(engine, LONG)[1:] == (0, 0)
        engine.flush_cache()
        assert say(engine, LONG)[1:] == (0, 0), "and then not asked"
        gate.set()
        monkeypatch.setattr(loads, "PATIENCE", 120.0)
        engine.flush_cache()
        while engine.prefix_cache.tiers.loads._under_way:  # type: ignore[union-attr]
            engine.step()
            time.sleep(0.005)
        assert say(engine, LONG)[1:] == (40, 40)


@pytest.mark.parametrize("method", ["in_pool", "adopt"])
def test_a_fault_on_the_way_back_is_a_miss(
    checkpoint: Path, tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with tiered_engine(checkpoint, tmp_path) as engine:
        say(engine, LONG)
    with tiered_engine(checkpoint, tmp_path) as engine:

        def fail(*_: object) -> None:
            raise RuntimeError("broken")

        cache = engine.prefix_cache
        monkeypatch.setattr(cache.view if method == "in_pool" else cache.supply, method, fail)
        assert say(engine, LONG)[1:] == (0, 0)
        assert engine.statistics().num_tier_faults > 0
    assert len([record for record in caplog.records if record.name == "phloem.tiers"]) == 1


def test_a_fault_in_the_middle_of_taking_in_loses_no_block(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tiered_engine(checkpoint, tmp_path) as engine:
        say(engine, LONG)
    with tiered_engine(checkpoint, tmp_path) as engine:

        def fail(*_: object) -> None:
            raise RuntimeError("broken")

        monkeypatch.setattr(engine.prefix_cache.supply._kv_cache, "write_blocks", fail)
        assert say(engine, LONG)[1:] == (0, 0)  # audited after every step


@pytest.mark.parametrize("host_blocks", [0, 6])
def test_a_folder_that_cannot_be_written_to_serves_what_it_holds(
    checkpoint: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, host_blocks: int
) -> None:
    with tiered_engine(checkpoint, tmp_path) as engine:
        say(engine, LONG)
    before = sorted(tmp_path.rglob("*"))
    tmp_path.chmod(0o555)
    try:
        with tiered_engine(checkpoint, tmp_path, host_blocks) as engine:
            assert [record.getMessage() for record in caplog.records] == [
                f"disk_cache: {tmp_path} cannot be written to; what it holds is read, nothing is added"
            ]
            assert say(engine, LONG)[1:] == (40, 40)
            for root in ROOTS:  # push it out of the pool
                say(engine, root * 2)
            settle(engine)
            engine.prefix_cache.supply.flush(pinned=False)
            assert say(engine, LONG)[2] == 40
            assert engine.statistics().num_tier_faults == 0
    finally:
        tmp_path.chmod(0o700)
    assert sorted(tmp_path.rglob("*")) == before


def test_settings_that_cannot_work_are_refused(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="disk_cache: keeps prefixes"):
        tiered_engine(checkpoint, tmp_path, prefix_cache=False)
    with pytest.raises(ConfigError, match="host_memory_bytes: 64 does not hold two blocks of 64 bytes"):
        tiered_engine(checkpoint, None, 1)
    with pytest.raises(ConfigError, match="disk_cache: the model was not loaded from a folder"):
        fake_engine(disk_cache=str(tmp_path))
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written to"):
        tiered_engine(checkpoint, tmp_path / "file" / "kv")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o770)
    with pytest.raises(ConfigError, match="other users can write to"):
        tiered_engine(checkpoint, tmp_path / "open")
    with tiered_engine(checkpoint, tmp_path / "open", disk_cache_shared=True) as engine:
        say(engine, LONG)


def test_an_engine_that_is_forgotten_ends_its_threads(checkpoint: Path, tmp_path: Path) -> None:
    before = threading.active_count()
    engine = tiered_engine(checkpoint, tmp_path, decoder=FakeDecoder())
    say(engine, LONG)
    assert threading.active_count() == before + 2
    engine.close()
    assert threading.active_count() == before
