"""An engine with tiers below its pool says what it would say without them, whatever becomes of the tiers."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from phloem.errors import ConfigError
from phloem.runtime.engine.engine import Engine
from phloem.runtime.offload import DiskTier, loads
from phloem.runtime.request import FinishReason, SamplingParams, Usage
from phloem.runtime.server.replies import usage_body

from ..fakes import FakeDecoder, fake_engine, greedy_truth

GREEDY = SamplingParams(max_tokens=5, temperature=0.0)
BLOCK_SIZE = 4
ROOTS = [[*range(9)], [*range(5), *range(50, 64)], [*range(100, 117)]]
LONG = list(range(1, 42))  # ten whole blocks


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def tiered_engine(checkpoint: Path, disk: Path | None = None, host_blocks: int = 0, **options: Any) -> Engine:
    options = {"num_blocks": 12, "block_size": BLOCK_SIZE, **options}
    if disk is not None:
        options["disk_cache"] = str(disk)
    if host_blocks:
        options["host_memory_bytes"] = host_blocks * BLOCK_SIZE * 16  # keys and values of one float64 each
    return fake_engine(folder=checkpoint, **options)


def settle(engine: Engine) -> None:
    assert engine.prefix_cache.tiers is not None and engine.prefix_cache.tiers.settle()


def say(engine: Engine, prompt: list[int], namespace: str = "") -> tuple[list[int], int, int]:
    """The answer, which is checked; tokens cached, and loaded."""
    done = engine.generate(prompt, GREEDY, namespace=namespace)
    assert list(done.token_ids) == greedy_truth(prompt, 5)
    return list(done.token_ids), done.usage.cached_tokens, done.usage.loaded_tokens


def crowd_out(engine: Engine) -> None:
    """Others take all of the pool."""
    for start in range(3):
        engine.generate([200 - 7 * start - i % 30 for i in range(40)], GREEDY, namespace="others")


# -- all kinds of traffic ---------------------------------------------------------------------------------------------

PROMPT = st.tuples(st.sampled_from(ROOTS), st.lists(st.integers(0, 3), max_size=14)).map(lambda pair: pair[0] + pair[1])
EVENT = st.one_of(
    st.tuples(st.just("add"), PROMPT, st.sampled_from(["", "salt"])),
    st.tuples(st.just("add"), PROMPT, st.sampled_from(["", "salt"])),
    st.tuples(st.just("step"), st.integers(1, 6), st.none()),
    st.tuples(st.just("abort"), st.integers(0, 20), st.none()),
    st.tuples(st.just("fork"), st.integers(0, 20), st.none()),
    st.tuples(st.just("flush"), st.none(), st.none()),
    st.tuples(st.just("restart"), st.booleans(), st.none()),
    st.tuples(st.just("damage"), st.integers(0, 1 << 30), st.integers(1, 255)),
    st.tuples(st.just("other"), PROMPT, st.sampled_from(["", "salt"])),
)

# the first comes back when others have taken all of the pool
LOADING: list[tuple[str, Any, Any]] = [
    event
    for prompt in (ROOTS[1], list(range(200, 236)), ROOTS[1])
    for event in (("add", prompt, ""), ("step", 40, None), ("settle", None, None))
]


class Run:
    """One engine after the other over one folder, and another one at the same time; what each request should say."""

    def __init__(
        self, checkpoint: Path, folder: Path, host_blocks: int, uses_disk: bool, options: dict[str, Any]
    ) -> None:
        self.make: Callable[[], Engine] = lambda: tiered_engine(
            checkpoint, folder if uses_disk else None, host_blocks, **options
        )
        self.folder = folder
        self.engine, self.other = self.make(), self.make()
        self.said: dict[str, list[int]] = {}
        self.truth: dict[str, list[int]] = {}
        self.num_loaded = 0

    def take(self) -> None:
        for delta in self.engine.step():
            self.said[delta.request_id] += delta.token_ids
            assert delta.error is None
            if delta.finish_reason is FinishReason.STOP or delta.finish_reason is FinishReason.LENGTH:
                assert self.said.pop(delta.request_id) == self.truth[delta.request_id]
                assert delta.usage.loaded_tokens <= delta.usage.cached_tokens <= delta.usage.prompt_tokens

    def drain(self) -> None:
        for _ in range(2000):
            if not self.engine.has_work:
                break
            self.take()
        assert not self.engine.has_work and not self.said

    def end(self, engine: Engine) -> None:
        tiers = engine.prefix_cache.tiers
        assert tiers is not None
        self.num_loaded += tiers.statistics().num_loaded
        assert engine.prefix_cache.pool.num_free + engine.prefix_cache.tree.num_cached_blocks == 12
        assert not tiers.loads._askers
        engine.close()

    def do(self, event: tuple[str, Any, Any]) -> None:
        kind, first, second = event
        if kind == "add":
            name = self.engine.add(first, GREEDY, namespace=second)
            self.said[name], self.truth[name] = [], greedy_truth(first, 5)
        elif kind == "step":
            for _ in range(first):
                self.take()
        elif kind == "abort" and self.said:
            name = list(self.said)[first % len(self.said)]
            self.engine.abort(name)
            del self.said[name]
        elif kind == "fork" and self.said:
            parent = list(self.said)[first % len(self.said)]
            (child,) = self.engine.fork(parent)
            self.said[child], self.truth[child] = [], self.truth[parent]
        elif kind == "settle":  # however busy the machine is, what was evicted is written then
            self.drain()
            settle(self.engine)
        elif kind == "flush":
            self.engine.flush_cache()
        elif kind == "restart":
            self.drain()
            if first:
                settle(self.engine)
            self.end(self.engine)
            self.engine = self.make()
        elif kind == "damage":
            self.damage(first, second)
        elif kind == "other":
            say(self.other, first, second)

    def damage(self, at: int, bits: int) -> None:
        """A byte of some file is changed, or the file cut short, or the folder removed."""
        if at % 13 == 0:
            shutil.rmtree(self.folder, ignore_errors=True)
        files = sorted(self.folder.glob("??/*.kv"))
        if files:
            path = files[at % len(files)]
            try:
                data = bytearray(path.read_bytes() or b"x")
                data[at % len(data)] ^= bits
                path.write_bytes(data if at % 3 else data[: at % len(data)])
            except OSError:
                pass  # it has just been removed


@pytest.mark.parametrize(
    ("host_blocks", "uses_disk", "options"),
    [
        (16, False, {}),
        (0, True, {}),
        (5, True, {"disk_cache_bytes": 20 * 4096}),
        (4, True, {"run_ahead": True, "jump": "off", "max_batch_tokens": 16}),
    ],
    ids=["host", "disk", "both, small", "ahead"],
)
def test_random_traffic_says_what_it_says_without_tiers(
    checkpoint: Path, host_blocks: int, uses_disk: bool, options: dict[str, Any]
) -> None:
    """Over evictions, aborts, forks, flushes, restarts, damaged and vanished files, two engines on one folder."""
    num_loaded = 0

    @settings(max_examples=25, deadline=None)
    @given(st.lists(EVENT, min_size=5, max_size=40))
    @example(LOADING)
    def play(events: list[tuple[str, Any, Any]]) -> None:
        nonlocal num_loaded
        with tempfile.TemporaryDirectory() as folder:
            run = Run(checkpoint, Path(folder) / "kv", host_blocks, uses_disk, options)
            try:
                for event in events:
                    run.do(event)
                run.drain()
                run.end(run.engine)
                run.end(run.other)
            finally:
                run.engine.close()
                run.other.close()
            num_loaded += run.num_loaded

    play()
    assert num_loaded > 0, "nothing was shown"


# -- what is loaded, and when ---------------------------------------------------------------------------------------


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
    assert usage_body([[usage]])["prompt_tokens_details"] == {"cached_tokens": 40, "loaded_tokens": 24}
    assert usage_body([[Usage(prompt_tokens=41)]])["prompt_tokens_details"] == {"cached_tokens": 0}


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


# -- what goes wrong ------------------------------------------------------------------------------------------------


class SlowDisk(DiskTier):
    """Answers when it is let."""

    gate = threading.Event()

    def read_blocks(self, keys: Any, rows: Any) -> int:
        self.gate.wait()
        return super().read_blocks(keys, rows)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    monkeypatch.setattr("phloem.runtime.engine.tier_setup.DiskTier", SlowDisk)
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


@pytest.mark.parametrize("method", ["look", "adopt"])
def test_a_fault_on_the_way_back_is_a_miss(
    checkpoint: Path, tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with tiered_engine(checkpoint, tmp_path) as engine:
        say(engine, LONG)
    with tiered_engine(checkpoint, tmp_path) as engine:

        def fail(*_: object) -> None:
            raise RuntimeError("broken")

        cache = engine.prefix_cache
        monkeypatch.setattr(cache if method == "look" else cache.supply, method, fail)
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

        monkeypatch.setattr(engine.prefix_cache._kv_cache, "write_blocks", fail)
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
            engine.prefix_cache.flush()
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
