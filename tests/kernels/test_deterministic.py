"""Deterministic mode: a row's bits depend on its query, its position and its keys, and on nothing else.

The kernels of a GPU, on one or in Triton's interpreter. A prompt of 300 tokens is computed at once; then parts of it
over what is cached of it, alone and with a request that shares 256 keys, cut into splits that are merged and walked
by items that fold. Planning, masking, folding and merging must not change a bit.

One thing is assumed in the interpreter, and can only be shown on a device: that the rows of a product of one shape do
not depend on each other or on their places in the tile. numpy's library of products does not keep to that, so
they are taken from left to right here (`conftest.py`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

from . import lazy_triton as triton
from .paged_batch import make_batch

LENGTH, OTHER, SHARED = 300, 290, 256  # tokens of the prompt; keys of the other request; what they share
HEADS = (2, 1, 32)


def _attend(batch: Any, num_processors: int, **options: Any) -> Tensor:
    work = batch.cuda_work(num_processors, **{"deterministic": True, **options})
    return triton.attention.cuda_attention(work, batch.q, batch.k_cache, batch.v_cache, scale=0.2)


def _part(batch: Any, begin: int, end: int) -> Any:
    """Tokens begin to end - 1 of the prompt, those before them cached, with the other request's one token."""
    return replace(
        batch,
        q=torch.cat([batch.q[begin:end], batch.q[LENGTH:]]),
        query_starts=np.array([0, end - begin, end - begin + 1], np.int32),
        context_lens=np.array([end, OTHER], np.int32),
    )


@pytest.fixture(scope="module")
def whole(device: torch.device) -> tuple[Any, Tensor]:
    """The two requests, and what all their rows get when the prompt comes at once."""
    torch.manual_seed(0)
    np.random.seed(0)
    batch = make_batch([LENGTH, 1], [LENGTH, OTHER], HEADS, shared=SHARED, device=device)
    return batch, _attend(batch, 1)


@settings(max_examples=8, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(
    begin=st.sampled_from([0, 1, 31, 200, 255, 256, 257, 280, LENGTH - 1]),
    count=st.sampled_from([1, 2, 17, 33, LENGTH]),
    num_processors=st.sampled_from([1, 10_000]),
    is_alone=st.booleans(),
)
def test_rows_have_the_bits_of_the_whole_prefill(
    begin: int, count: int, num_processors: int, is_alone: bool, whole: tuple[Any, Tensor]
) -> None:
    batch, expected = whole
    end = min(begin + count, LENGTH)
    part = batch.only(0, begin, end - begin) if is_alone else _part(batch, begin, end)
    out = _attend(part, num_processors)
    assert torch.equal(out[: end - begin], expected[begin:end])
    if not is_alone:
        assert torch.equal(out[end - begin :], expected[LENGTH:])


def test_the_case_shares_cuts_and_walks(whole: tuple[Any, Tensor]) -> None:
    batch, _ = whole
    part = _part(batch, SHARED, SHARED + 2)
    works = [part.cuda_work(1, deterministic=True), part.cuda_work(1, deterministic=True, share=False)]
    assert [work.num_merged > 0 for work in works] == [True, False]
    assert all([launch.block_rows for launch in work.launches] == [64] for work in works)


def test_the_widest_tile_class_has_other_bits_and_is_left_out(whole: tuple[Any, Tensor]) -> None:
    batch, expected = whole
    prompt = batch.only(0)
    assert 128 in {launch.block_rows for launch in prompt.cuda_work(1).launches}
    assert not torch.equal(_attend(prompt, 1, deterministic=False), expected[:LENGTH])
