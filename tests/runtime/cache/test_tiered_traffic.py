"""Random traffic over an engine with tiers says what it says without them, whatever becomes of the tiers."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from phloem.runtime.engine.engine import Engine
from phloem.runtime.request import FinishReason

from ..fakes import greedy_truth
from .tiered_engines import GREEDY, ROOTS, say, settle, tiered_engine

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
