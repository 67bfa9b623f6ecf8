"""A warm-up launches what real steps launch, and leaves no trace."""

from __future__ import annotations

import random
from bisect import bisect_left
from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.errors import ConfigError
from phloem.kernels import WorkBuffers, plan_attention
from phloem.runtime.execute.batch import NOWHERE, Batch
from phloem.runtime.execute.cuda_graphs import SIZES
from phloem.runtime.execute.kv_cache import KVCache
from phloem.runtime.execute.model_runner import ModelRunner
from phloem.runtime.execute.warmup_batches import WarmupBatches
from phloem.runtime.models.kv_shape import KVShape

from ..fakes import FakeModelConfig
from .test_cuda_graphs import CPU, DeviceDecoder, FakeRecorder, Sequences

NUM_PROGRAMS = 264
SHAPES = [(32, 8, 128), (16, 8, 128), (64, 8, 64), (9, 3, 64), (8, 4, 256)]


def signature(batch: Batch, shape: tuple[int, int, int], buffers: WorkBuffers) -> tuple[object, ...]:
    heads = dict(zip(("num_heads", "num_kv_heads", "head_dim"), shape, strict=True))
    size = SIZES[bisect_left(SIZES, len(batch.token_ids))]
    lists = (batch.query_starts, batch.context_lens, batch.block_tables)
    work = plan_attention(*lists, **heads, block_size=16, buffers=buffers, num_tokens=size).cuda_work
    assert work is not None
    return work.signature


def decode(lens: list[int], shared: int) -> Batch:
    """A step of requests that share a number of tokens of whole blocks."""
    tables = np.repeat(np.arange(1, len(lens) + 1, dtype=np.int32)[:, None], -(-max(lens) // 16), axis=1)
    tables[:, : shared // 16] = 0
    longs = np.array(lens, np.int64)
    starts = np.arange(len(lens) + 1, dtype=np.int32)
    return Batch([], longs, longs - 1, longs, starts, longs.astype(np.int32), tables, [], longs)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_nearly_all_decode_steps_find_their_graph(shape: tuple[int, int, int]) -> None:
    random.seed(0)
    buffers = WorkBuffers(CPU, NUM_PROGRAMS)
    batches = WarmupBatches(max_requests=256, max_tokens=2048, max_len=32768, num_blocks=31_250, block_size=16)
    known = {signature(batch, shape, buffers) for batch in batches.decodes()}
    found = 0
    for _ in range(400):
        mean = random.choice([50, 200, 500, 1000, 2000, 4000, 8000, 30_000])
        count = random.randint(1, min(256, 500_000 // mean))
        shared = random.choice([0, 0, mean // 2])
        lens = [min(32_768, shared + 20 + int(mean * random.uniform(0.2, 2))) for _ in range(count)]
        found += signature(decode(lens, shared), shape, buffers) in known
    assert found >= 0.95 * 400
    assert len(known) < 192


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(1, 600), st.integers(1, 2000), st.integers(1, 40), st.sampled_from([1, 4, 16]))
def test_every_batch_is_one_that_the_engine_could_make(
    max_requests: int, max_tokens: int, max_len: int, num_blocks: int, block_size: int
) -> None:
    batches = WarmupBatches(max_requests, max_tokens, max_len, num_blocks, block_size)
    sizes = set()
    for batch in chain(batches.decodes(), batches.prefills()):
        q_lens = np.diff(batch.query_starts)
        assert q_lens.min() > 0
        assert len(q_lens) <= max_requests
        assert (batch.context_lens >= q_lens).all()
        assert batch.context_lens.max() <= max_len
        assert batch.block_tables.shape[1] * block_size >= batch.context_lens.max()
        assert 0 <= batch.block_tables.min() <= batch.block_tables.max() < num_blocks
        ends = np.repeat(batch.context_lens, q_lens)
        rows = np.arange(len(batch.token_ids)) - np.repeat(batch.query_starts[:-1], q_lens)
        assert (batch.positions == ends - np.repeat(q_lens, q_lens) + rows).all()
        assert (batch.slots == NOWHERE).all()
        sizes.add(len(batch.token_ids))
    reached = {SIZES[bisect_left(SIZES, size)] for size in sizes if size <= SIZES[-1]}
    assert set(SIZES[: 1 + bisect_left(SIZES[:-1], min(max_requests, max_tokens))]) <= reached


def runner_of(decoder: Any, recorder: Any = None) -> tuple[ModelRunner, KVCache]:
    options: dict[str, Any] = {"shapes": [KVShape(1, 1)], "dtype": torch.float64}
    cache = KVCache(num_blocks=64, block_size=4, device=CPU, **options)
    cache.keys[0].random_(256)
    return ModelRunner(decoder, cache, CPU, recorder), cache


def test_nothing_is_written_and_nothing_counted() -> None:
    runner, cache = runner_of(DeviceDecoder(), FakeRecorder())
    before = cache.keys[0].clone()
    runner.run_warmup_batches(WarmupBatches(4, 16, 64, 64, 4))
    assert torch.equal(cache.keys[0], before)
    assert (runner.num_forwards, runner.num_computed_tokens) == (0, 0)


def test_what_was_captured_in_the_warm_up_is_not_captured_again() -> None:
    recorder = FakeRecorder()
    sequences = Sequences(recorder)
    sequences.runner.run_warmup_batches(WarmupBatches(8, 16, 2000, 512, 4))
    num_recorded = recorder.num_recorded
    assert num_recorded > 4
    sequences.extend({name: 30 for name in range(8)}, every_row=False)
    for count in (8, 7, 5, 3, 2, 1):
        sequences.extend(dict.fromkeys(range(count), 1))
    assert recorder.num_recorded == num_recorded
    assert recorder.num_replayed >= 6


def test_a_step_for_which_there_is_no_memory_names_the_settings() -> None:
    class Full:
        config = FakeModelConfig()
        dtype = torch.float64

        def forward(self, *arguments: object) -> torch.Tensor:
            raise torch.OutOfMemoryError("CUDA out of memory")

    runner, _ = runner_of(Full())
    with pytest.raises(ConfigError, match="a step of 1 tokens and 1 requests; lower kv_memory_share"):
        runner.run_warmup_batches(WarmupBatches(1, 1, 8, 64, 4))
