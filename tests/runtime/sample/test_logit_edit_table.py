"""Counts kept token by token are those of a recount, whichever requests come, go, draft or wait."""

from __future__ import annotations

from array import array
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from phloem.kernels import LogitEdits
from phloem.runtime.request import Phase, Request, SamplingParams
from phloem.runtime.sample.logit_edit_table import EditTable

VOCAB_SIZE = 7
CPU = torch.device("cpu")
TOKENS = st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=5)
OPTIONS: list[dict[str, Any]] = [
    {},
    {"presence_penalty": 0.5},
    {"repetition_penalty": 1.5, "logit_bias": {3: 2.0}},
    {"logit_bias": {0: -1.0, 6: 4.0}},
    {"frequency_penalty": -1.0},
]


def request_of(prompt: list[int], options: dict[str, Any]) -> Request:
    output: Any = None  # which the table does not look at
    return Request("name", 0, array("i", prompt), len(prompt), SamplingParams(**options), 0, output)


def check_row(edits: LogitEdits, row: int, request: Request, drafted: list[int]) -> None:
    """One row of a step against the tokens that it stands for."""
    sampling = request.sampling
    assert (int(edits.count_rows[row]) >= 0) == sampling.penalises
    assert (int(edits.bias_rows[row]) >= 0) == bool(sampling.logit_bias)
    if sampling.penalises:
        stored = edits.counts[edits.count_rows[row]].tolist()
        prompt, output = request.token_ids[: request.num_prompt_tokens], request.token_ids[request.num_prompt_tokens :]
        counted = Counter(output)
        assert stored == [counted[t] - 0x8000 * (t in prompt) for t in range(VOCAB_SIZE)]
        assert [t for t in edits.drafted[row].tolist() if t >= 0] == drafted
        assert float(edits.frequency[row]) == sampling.frequency_penalty
    if sampling.logit_bias:
        biases = edits.biases[edits.bias_rows[row]].tolist()
        assert biases == [sampling.logit_bias.get(t, 0.0) for t in range(VOCAB_SIZE)]


STEP = st.lists(
    st.tuples(st.integers(0, 5), TOKENS, TOKENS, st.booleans()), max_size=4, unique_by=lambda entry: entry[0]
)


@given(steps=st.lists(STEP, max_size=12), prompts=st.lists(TOKENS, min_size=6, max_size=6))
def test_every_row_of_a_step_holds_its_tokens(
    steps: list[list[tuple[int, list[int], list[int], bool]]], prompts: list[list[int]]
) -> None:
    table = EditTable(VOCAB_SIZE, CPU)
    requests = [request_of(prompt, OPTIONS[i % len(OPTIONS)]) for i, prompt in enumerate(prompts)]
    for step in steps:
        table.begin_step()
        rows = []
        for index, written, drafted, _ in step:
            requests[index].token_ids.extend(written)
            rows += [(requests[index], drafted[:i]) for i in range(len(drafted) + 1)]
        edits = table.edits(rows)
        assert (edits is None) == (not rows)
        for row, (request, drafted) in enumerate(rows if edits is not None else []):
            assert edits is not None
            check_row(edits, row, request, drafted)
        for index, *_, ends in step:
            if ends:
                requests[index].phase = Phase.FINISHED
                requests[index] = request_of(prompts[index], OPTIONS[(index + 1) % len(OPTIONS)])


@pytest.mark.parametrize("num_requests", [1, 9])
def test_rows_of_requests_that_ended_are_used_again(num_requests: int) -> None:
    table, sizes = EditTable(VOCAB_SIZE, CPU), set()
    for _ in range(20):
        table.begin_step()
        requests = [request_of([1, 2], OPTIONS[2]) for _ in range(num_requests)]
        assert table.edits([(request, []) for request in requests]) is not None
        sizes.add(table.num_bytes)
        for request in requests:
            request.phase = Phase.FINISHED
    assert len(sizes) == 1


def test_a_count_stops_at_the_most_it_can_hold() -> None:
    table, request = EditTable(VOCAB_SIZE, CPU), request_of([4], OPTIONS[1])
    for written in ([4] * 40_000, [4, 4, 2]):
        request.token_ids.extend(written)
        edits = table.edits([(request, [])])
        assert edits is not None
    assert edits.counts[0].tolist() == [0, 0, 1, 0, -1, 0, 0]  # the prompt's bit, and 32,767
