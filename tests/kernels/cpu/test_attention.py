"""Attention on the CPU: right against float64, blind to other slots, and the same bits however it is batched."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.kernels import use_threads
from phloem.kernels.ops import attention
from phloem.kernels.plain import ops as reference

from ..paged_batch import make_batch
from ..rounding import assert_within

SHAPES = {
    "nano decode": ([1, 1, 1], [50, 1, 133], (6, 2, 32), 16),
    "smollm mixed": ([1, 70, 3, 1], [200, 133, 65, 64], (9, 3, 64), 16),
    "token blocks": ([1, 5], [67, 129], (4, 4, 64), 1),
    "mqa 71 heads": ([2], [40], (71, 1, 64), 16),
    "odd head dim": ([1, 4], [70, 9], (4, 2, 72), 16),
    "wide heads": ([1, 3], [70, 130], (2, 1, 256), 64),
    "phi heads": ([33], [33], (4, 4, 96), 16),
    "no new tokens for one": ([1, 0, 2], [20, 30, 40], (2, 2, 32), 16),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "window": {"window": 37},
    "chunks": {"window": 37, "in_chunks": True},
    "soft cap": {"soft_cap": 2.0},
    "sinks": {"sinks": True},
    "all": {"window": 20, "soft_cap": 5.0, "sinks": True},
}


def _options(name: str, num_heads: int) -> dict[str, Any]:
    options = dict(OPTIONS[name])
    if options.get("sinks"):
        options["sinks"] = torch.randn(num_heads)
    return options


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_agrees_with_float64_to_fp32_rounding(shape: str, options: str) -> None:
    batch = make_batch(*SHAPES[shape])
    kwargs = {"scale": batch.q.shape[-1] ** -0.5, **_options(options, batch.q.shape[1])}
    out = attention(batch.q, batch.k_cache, batch.v_cache, batch.plan(), **kwargs)
    twin = reference.attention(batch.q, batch.k_cache, batch.v_cache, batch.plan(), **kwargs)
    for found in (out, twin):
        assert_within(found, batch.exact(**kwargs), batch.bound(**kwargs))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_types_are_computed_in_fp32(dtype: torch.dtype) -> None:
    batch = make_batch([1, 3], [20, 40], (4, 2, 32), dtype=dtype)
    out = attention(batch.q, batch.k_cache, batch.v_cache, batch.plan(), scale=0.2)
    assert out.dtype == dtype
    assert_within(out, batch.exact(0.2), batch.bound(0.2))


def test_q_may_be_a_view_of_the_fused_projection() -> None:
    batch = make_batch([5, 1], [50, 20], (6, 2, 32))
    fused = torch.randn(6, (6 + 2 + 2) * 32)
    q = fused[:, : 6 * 32].view(6, 6, 32)
    plain = attention(q.contiguous(), batch.k_cache, batch.v_cache, batch.plan(), scale=0.2)
    assert torch.equal(attention(q, batch.k_cache, batch.v_cache, batch.plan(), scale=0.2), plain)


@pytest.mark.parametrize("options", ["plain", "all"])
def test_bits_do_not_depend_on_the_batch_or_on_sharing(options: str) -> None:
    batch = make_batch([1, 9, 1, 1, 40], [300, 273, 170, 129, 200], (6, 2, 32), shared=160)
    kwargs = {"scale": 0.2, **_options(options, 6)}
    out = attention(batch.q, batch.k_cache, batch.v_cache, batch.plan(), **kwargs)
    flat = attention(batch.q, batch.k_cache, batch.v_cache, batch.plan(share_prefixes=False), **kwargs)
    assert len(batch.plan().cpu_work.chain_starts) == 2, "the case must share"
    assert torch.equal(out, flat)
    for b in range(5):
        alone = batch.only(b)
        expected = attention(alone.q, alone.k_cache, alone.v_cache, alone.plan(), **kwargs)
        assert torch.equal(out[batch.query_starts[b] : batch.query_starts[b + 1]], expected)


@settings(max_examples=25, deadline=None)
@given(cuts=st.sets(st.integers(1, 149), max_size=6), block_size=st.sampled_from([1, 16, 64]), data=st.data())
def test_bits_do_not_depend_on_how_a_prompt_is_chunked(cuts: set[int], block_size: int, data: st.DataObject) -> None:
    cached = data.draw(st.integers(0, 100))
    batch = make_batch([150], [cached + 150], (3, 1, 32), block_size)
    whole = attention(batch.q, batch.k_cache, batch.v_cache, batch.plan(), scale=0.2, window=90)
    edges = [0, *sorted(cuts), 150]
    for begin, end in itertools.pairwise(edges):
        chunk = batch.only(0, begin, end - begin)
        part = attention(chunk.q, chunk.k_cache, chunk.v_cache, chunk.plan(), scale=0.2, window=90)
        assert torch.equal(part, whole[begin:end])


@pytest.mark.parametrize("block_size", [1, 16, 64])
def test_bits_do_not_depend_on_keys_that_no_window_shows(block_size: int) -> None:
    batch = make_batch([1, 70, 3, 1], [700, 420, 293, 20], (4, 2, 32), block_size)
    for window in (1, 17, 90):
        whole, behind = (
            attention(one.q, one.k_cache, one.v_cache, one.plan(), scale=0.2, window=window)
            for one in (batch, batch.behind(window))
        )
        assert torch.equal(whole, behind)


def test_bits_do_not_depend_on_the_number_of_threads() -> None:
    batch = make_batch([600, 1], [600, 700], (6, 2, 64), 16)  # large enough for a team
    use_threads(1)
    alone = attention(batch.q, batch.k_cache, batch.v_cache, batch.plan(), scale=0.1)
    use_threads(4)
    try:
        together = attention(batch.q, batch.k_cache, batch.v_cache, batch.plan(), scale=0.1)
    finally:
        use_threads(None)
    assert torch.equal(alone, together)


def test_large_scores_neither_overflow_nor_vanish() -> None:
    batch = make_batch([4], [100], (2, 1, 32))
    out = attention(batch.q * 1e3, batch.k_cache, batch.v_cache, batch.plan(), scale=1.0)
    assert torch.isfinite(out).all()
    assert np.isclose(out.abs().max().item(), batch.v_cache.nan_to_num().abs().max().item(), rtol=2.0)


TILE = 64  # keys that rows pass over together


@pytest.mark.parametrize("num_new", [1, 7], ids=["few rows", "many rows"])
@pytest.mark.parametrize(
    "levels",
    [(300, -300), (-300, 300), (-300, 300, -300), (300, -300, 300), (0, 88, 176), (176, 88, 0), (-300, -300)],
    ids=str,
)
@pytest.mark.parametrize("sink", [None, -300.0, 0.0, 300.0])
def test_weights_are_of_the_largest_score_so_far(levels: tuple[int, ...], num_new: int, sink: float | None) -> None:
    """Tiles whose scores differ by more than the exponents of fp32 reach; the answer is torch's softmax in float64."""
    num_keys = TILE * len(levels)
    batch = make_batch([num_new], [num_keys], (2, 1, 32))
    scores = torch.tensor(levels).repeat_interleave(TILE) + torch.randint(-4, 5, (num_keys,)) / 2
    places = torch.from_numpy(batch.block_tables[0])[torch.arange(num_keys) // 16].long(), torch.arange(num_keys) % 16
    batch.k_cache[places[0], 0, places[1]] = torch.cat([scores[:, None], torch.zeros(num_keys, 31)], 1)
    batch.q.zero_()[:, :, 0] = 1.0
    sinks = None if sink is None else torch.full((2,), sink)
    out = attention(batch.q, batch.k_cache, batch.v_cache, batch.plan(), scale=1.0, sinks=sinks)
    values = batch.v_cache[places[0], 0, places[1]].double()
    for token in range(num_new):
        seen = num_keys - num_new + token + 1
        logits = torch.cat([scores[:seen].double(), torch.tensor([-torch.inf if sink is None else sink]).double()])
        exact = logits.softmax(0)[:-1] @ values[:seen]
        # a score times log2(e), of which the largest is taken, is rounded to fp32: at most 433 * 2^-24, three times
        assert (out[token].double() - exact).abs().max() <= 3 * 433 * 2**-23 * values.abs().max()
