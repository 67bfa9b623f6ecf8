"""Small runs of all that an engine does in its steps, for faults to be put into.

A run is a list of requests under labels, and of what happens to them between the steps. What it comes to is compared
with the same run undisturbed, request by request.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from phloem.errors import DeadlineExceeded, RequestError
from phloem.runtime.constrain.spec import regex
from phloem.runtime.execute.adapters import Adapters
from phloem.runtime.request import Delta, SamplingParams

from .engine.test_adapters import AdaptedFakeDecoder
from .fakes import NEVER, FakeDecoder, fake_engine, greedy_truth
from .fault_sites import Fault, Interrupt, Watch
from .kv_compress.keeping import KeepingDecoder
from .recurrent_fake import RecurrentFakeDecoder
from .stepped import SteppedEngine
from .windowed_fake import WindowedFakeDecoder

MOST_STEPS = 300
FORCED_TEXT = b"abcdefghij"
LATE = "late"  # a request that is not begun in time; with a fault before, or without, it may be
LATER = [77, 78, 79]

Result = tuple[tuple[int, ...], str, Any, tuple[float, ...]]  # ids, text, why it ended, scores of its prompt


class Clock:
    """Seconds that pass with the steps."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Run:
    """What requests have said; whatever is done to the engine goes through here.

    Attributes:
        said: by label, the deltas so far.
        failed: labels of what ended with an error, or was refused with a fault; not those that could not be forked,
            since what they are forks of had failed.
        forked: labels of forks, and what they are forks of.
    """

    engine: SteppedEngine
    watch: Watch
    clock: Clock
    labels: dict[tuple[str, int], str] = field(default_factory=dict)
    said: dict[str, list[Delta]] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    forked: dict[str, str] = field(default_factory=dict)
    num_charged: int = 0

    def add(self, label: str, prompt: list[int], max_tokens: int, constraint: Any = None, **options: Any) -> None:
        """Queues a request; it is greedy, and the length of its output cannot be known."""
        params = {name: options.pop(name) for name in list(options) if name in SamplingParams.__dataclass_fields__}
        params = {"temperature": 0.0, "ignore_eos": True, "stop": NEVER, **params}
        prepared = self.engine.prepare(prompt, SamplingParams(max_tokens=max_tokens, **params), constraint, **options)
        try:
            with self.watch.on():
                self.engine.core.enqueue(prepared)
        except (Fault, Interrupt):
            self.failed.add(label)
            return
        for request in prepared:
            self._begin(label if len(prepared) == 1 else f"{label}/{request.index}", request.request_id, request.index)

    def _begin(self, label: str, request_id: str, index: int) -> None:
        self.labels[request_id, index] = label
        self.said[label] = []

    def fork(self, parent: str, label: str) -> None:
        self.forked[label] = parent
        request_id, index = next((key for key, name in self.labels.items() if name == parent), ("", 0))
        try:
            with self.watch.on():
                (child,) = self.engine.core.fork(request_id, index=index)
        except (Fault, Interrupt):
            self.failed.add(label)
            return
        except RequestError:  # the parent has failed, though that may not have been told yet
            assert self.watch.has_raised
            return
        self._begin(label, child, 0)

    def abort(self, label: str) -> None:
        """Ends a request, of which nothing more is expected."""
        request_id, _ = next((key for key, name in self.labels.items() if name == label), ("", 0))
        for _ in range(2):  # a fault before anything is done is told; then it is done once more
            with suppress(Fault, Interrupt), self.watch.on():
                self.engine.core.abort(request_id)
        assert not any(one.request_id == request_id for one in self.engine._scheduler.requests)
        self.said.pop(label, None)
        self.failed.discard(label)

    def do(self, function: Callable[[], object]) -> None:
        """Something else; if it fails it is done again."""
        try:
            with self.watch.on():
                function()
        except (Fault, Interrupt):
            function()

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            self.clock.now += 1.0
            deltas: list[Delta] = []
            with suppress(Interrupt), self.watch.on():
                deltas = self.engine.core.step()
            for delta in deltas:
                self.num_charged += isinstance(delta.error, RequestError) and delta.error.is_fault
                label = self.labels[delta.request_id, delta.index]
                if label in self.said:
                    assert not self.said[label] or self.said[label][-1].finish_reason is None, f"{label} ended before"
                    self.said[label].append(delta)
                    if delta.error is not None and not isinstance(delta.error, DeadlineExceeded):
                        self.failed.add(label)
                        its = self.watch.dealt_with
                        assert its in (None, (delta.request_id, delta.index)), f"{label} is charged for {its}"
            if self.watch.has_raised:
                self.engine.audit()

    def drain(self) -> dict[str, Result]:
        """Runs to the end; what each has said that has not failed. The engine is empty then, and serves others."""
        for _ in range(MOST_STEPS):
            if not self.engine.has_work:
                break
            self.step()
        engine = self.engine
        assert not engine.has_work, "some request never ends"
        assert not engine._requests
        statistics = engine.statistics()
        assert statistics.num_held_blocks == 0
        assert statistics.num_failed >= self.num_charged
        assert self.watch.has_raised or not statistics.num_recoveries + statistics.num_failed
        assert statistics.num_evictable_blocks == statistics.num_cached_blocks - statistics.num_pinned_blocks
        assert engine.core.step() == []
        later = engine.generate(LATER, SamplingParams(max_tokens=3, temperature=0.0, ignore_eos=True))
        if not isinstance(engine._runner._decoder, KeepingDecoder):
            assert list(later.token_ids) == greedy_truth(LATER, 3)
        engine.audit()
        engine.prefix_cache.supply.flush(pinned=True)
        assert engine.statistics().num_free_blocks == statistics.num_blocks
        return {label: _result(deltas) for label, deltas in self.said.items() if label not in self.failed}


def _result(deltas: list[Delta]) -> Result:
    assert deltas and deltas[-1].finish_reason is not None
    ids = tuple(token_id for delta in deltas for token_id in delta.token_ids)
    scores = tuple(one.logprob for delta in deltas for one in delta.prompt_logprobs)
    return ids, "".join(delta.text for delta in deltas), deltas[-1].finish_reason, scores


Scenario = Callable[[Watch, Path], Run]


def few(watch: Watch, _: Path) -> Run:
    """The least that has a beginning, a middle and an end."""
    clock = Clock()
    run = Run(fake_engine(clock, check_invariants=False), watch, clock)
    run.add("said", [1, 2, 3, 4, 5], 2)
    run.add("forced", [6, 7], 3, regex("abc"), n=2)
    run.step()
    run.add("aborted", [1, 2, 3, 4, 5, 6], 9)
    run.fork("said", "child")
    run.step()
    run.abort("aborted")
    return run


def crowd(watch: Watch, _: Path, **settings: Any) -> Run:
    """A pool that is too small: scored, explained, pinned, forced, forked, aborted, preempted, too late."""
    clock = Clock()
    engine = fake_engine(clock, check_invariants=False, num_blocks=7, max_batch_tokens=32, **settings)
    for _ in range(32):
        engine._scheduler._forecast.observe(1, 100)  # so that it admits too many
    run = Run(engine, watch, clock)
    prompts = [[*range(6), i, *range(40, 40 + i)] for i in range(4)]
    run.add("scored", prompts[0], 9, prompt_logprobs_from=2, explain_cache=True, pin_ttl=2.5)
    run.add("parent", prompts[1], 11)
    run.add("said before", prompts[2], 5, prediction=greedy_truth(prompts[2], 5))
    run.add("long", prompts[3], 10)
    run.add("forced", [9, 9, 9], len(FORCED_TEXT), regex(FORCED_TEXT.decode()))
    run.add("again", prompts[0], 3, prompt_logprobs_from=2, priority=-1)
    run.add(LATE, [8, 8, 8], 3, priority=-2, deadline_seconds=2.0)
    run.step(4)
    run.fork("parent", "child")
    run.add("aborted", prompts[3], 9)
    run.step(2)
    run.abort("aborted")
    run.add("two", prompts[1], 4, n=2)
    run.add("stopped", prompts[2], 9, stop_token_ids=(greedy_truth(prompts[2], 9)[4],), namespace="other")
    run.step(2)
    run.abort("long")
    run.do(engine.pins.end_expired)
    return run


def ahead(watch: Watch, folder: Path) -> Run:
    """The same, while the next step's forward is queued before this one's tokens are read."""
    return crowd(watch, folder, run_ahead=True, jump="off", lookup_drafts=False)


def model_drafts(watch: Watch, _: Path) -> Run:
    """A draft model reads prompts in chunks and drafts for free, forced and sampled text, in too small a pool."""
    clock = Clock()
    settings: dict[str, Any] = {"num_blocks": 15, "max_batch_tokens": 12, "lookup_drafts": False}
    engine = fake_engine(clock, draft_decoder=FakeDecoder(), check_invariants=False, **settings)
    for _ in range(32):
        engine._scheduler._forecast.observe(1, 100)
    run = Run(engine, watch, clock)
    run.add("parent", [*range(15)], 40)
    run.add("forced", [9, 9, 9], 12, regex("(ab|cd){2,5}(ef)?"))
    run.add("sampled", [*range(13), 7], 30, temperature=1.0, seed=1, presence_penalty=0.5, logprobs=1)
    run.step(3)
    run.fork("parent", "child")
    run.add("aborted", [*range(15)], 30)
    run.step(4)
    run.abort("aborted")
    run.add("two", [*range(15), 3], 20, n=2)
    return run


def guesses(watch: Watch, _: Path) -> Run:
    """Texts that repeat what was said, under constraints and without; chunks; a look at the cache between."""
    clock = Clock()
    engine = fake_engine(clock, check_invariants=False, num_blocks=40, max_batch_tokens=11, max_running_requests=3)
    run = Run(engine, watch, clock)
    spec = regex("(ab|cd){2,5}(ef)?")
    for number in range(3):
        run.add(f"first {number}", [5, 6, 7, number], 9, spec, temperature=1.0, seed=number)
        run.add(f"plain {number}", [*range(20 + number)], 6, min_tokens=2, logprobs=1)
    run.step(9)
    run.do(lambda: engine.pins.add(list(range(20)), 4.0, ""))
    for number in range(2):
        run.add(f"next {number}", [5, 6, 7, number], 9, spec, temperature=1.0, seed=number, presence_penalty=0.5)
        run.add(f"same {number}", [*range(20 + number)], 6, ignore_eos=False)
    run.step(4)
    run.do(lambda: engine.core.flush_cache())
    return run


def tiers(watch: Watch, folder: Path) -> Run:
    """Prefixes go to host memory and come back. What has threads of its own is done at once, and is not watched."""
    clock = Clock()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    settings: dict[str, Any] = {"num_blocks": 12, "host_memory_bytes": 64 * 4 * 16, "check_invariants": False}
    engine = fake_engine(clock, folder=folder, **settings)
    lower = engine.prefix_cache.tiers
    assert lower is not None
    for thread in (lower._writer._thread, lower.loads._thread):
        thread.do = watch.unseen  # type: ignore[method-assign]
    run = Run(engine, watch, clock)
    roots = [[*range(17)], [*range(50, 68)]]
    for number, root in enumerate(roots):
        run.add(f"root {number}", root, 4)
        run.step(4)
    for number in range(2):
        run.add(f"other {number}", [200 - i - 9 * number for i in range(40)], 4)
        run.step(6)
    for number, root in enumerate(roots):
        run.add(f"back {number}", [*root, 7], 4)
        run.add(f"back too {number}", [*root, 8], 4)
    return run


def adapters(watch: Watch, _: Path) -> Run:
    """Requests through adapters and without share steps."""
    clock, decoder = Clock(), AdaptedFakeDecoder()
    engine = fake_engine(clock, decoder, num_blocks=24, max_batch_tokens=16, check_invariants=False)
    engine.adapters = engine.request_factory._adapters = Adapters(
        engine.model_config, torch.device("cpu"), torch.float64, decoder.adapters
    )
    run = Run(engine, watch, clock)
    for number, name in enumerate([None, "a", "b", "a's twin", None]):
        run.add(str(number), [*range(9), number], 5, adapter=name)
    return run


def budgets(watch: Watch, _: Path) -> Run:
    """Requests that let go of keys, one of them forked."""
    clock = Clock()
    engine = fake_engine(clock, KeepingDecoder(), num_blocks=160, max_batch_tokens=64, check_invariants=False)
    run = Run(engine, watch, clock)
    for policy in ("snapkv", "sinks", "h2o"):
        run.add(policy, [*range(1, 127)], 9, kv_budget=64, kv_policy=policy, stop=())
    run.step(4)
    run.fork("h2o", "child")
    return run


def states(watch: Watch, _: Path) -> Run:
    """A model with recurrent layers and few states: prompts that share beginnings, drafts, a fork, an abort."""
    clock = Clock()
    few_states = {"state_interval": 5, "state_memory_bytes": 16 * 12, "max_running_requests": 6}
    engine = fake_engine(clock, RecurrentFakeDecoder(), check_invariants=False, num_blocks=24, **few_states)
    run = Run(engine, watch, clock)
    spec = regex("(ab|cd){2,5}(ef)?")
    for number in range(4):
        run.add(f"first {number}", [*range(13), number], 6, spec if number % 2 else None)
    run.step(3)
    run.fork("first 0", "child")
    run.add("aborted", [*range(13), 9], 9)
    run.step(2)
    run.abort("aborted")
    for number in range(3):
        run.add(f"again {number}", [*range(9 + 2 * number), 50], 5, spec, prediction=[97, 98, 99, 100])
    run.step(2)
    run.do(engine.core.flush_cache)
    run.add("last", [*range(13), 0], 4)
    return run


def windows(watch: Watch, _: Path) -> Run:
    """A model with a window and few slots: prompts that share beginnings, a draft, a fork, an abort."""
    clock = Clock()
    settings: dict[str, Any] = {"num_blocks": 52, "max_batch_tokens": 12, "max_running_requests": 6}
    engine = fake_engine(clock, WindowedFakeDecoder(4), check_invariants=False, **settings)
    run = Run(engine, watch, clock)
    for number in range(3):
        run.add(f"first {number}", [*range(17), number], 5, explain_cache=True)
    run.step(4)
    run.fork("first 0", "child")
    run.add("aborted", [*range(17), 9], 9)
    run.step(2)
    run.abort("aborted")
    run.add("again", [*range(9), 50], 9, regex("(ab|cd){2,5}(ef)?"))
    run.add("last", [*range(17), 0], 4)
    return run


def detours(watch: Watch, _: Path) -> Run:
    """While one computes what others wait for, those further on in the line are admitted."""
    clock = Clock()
    engine = fake_engine(clock, check_invariants=False, num_blocks=60, max_batch_tokens=10, max_wait_seconds=9.0)
    run = Run(engine, watch, clock)
    for number in range(9):
        run.add(str(number), [*range(number % 3, 18), number], 3)
    return run


SCENARIOS = (few, adapters, states, windows, detours, budgets, tiers, guesses, crowd, ahead, model_drafts)


def play(scenario: Scenario, watch: Watch) -> tuple[dict[str, Result], set[str], dict[str, str]]:
    """What those have said that have not failed, whose requests have, and which are forks of which."""
    with TemporaryDirectory() as folder:
        run = scenario(watch, Path(folder))
        said = run.drain()
        run.engine.close()
        return said, run.failed, run.forked
