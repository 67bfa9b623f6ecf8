"""What an engine loads from the tiers below its pool, when, and what it counts."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from phloem.runtime.offload import loads
from phloem.runtime.request import SamplingParams, Usage
from phloem.runtime.server.replies import usage_body

from ..fakes import fake_engine
from .tiered_engines import BLOCK_SIZE, GREEDY, LONG, crowd_out, say, settle, tiered_engine


def test_what_was_evicted_is_read_back_and_counted(checkpoint: Path, tmp_path: Path) -> None:
    for disk, host_blocks in ((tmp_path, 0), (None, 64)):
        with tiered_engine(checkpoint, disk, host_blocks) as engine:
            assert say(engine, LONG)[1:] == (0, 0)
            crowd_out(engine)
            settle(engine)
            computed = engine.statistics().num_computed_tokens
            assert say(engine, LONG)[1:] == (40, 40)
            assert engine.statistics().num_computed_tokens - computed <= 1 + 5
            assert say(engine, LONG)[1:] == (40, 0), "now it is in the pool"
            statistics = engine.statistics()
            assert (statistics.loaded_tokens, statistics.num_loaded_blocks) == (40, 10)
            assert statistics.num_tier_faults == 0 and statistics.num_stored_blocks >= 10
            assert "40 cached tokens read from there" in str(engine.cache_report(asks_what_if=False))


def test_clients_are_told_what_was_loaded() -> None:
    usage = Usage(prompt_tokens=41, cached_tokens=40, loaded_tokens=24)
    assert usage_body([[usage]], [False])["prompt_tokens_details"] == {"cached_tokens": 40, "loaded_tokens": 24}
    assert usage_body([[Usage(prompt_tokens=41)]], [False])["prompt_tokens_details"] == {"cached_tokens": 0}


def test_a_prefix_outlives_the_process(checkpoint: Path, tmp_path: Path) -> None:
    with tiered_engine(checkpoint, tmp_path) as engine:
        say(engine, LONG)
    with tiered_engine(checkpoint, tmp_path) as engine:
        assert say(engine, LONG)[1:] == (40, 40)
        assert say(engine, LONG[:22] + [0] * 9)[1] >= 20


def test_namespaces_do_not_meet_below_the_pool_either(checkpoint: Path, tmp_path: Path) -> None:
    with tiered_engine(checkpoint, tmp_path) as engine:
        say(engine, LONG, "mine")
    with tiered_engine(checkpoint, tmp_path) as engine:
        assert say(engine, LONG, "yours")[1:] == (0, 0)
        assert say(engine, LONG)[1:] == (0, 0)
        assert say(engine, LONG, "mine")[1:] == (40, 40)


@pytest.mark.parametrize("change", ["weights", "config", "block_size"])
def test_another_model_or_layout_finds_nothing(checkpoint: Path, tmp_path: Path, change: str) -> None:
    twin = shutil.copytree(checkpoint, tmp_path / "twin")
    with tiered_engine(twin, tmp_path / "kv") as engine:
        say(engine, LONG)
    if change != "block_size":
        name = {"weights": "model.safetensors", "config": "config.json"}[change]
        stamp = (twin / name).stat()
        (twin / name).write_bytes((twin / name).read_bytes()[:-1] + b"?")
        os.utime(twin / name, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    with tiered_engine(twin, tmp_path / "kv", **({"block_size": 8} if change == "block_size" else {})) as engine:
        assert say(engine, LONG)[2] == 0


def test_a_flush_empties_host_memory_and_leaves_files(checkpoint: Path, tmp_path: Path) -> None:
    with tiered_engine(checkpoint, None, 64) as engine:
        say(engine, LONG)
        crowd_out(engine)
        engine.flush_cache()
        assert say(engine, LONG)[1:] == (0, 0)
    with tiered_engine(checkpoint, tmp_path) as engine:
        say(engine, LONG)
        settle(engine)
        engine.flush_cache()
        assert say(engine, LONG)[1:] == (40, 40)


def test_several_that_want_the_same_load_it_once(checkpoint: Path, tmp_path: Path) -> None:
    with tiered_engine(checkpoint, tmp_path) as engine:
        say(engine, LONG)
    with tiered_engine(checkpoint, tmp_path, num_blocks=40) as engine:
        done = engine.generate([[*LONG, number] for number in range(4)], GREEDY)
        assert [one.usage.loaded_tokens for one in done].count(40) == 1
        assert min(one.usage.cached_tokens for one in done) == 40
        assert engine.statistics().num_loaded_blocks == 10


def test_what_is_large_comes_in_portions(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loads, "PORTION_BYTES", 3 * BLOCK_SIZE * 16)
    with tiered_engine(checkpoint, tmp_path) as engine:
        say(engine, LONG)
    with tiered_engine(checkpoint, tmp_path) as engine:
        assert say(engine, LONG)[1:] == (40, 40)


def test_nothing_is_loaded_where_computing_is_faster(checkpoint: Path, tmp_path: Path) -> None:
    with tiered_engine(checkpoint, tmp_path) as engine:
        say(engine, LONG)
    with tiered_engine(checkpoint, tmp_path) as engine:
        assert engine.prefix_cache.tiers is not None
        cost = engine.prefix_cache.tiers.loads.cost
        cost.prefill.seconds_per_operation = 1e-18
        cost.observe_load("disk", 1, 1.0)
        assert say(engine, LONG)[1:] == (0, 0)


def test_scores_of_a_prompt_are_those_without_tiers(checkpoint: Path, tmp_path: Path) -> None:
    """Loaded blocks bring no log-probabilities of what they hold: they are computed, and are the same."""
    scored = SamplingParams(max_tokens=2, temperature=0.0, prompt_logprobs_from=30, logprobs=2)
    with fake_engine(num_blocks=12) as engine:
        truth = engine.generate(LONG, scored)
    for _ in range(2):
        with tiered_engine(checkpoint, tmp_path) as engine:
            found = engine.generate(LONG, scored)
            assert (found.prompt_logprobs, found.token_ids) == (truth.prompt_logprobs, truth.token_ids)
    assert found.usage.loaded_tokens > 0
