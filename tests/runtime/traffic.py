"""Traffic at an engine: requests that come, fork and go at any step, and what deltas bring of each."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import Any, NamedTuple

from hypothesis import strategies as st

from phloem.runtime.constrain.spec import ConstraintSpec
from phloem.runtime.engine.engine import Engine
from phloem.runtime.request import FinishReason, SamplingParams, TokenLogprob, Usage
from phloem.runtime.speculate.overlap_policy import OverlapPolicy

from .fakes import FakeDecoder, fake_engine


@dataclass
class Said:
    """What deltas brought of one request."""

    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    logprobs: list[TokenLogprob] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprob] = field(default_factory=list)
    reason: FinishReason | None = None
    usage: Usage | None = field(default=None, compare=False)


def step(engine: Engine, said: dict[str, Said]) -> None:
    for delta in engine.step():
        one = said.setdefault(delta.request_id, Said())
        assert delta.error is None and one.reason is None, "a delta after the last one"
        one.token_ids += delta.token_ids
        one.text += delta.text
        one.logprobs += delta.logprobs
        one.prompt_logprobs += delta.prompt_logprobs
        one.reason, one.usage = delta.finish_reason, delta.usage


def listen(engine: Engine, said: dict[str, Said] | None = None) -> dict[str, Said]:
    """Steps until there is no work left."""
    said = {} if said is None else said
    for _ in range(5000):
        if not engine.has_work:
            return said
        step(engine, said)
    raise AssertionError("it does not end")


class Whim(OverlapPolicy):
    """Prefers now this and now that."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)

    def prefers_ahead(self, num_requests: int, num_drafting: int) -> bool:
        return self._random.random() < 0.7


class Asked(NamedTuple):
    """Places in the lists of `Questions`, and the rest."""

    prompt: int
    params: int
    constraint: int
    max_tokens: int
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Questions:
    """Requests of all kinds. lengths: the least and the most tokens that one may say; decoder: what tells the truth."""

    prompts: list[tuple[int, ...]]
    params: list[dict[str, Any]]
    constraints: list[ConstraintSpec | None]
    lengths: tuple[int, int]
    decoder: type[FakeDecoder] = FakeDecoder

    def every(self, max_tokens: int) -> list[Asked]:
        places = product(range(len(self.prompts)), range(len(self.params)), range(len(self.constraints)))
        return [asked for place in places if self._is_possible(asked := Asked(*place, max_tokens))]

    def some(self) -> st.SearchStrategy[Asked]:
        prompt, params = st.integers(0, len(self.prompts) - 1), st.integers(0, len(self.params) - 1)
        constraint, length = st.sampled_from([0, 0, 1, 2]), st.integers(*self.lengths)
        return st.builds(Asked, prompt, params, constraint, length, st.integers(0, 3)).filter(self._is_possible)

    def _is_possible(self, asked: Asked) -> bool:
        """Token rules and constraints exclude each other."""
        return not (asked.constraint and "allowed_token_ids" in self.params[asked.params])

    def params_of(self, which: int, max_tokens: int, seed: int = 0) -> SamplingParams:
        at_least = min(self.params[which].get("min_tokens", 0), max_tokens)
        return SamplingParams(max_tokens=max_tokens, seed=seed, **{**self.params[which], "min_tokens": at_least})

    def ask(self, engine: Engine, asked: Asked) -> str:
        prompt, which, constraint, *rest = asked
        return engine.add(list(self.prompts[prompt]), self.params_of(which, *rest), self.constraints[constraint])

    def check_together(self, engine: Engine, every: Iterable[Asked]) -> None:
        """All of them at once say what each says alone."""
        names = {self.ask(engine, asked): asked for asked in every}
        said = listen(engine)
        assert said == {name: truth(self, asked) for name, asked in names.items()}

    def check_traffic(self, data: st.DataObject, engine: Engine) -> None:
        """Arrivals, aborts, forks and flushes at any step: each request that stays says what is true of it."""
        engine._stepper._overlap_policy = Whim(data.draw(st.integers(0, 9)))
        names: dict[str, Asked] = {}
        said: dict[str, Said] = {}
        for _ in range(data.draw(st.integers(1, 25))):
            what = data.draw(st.sampled_from(["add", "add", "step", "step", "step", "abort", "fork", "flush"]))
            open_ids = [name for name in names if name not in said or said[name].reason is None]
            if what == "add":
                asked = data.draw(self.some())
                names[self.ask(engine, asked)] = asked
            elif what == "flush":
                engine.flush_cache()
            elif what == "step":
                step(engine, said)
            elif open_ids:
                name = data.draw(st.sampled_from(open_ids))
                if what == "abort":
                    engine.abort(name)
                    del names[name]
                else:
                    _, which, _, *rest = names[name]
                    (child,) = engine.fork(name, sampling=self.params_of(which, *rest))
                    names[child] = names[name]
        listen(engine, said)
        for name, asked in names.items():
            assert said[name] == truth(self, asked)
        engine.flush_cache()
        assert engine.statistics().num_free_blocks == engine.statistics().num_blocks


@cache
def truth(questions: Questions, asked: Asked) -> Said:
    """What a request says alone, one token after the other, without a cache."""
    alone = {"prefix_cache": False, "jump": "off", "lookup_drafts": False, "run_ahead": False}
    engine = fake_engine(decoder=questions.decoder(), **alone)
    questions.ask(engine, asked)
    (said,) = listen(engine).values()
    assert engine.statistics().drafted_tokens == 0
    return said
