"""Models with windows in the engine: what lies behind a window makes room, and nothing else changes."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.runtime.engine.engine import Engine
from phloem.runtime.request import SamplingParams

from ..fakes import fake_engine
from ..traffic import check_traffic
from ..windowed_fake import WindowedFakeDecoder
from .test_run_ahead import ALL_PARAMS, PROMPTS, ask, params_of, truth

GREEDY = SamplingParams(max_tokens=9, temperature=0.0)


def windowed_engine(window: int = 6, **settings: Any) -> Engine:
    engine: Engine = fake_engine(decoder=WindowedFakeDecoder(window), **settings)
    assert engine.prefix_cache.windows is not None
    return engine


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_every_window_that_is_read_is_that_of_the_tokens_before(data: st.DataObject) -> None:
    """Arrivals, aborts, forks, drafts and preemptions at any step, with few blocks and few slots."""
    engine = windowed_engine(
        data.draw(st.sampled_from([1, 2, 4])),
        jump=data.draw(st.sampled_from(["off", "verified", "canonical"])),
        run_ahead=data.draw(st.booleans()),
        block_size=data.draw(st.sampled_from([1, 4])),
        num_blocks=data.draw(st.sampled_from([84, 140, 256])),
        max_batch_tokens=data.draw(st.sampled_from([8, 24, 512])),
        max_running_requests=data.draw(st.sampled_from([1, 2, 5])),
    )
    requests = st.tuples(
        st.integers(0, len(PROMPTS) - 1),
        st.integers(0, len(ALL_PARAMS) - 1),
        st.sampled_from([0, 0, 1, 2]),
        st.integers(12, 18),
    )
    check_traffic(data, engine, requests, ask, lambda one: params_of(one[1], one[3]), truth)
