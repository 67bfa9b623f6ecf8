"""Steps from graphs, without a GPU: the recorder keeps the work as it was captured and runs it again.

What is run again holds on to the plan of the capture. So it is right only if everything that changes from step to step
lies in the fixed buffers, which is what a graph on a device needs.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from phloem.kernels import AttentionPlan, LoraLayers
from phloem.runtime.execute.batch import AdapterRows, Batch, IntArray
from phloem.runtime.execute.cuda_graphs import SIZES, Step, fill_in
from phloem.runtime.execute.kv_cache import KVCache
from phloem.runtime.execute.model_runner import ModelRunner
from phloem.runtime.execute.window_kv import WindowKV
from phloem.runtime.models import AdaptedRows, Adapter
from phloem.runtime.models.kv_shape import KVShape
from phloem.runtime.models.step import WindowStep

from ..fakes import VOCAB_SIZE, FakeModelConfig, logits_after

CPU = torch.device("cpu")
ADAPTERS = [Adapter(name, Path(), name * 64, LoraLayers([[None] * 4], CPU)) for name in "abc"]
NUMBERS = {one.layers.address: 1000 * (index + 1) for index, one in enumerate(ADAPTERS)}  # added to their tokens


class DeviceDecoder:
    """Reads each token's context through the work list on the device, and answers from that; else as `FakeDecoder`."""

    config: Any = FakeModelConfig()
    dtype = torch.float64

    def forward(
        self,
        token_ids: Tensor,
        positions: Tensor,
        kv_cache: KVCache | WindowKV,
        plan: AttentionPlan,
        slots: Tensor,
        logits_rows: Tensor | None,
        adapted: AdaptedRows | None = None,
        windowed: WindowStep | None = None,
    ) -> Tensor:
        if adapted is not None and adapted.every is not None:
            token_ids = token_ids.clone()
            rows = adapted.every.table if adapted.every.tiles is None else adapted.every.tiles
            for begin, end, address in rows.tolist():
                if begin < end:
                    token_ids[begin:end] += NUMBERS[address]
        wanted = range(len(token_ids)) if logits_rows is None else logits_rows.tolist()
        contexts = self._contexts(token_ids, kv_cache.keys[0], plan, slots, set(wanted))
        if windowed is not None:
            seen = self._contexts(token_ids, kv_cache.keys[1], windowed.plan, windowed.slots, set(wanted))
            assert seen == contexts
        blank = np.zeros(VOCAB_SIZE)
        rows = [logits_after(contexts[token]) if token in contexts else blank for token in wanted]
        return torch.from_numpy(np.stack(rows)).float()

    def _contexts(
        self, token_ids: Tensor, keys: Tensor, plan: AttentionPlan, slots: Tensor, wanted: set[int]
    ) -> dict[int, list[int]]:
        memory = keys.view(-1)
        memory[slots[slots >= 0]] = token_ids[slots >= 0].to(memory.dtype)
        if plan.cuda_work is None:
            return self._contexts_of_tables(memory, plan, wanted)
        return self._contexts_of_items(memory, plan, plan.block_size)

    @staticmethod
    def _contexts_of_items(memory: Tensor, plan: AttentionPlan, block_size: int) -> dict[int, list[int]]:
        work = plan.cuda_work
        assert work is not None
        pieces: dict[int, dict[int, list[int]]] = {}
        items = work.buffer[work.items.storage_offset() :]
        for launch in work.launches:
            first, count = work.entry(launch.entry)[:2].tolist()
            for item in items[8 * first : 8 * (first + count)].view(-1, 8).tolist():
                table, _, begin, end, row_begin, num_rows, _, _ = item
                keys = torch.arange(begin, end)
                blocks = work.buffer[table + keys // block_size].long()
                tokens = memory[blocks * block_size + keys % block_size].tolist()
                for token in work.rows[row_begin : row_begin + num_rows].tolist():
                    seen = int(work.positions[token]) + 1 - begin
                    pieces.setdefault(token, {})[begin] = [int(t) for t in tokens[:seen]]
        return {token: [t for _, piece in sorted(parts.items()) for t in piece] for token, parts in pieces.items()}

    @staticmethod
    def _contexts_of_tables(memory: Tensor, plan: AttentionPlan, wanted: set[int]) -> dict[int, list[int]]:
        contexts = {}
        for b in range(plan.num_requests):
            begin, end = int(plan.query_starts[b]), int(plan.query_starts[b + 1])
            keys = np.arange(plan.context_lens[b])
            slots = plan.block_tables[b][keys // plan.block_size].astype(np.int64) * plan.block_size
            tokens = [int(t) for t in memory[torch.from_numpy(slots + keys % plan.block_size)]]
            for token in wanted.intersection(range(begin, end)):
                contexts[token] = tokens[: len(tokens) - (end - token) + 1]
        return contexts


class FakeRecorder:
    """Counts what is recorded and what is repeated."""

    def __init__(self) -> None:
        self.num_recorded = 0
        self.num_replayed = 0

    def record(self, step: Step) -> Step:
        self.num_recorded += 1

        def replay() -> Tensor:
            self.num_replayed += 1
            return step()

        return replay


class Sequences:
    """Requests of random tokens, each in blocks of its own."""

    def __init__(self, recorder: Any, *, num_blocks: int = 512, block_size: int = 4, has_windows: bool = False) -> None:
        self._block_size = block_size
        self._free = list(range(num_blocks))
        random.shuffle(self._free)
        options: dict[str, Any] = {"shapes": [KVShape(1, 1)], "dtype": torch.float64}
        options |= {"num_blocks": num_blocks, "block_size": block_size, "device": CPU}
        cache: KVCache | WindowKV = KVCache(**options)
        self._slot_of: IntArray | None = None
        if has_windows:
            cache = WindowKV(KVCache(**options), KVCache(**options), [False, True])
            self._slot_of = np.random.default_rng(0).permutation(num_blocks)
        self.runner = ModelRunner(DeviceDecoder(), cache, CPU, recorder)
        self._tokens: dict[int, list[int]] = {}
        self._blocks: dict[int, list[int]] = {}

    def finish(self, name: int) -> None:
        self._free += self._blocks.pop(name)
        del self._tokens[name]

    def extend(
        self, counts: dict[int, int], *, every_row: bool = True, unread: bool = False, adapts: bool = False
    ) -> None:
        """Computes a number of new tokens of each of these requests in one step, and checks the logits.

        adapts: request i goes through adapter i % 4, if there is one.
        unread: tokens that are a request's only one are known to the device alone.
        """
        starts, token_ids, positions, slots, expected, wanted = [0], [], [], [], [], []
        adapters = []
        for name, count in counts.items():
            adapter = ADAPTERS[name % 4] if adapts and name % 4 < len(ADAPTERS) else None
            number = 0 if adapter is None else NUMBERS[adapter.layers.address]
            if adapter is not None:
                adapters.append(AdapterRows(starts[-1], starts[-1] + count, adapter))
            tokens, blocks = self._tokens.setdefault(name, []), self._blocks.setdefault(name, [])
            for last in range(count):
                position = len(tokens)
                if position % self._block_size == 0:
                    blocks.append(self._free.pop())
                token_ids.append(random.randrange(256))
                tokens.append(token_ids[-1] + number)
                positions.append(position)
                slots.append(blocks[-1] * self._block_size + position % self._block_size)
                if every_row or last == count - 1:
                    wanted.append(len(token_ids) - 1)
                    expected.append(logits_after(tokens))
            starts.append(len(token_ids))
        width = max(len(self._blocks[name]) for name in counts)
        tables = np.zeros((len(counts), width), np.int32)
        for row, name in zip(tables, counts, strict=True):
            row[: len(self._blocks[name])] = self._blocks[name]
        lens = np.array([len(self._tokens[name]) for name in counts], np.int32)
        longs: Sequence[np.ndarray[Any, Any]] = [np.array(x, np.int64) for x in (token_ids, positions, slots)]
        places, decided = None, None
        if unread:
            places, decided = self._hide(longs[0], np.diff(starts))
        batch = Batch(
            [],
            *longs,
            np.array(starts, np.int32),
            lens,
            tables,
            [],
            np.array(wanted, np.int64),
            places,
            tuple(adapters),
        )
        if self._slot_of is not None:
            own = self._slot_of[batch.slots // self._block_size] * self._block_size + batch.slots % self._block_size
            seen = self._slot_of[batch.block_tables].astype(np.int32)
            batch = replace(batch, windowed=replace(batch, slots=own, block_tables=seen))
        logits = self.runner.forward(batch, decided)
        torch.testing.assert_close(logits, torch.from_numpy(np.stack(expected)).float(), atol=0, rtol=0)

    @staticmethod
    def _hide(token_ids: IntArray, q_lens: IntArray) -> tuple[IntArray, Tensor]:
        """Takes single tokens out; where in a tensor of tokens, in another order and among others, they are found."""
        decided = torch.randint(256, (2 * len(token_ids) + 1,))
        places = np.full(len(token_ids), -1, np.int64)
        hidden = np.flatnonzero(np.repeat(q_lens, q_lens) == 1)
        places[hidden] = random.sample(range(len(decided)), len(hidden))
        decided[torch.from_numpy(places[hidden])] = torch.from_numpy(token_ids[hidden])
        token_ids[hidden] = 0
        return places, decided


def test_a_step_is_run_then_captured_then_replayed() -> None:
    recorder = FakeRecorder()
    sequences = Sequences(recorder)
    counts = []
    for _ in range(4):
        sequences.extend({0: 1, 1: 1, 2: 1})
        counts.append((recorder.num_recorded, recorder.num_replayed))
    assert counts == [(0, 0), (1, 1), (1, 2), (1, 3)]


def test_one_graph_serves_all_contexts_drafts_and_batches_of_its_size() -> None:
    recorder = FakeRecorder()
    sequences = Sequences(recorder)
    sequences.extend({name: 30 + name for name in range(8)}, every_row=False)
    for counts in ([1] * 8, [1] * 7, [3, 1, 1, 2], [1] * 5, [8], [2] * 4):
        sequences.extend(dict(enumerate(counts)))
    assert recorder.num_recorded == 1


@pytest.mark.parametrize("seed", range(4))
def test_logits_are_those_of_the_sequences_over_a_random_life(seed: int) -> None:
    random.seed(seed)
    recorder = FakeRecorder()
    sequences = Sequences(recorder, has_windows=seed % 2 == 1)
    running: list[int] = []
    for step in range(60):
        if len(running) > 9 or (running and random.random() < 0.15):
            sequences.finish(running.pop(random.randrange(len(running))))
        counts = {name: random.choice([1, 1, 1, 4]) for name in running}
        if not running or random.random() < 0.2:
            running.append(step)
            counts[step] = random.choice([1, 5, 40])
        sequences.extend(counts, every_row=random.random() < 0.8, unread=random.random() < 0.5)
    assert recorder.num_replayed > 20


@pytest.mark.parametrize("recorder", [None, FakeRecorder()], ids=["launched", "graphs"])
def test_tokens_that_only_the_device_knows_are_computed_on(recorder: FakeRecorder | None) -> None:
    sequences = Sequences(recorder)
    for _ in range(4):
        sequences.extend({0: 1, 1: 1, 2: 3, 3: 1}, unread=True)
        sequences.extend({3: 2, 0: 1, 1: 1})


@pytest.mark.parametrize("seed", range(2))
def test_a_graph_serves_any_mixture_of_adapters(seed: int) -> None:
    random.seed(seed)
    recorder = FakeRecorder()
    sequences = Sequences(recorder)
    sequences.extend({name: 3 + name for name in range(12)}, every_row=False, adapts=True)
    for _ in range(40):
        names = random.sample(range(12), 8)
        sequences.extend({name: random.choice([1, 1, 3]) for name in names}, unread=random.random() < 0.5, adapts=True)
    assert recorder.num_replayed > 20
    assert recorder.num_recorded < 10


def test_steps_with_adapters_and_without_have_graphs_of_their_own() -> None:
    recorder = FakeRecorder()
    sequences = Sequences(recorder)
    for _ in range(3):
        sequences.extend({3: 1, 7: 1}, adapts=True)  # of no adapter
    assert recorder.num_recorded == 1
    for _ in range(3):
        sequences.extend({0: 1, 1: 1}, adapts=True)
    assert recorder.num_recorded == 2
    sequences.extend({1: 1, 2: 1}, adapts=True)
    sequences.extend({3: 1, 7: 1}, adapts=True)
    assert recorder.num_recorded == 2


def test_what_is_no_token_is_taken_for_one() -> None:
    token_ids = torch.tensor([5, 0, 0, 0])
    fill_in(token_ids, torch.tensor([-1, 2, 0, 1]), torch.tensor([-1, 1 << 40, 7]), 10)
    assert token_ids.tolist() == [5, 7, 0, 9]


def test_graphs_are_dropped_when_a_buffer_had_to_move() -> None:
    recorder = FakeRecorder()
    sequences = Sequences(recorder, num_blocks=140_000, block_size=1)
    for _ in range(3):
        sequences.extend({0: 1})
    before = recorder.num_recorded
    sequences.extend({1: 70_000}, every_row=False)
    sequences.extend({1: 1})  # its block table is longer than the buffer
    sequences.extend({0: 1})
    assert recorder.num_recorded > before == 1


def test_steps_that_want_few_logits_or_are_large_are_not_captured() -> None:
    recorder = FakeRecorder()
    sequences = Sequences(recorder)
    for _ in range(3):
        sequences.extend({0: 5}, every_row=False)
        sequences.extend(dict.fromkeys(range(SIZES[-1] + 1), 1))
    assert recorder.num_recorded == 0


def test_a_step_that_cannot_be_captured_runs_all_the_same() -> None:
    class Refusing:
        def record(self, step: Step) -> Step:
            raise RuntimeError("out of memory")

    sequences = Sequences(Refusing())
    sequences.extend({0: 1})
    with pytest.warns(UserWarning, match="no CUDA graph could be made of runs without one: out of memory"):
        sequences.extend({0: 1})
    sequences.extend({0: 1})
