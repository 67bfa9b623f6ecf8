"""What keys have received, from the rows of one draft after another."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from phloem.runtime.kv_compress.received import Received


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
