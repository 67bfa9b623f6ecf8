"""Traffic at an engine: requests that come, fork and go at any step, and what deltas bring of each."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from phloem.runtime.engine.engine import Engine
from phloem.runtime.request import FinishReason, SamplingParams, TokenLogprob
from phloem.runtime.speculate.overlap_policy import OverlapPolicy


@dataclass
class Said:
    """What deltas brought of one request."""

    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    logprobs: list[TokenLogprob] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprob] = field(default_factory=list)
    reason: FinishReason | None = None


def step(engine: Engine, said: dict[str, Said]) -> None:
    for delta in engine.step():
        one = said.setdefault(delta.request_id, Said())
        assert delta.error is None and one.reason is None, "a delta behind the last one"
        one.token_ids += delta.token_ids
        one.text += delta.text
        one.logprobs += delta.logprobs
        one.prompt_logprobs += delta.prompt_logprobs
        one.reason = delta.finish_reason


def listen(engine: Engine, said: dict[str, Said] | None = None) -> dict[str, Said]:
    """Steps until there is no work left."""
    said = {} if said is None else said
    while engine.has_work:
        step(engine, said)
    return said


class Whim(OverlapPolicy):
    """Prefers now this and now that."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)

    def prefers_ahead(self, num_requests: int, num_drafting: int) -> bool:
        return self._random.random() < 0.7


def check_traffic(
    data: st.DataObject,
    engine: Engine,
    requests: st.SearchStrategy[Any],
    ask: Callable[[Engine, Any], str],
    law: Callable[[Any], SamplingParams],
    truth: Callable[[Any], Said],
) -> None:
    """Arrivals, aborts, forks and flushes at any step: who stays says what is true of his request."""
    engine._stepper._overlap_policy = Whim(data.draw(st.integers(0, 9)))
    asked: dict[str, Any] = {}
    said: dict[str, Said] = {}
    for _ in range(data.draw(st.integers(1, 25))):
        what = data.draw(st.sampled_from(["add", "add", "step", "step", "step", "abort", "fork", "flush"]))
        open_ids = [name for name in asked if name not in said or said[name].reason is None]
        if what == "add":
            one = data.draw(requests)
            asked[ask(engine, one)] = one
        elif what == "flush":
            engine.flush_cache()
        elif what == "step":
            step(engine, said)
        elif open_ids:
            name = data.draw(st.sampled_from(open_ids))
            if what == "abort":
                engine.abort(name)
                del asked[name]
            else:
                (child,) = engine.fork(name, sampling=law(asked[name]))
                asked[child] = asked[name]
    listen(engine, said)
    for name, one in asked.items():
        assert said[name] == truth(one)
    engine.flush_cache()
    assert engine.statistics().num_free_blocks == engine.statistics().num_blocks
