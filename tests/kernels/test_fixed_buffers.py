"""Work lists that lie where the last one lay: launches that were made for one step run the next, whatever it holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from phloem.kernels import FixedBuffer, WorkBuffers
from phloem.runtime.execute.cuda_graphs import Step
from phloem.runtime.models import Decoder, resolve_model

from . import lazy_triton as triton
from .paged_batch import make_batch
from .rounding import assert_within

# pairs of steps with one signature: q_lens and context_lens of the first and of the second, keys that all share
PAIRS: dict[str, tuple[Any, ...]] = {
    "another batch": ([1, 1, 1], [30, 300, 700], [1], [520], 0),
    "drafts come": ([1, 1], [300, 300], [3, 1], [290, 570], 0),
    "more sharers": ([1, 1], [530, 530], [1, 1, 1, 1], [600, 513, 700, 520], 512),
    "nothing to merge": ([1, 1], [30, 200], [1], [256], 0),
}


@pytest.mark.parametrize("name", PAIRS)
def test_the_launches_of_one_step_compute_the_next(name: str, device: torch.device) -> None:
    q_lens, context_lens, next_q_lens, next_context_lens, shared = PAIRS[name]
    heads = (4, 2, 32)
    batch = make_batch(next_q_lens, next_context_lens, heads, shared=shared, device=device)
    # one cache and one place for queries, as in a captured graph; 16 rows of queries, more than there are tokens
    q = torch.full((16, *batch.q.shape[1:]), torch.nan, device=device)
    before = make_batch(q_lens, context_lens, heads, shared=shared, device=device)
    num_blocks = max(len(before.k_cache), len(batch.k_cache))
    k_cache, v_cache = (torch.full((num_blocks, *batch.k_cache.shape[1:]), torch.nan, device=device) for _ in range(2))
    buffers = WorkBuffers(device, num_processors=3)
    work = before.cuda_work(buffers=buffers, num_tokens=16)

    def step() -> torch.Tensor:
        return triton.attention.cuda_attention(work, q, k_cache, v_cache, scale=0.2)

    for each in (before, batch):
        if each is batch:
            assert batch.cuda_work(buffers=buffers, num_tokens=16).signature == work.signature
        q[: len(each.q)] = each.q
        k_cache[: len(each.k_cache)], v_cache[: len(each.v_cache)] = each.k_cache, each.v_cache
        out = step()[: len(each.q)]
        assert_within(out, each.exact(0.2), each.bound(0.2))
        alone = triton.attention.cuda_attention(each.cuda_work(), each.q, each.k_cache, each.v_cache, scale=0.2)
        assert torch.equal(out, alone)


def test_programs_fewer_than_items_share_them(device: torch.device) -> None:
    batch = make_batch([1] * 4, [40, 20, 270, 12], (3, 3, 32), device=device)
    work = batch.cuda_work()
    assert sum(launch.num_items for launch in work.launches) > 8
    expected = triton.attention.cuda_attention(work, batch.q, batch.k_cache, batch.v_cache, scale=0.2)
    for num_programs in (1, 5):
        few = replace(work, num_programs=num_programs)
        assert torch.equal(
            triton.attention.cuda_attention(few, batch.q, batch.k_cache, batch.v_cache, scale=0.2), expected
        )


def test_a_buffer_keeps_its_place_until_it_is_too_small(device: torch.device) -> None:
    buffer = FixedBuffer(torch.int32, device, size=8)
    places = []
    for size in (3, 8, 5, 9, 18, 2):
        buffer.stage(size)[:] = np.arange(size) + size
        buffer.send()
        assert buffer.tensor[:size].tolist() == list(range(size, 2 * size))
        places.append((buffer.num_moves, buffer.tensor.data_ptr()))
    assert [moves for moves, _ in places] == [0, 0, 0, 1, 1, 1]
    assert len({place for _, place in places[:3]}) == len({place for _, place in places[3:]}) == 1


def test_staging_a_step_leaves_the_one_before_alone_until_it_is_sent(device: torch.device) -> None:
    buffer = FixedBuffer(torch.int64, device, size=4)
    buffer.stage(4)[:] = 1
    buffer.send()
    buffer.stage(4)[:] = 2
    assert buffer.tensor.tolist() == [1] * 4
    buffer.send()
    assert buffer.tensor.tolist() == [2] * 4


@pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU tests/kernels/triton/test_gpu.py compares the bits")
def test_a_decoder_whose_steps_are_run_again_agrees_with_one_that_plans_each(
    run_steps: Callable[..., list[torch.Tensor]],
) -> None:
    class Relaunching:
        def record(self, step: Step) -> Step:
            return step

    decoder = Decoder.from_folder(resolve_model("nano"), dtype=torch.float32)
    again, planned = (run_steps(decoder, each, torch.float32, 3) for each in (Relaunching(), None))
    for one, other in zip(again, planned, strict=True):
        torch.testing.assert_close(one, other, atol=2e-4, rtol=1e-4)
