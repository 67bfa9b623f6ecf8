"""What keys have received, from the rows of one draft after another."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from phloem.runtime.execute.batch import Extend
from phloem.runtime.execute.received_step import ReceivedStep
from phloem.runtime.kv_compress.received import Received
from phloem.runtime.sampling_params import SamplingParams


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 5)), min_size=1, max_size=4), st.integers(1, 9))
def test_drafted_rows_count_when_their_tokens_are_accepted(drafts: list[tuple[int, int]], start: int) -> None:
    """drafts: how many rows each has, and how many tokens were accepted, of which one more may be its own."""
    received, sums = Received(torch.zeros(1, 1, start), start), [0.0] * start
    for num_rows, num_accepted in drafts:
        rows = [[float(row + at + 1) for at in range(received.end + row + 1)] for row in range(num_rows)]
        received.drafted = [torch.tensor([[row]]) for row in rows]
        for row in rows[:num_accepted]:
            sums = [one + more for one, more in zip(row, [*sums, *[0.0] * (len(row) - len(sums))], strict=True)]
        received.settle(received.end + num_accepted)
        assert (received.end, received.drafted) == (len(sums), [])
        assert received.sums.flatten().tolist() == sums
        received.settle(received.end + 3)
        assert received.end == len(sums), "there is no draft any more"


@pytest.mark.parametrize("counted", range(45, 51))
def test_rows_that_were_counted_are_not_counted_again(counted: int) -> None:
    """A step of tokens 45 to 49 and two drafted ones, computed again after `counted` of its rows had counted."""
    sampling = SamplingParams(kv_budget=64, kv_policy="h2o")
    before = Received(torch.full((1, 1, 50), 2.0), counted)
    request: Any = SimpleNamespace(
        sampling=sampling, readout=None, num_prompt_tokens=40, num_dropped_tokens=0, received=before
    )
    batch: Any = SimpleNamespace(extends=[Extend(request, 45, 5, [7, 8], 49)], query_starts=torch.tensor([3]))
    step = ReceivedStep.of(batch, num_layers=1, num_kv_heads=1, device=torch.device("cpu"))
    assert step is not None
    rows = [range(counted - 42, 8)] if counted < 50 else []
    expected = [*rows, range(8, 9), range(9, 10)]
    assert [range(first, end) for first, end in step.mass.runs[:, :2].tolist()] == expected
    sums = [step.mass.of_run(run).sum().item() for run in range(len(expected))]
    assert sums == [100.0] * len(rows) + [0.0, 0.0], "what was received before is added to once, and not by drafts"
