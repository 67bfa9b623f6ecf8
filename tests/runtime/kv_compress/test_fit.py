"""Bounds of budgets and of what is counted, from requests and configurations alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phloem.errors import RequestError
from phloem.runtime.kv_compress.budget import counts_from, most_at_once
from phloem.runtime.kv_compress.fit import LayerGroups
from phloem.runtime.kv_policies import KV_POLICIES, NUM_SINKS, WINDOW
from phloem.runtime.models.config import LayerConfig
from phloem.runtime.request import Request
from phloem.runtime.sampling_params import SamplingParams

FULL = LayerConfig(window=0, rope=0)


def of(*layers: LayerConfig, longest: int = 4096, has_states: bool = False) -> LayerGroups:
    return LayerGroups.of(layers, longest, has_states=has_states)


def budget_of(kv_budget: int) -> SamplingParams:
    return SamplingParams(kv_budget=kv_budget, kv_policy="sinks")


def test_the_budget_that_the_message_advises_is_taken() -> None:
    groups = of(FULL, LayerConfig(window=100, rope=0))
    with pytest.raises(RequestError, match=rf"kv_budget: 103 does not hold .* take at least {100 + NUM_SINKS}"):
        groups.check_budget(budget_of(103))
    groups.check_budget(budget_of(100 + NUM_SINKS))


@pytest.mark.parametrize("policy", KV_POLICIES)
def test_windows_take_the_policies_that_keep_the_last(policy: str) -> None:
    sampling = SamplingParams(kv_budget=64, kv_policy=policy)
    for groups in (of(FULL, LayerConfig(window=8, rope=0)), of(FULL, has_states=True)):
        if KV_POLICIES[policy].keeps_the_last:
            groups.check_budget(sampling)
        else:
            with pytest.raises(RequestError, match=f"kv_policy: '{policy}' does not go with .*; use 'sinks'"):
                groups.check_budget(sampling)


def test_chunks_as_long_as_the_context_are_no_chunks() -> None:
    chunked = LayerConfig(window=256, rope=0, in_chunks=True)
    of(FULL, chunked, longest=256).check_budget(budget_of(64))
    with pytest.raises(RequestError, match="kv_budget: this model has layers that see chunks of the context"):
        of(FULL, chunked, longest=257).check_budget(budget_of(300))


@given(st.integers(1, 300), st.integers(0, 400), st.sampled_from([*KV_POLICIES]), st.booleans())
def test_rows_that_count_attention_are_computed_few_at_a_time(
    num_prompt: int, start: int, policy: str, reads_out: bool
) -> None:
    sampling = SamplingParams(kv_budget=1000, kv_policy=policy)
    fields = {"num_prompt_tokens": num_prompt, "num_dropped_tokens": 0, "sampling": sampling}
    request = cast("Request", SimpleNamespace(**fields, readout=object() if reads_out else None))
    counts = policy == "h2o" and not reads_out  # what is computed for its vectors alone is never compacted
    counted = max(0, num_prompt - WINDOW)
    assert counts_from(request) == (counted if counts else None)
    position = 1250  # of the first compaction
    bound = min(position, max(start, counted) + WINDOW) if counts else position
    assert most_at_once(request, start) == bound - start
