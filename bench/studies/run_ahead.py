"""What steps that run ahead save: the time that a device waits for its host.

    python bench/studies/run_ahead.py              on a GPU: random weights of Qwen3-0.6B's and Llama-3-8B's shape
    python bench/studies/run_ahead.py --simulated  without one: the host's work is real, and the device a clock
    python bench/studies/run_ahead.py --mixed      with requests for JSON among them, whose forced text is drafted

Both engines serve the same requests, in turns: plain text, sampled, with a stop string to look for. `in turn` reads
each step before it queues the next, `ahead` queues the next forward first (`run_ahead`). Medians of the milliseconds
from one step to the next while all requests decode.

The simulated device works on what is queued for as long as the table says, one forward after the other; reading what
it has computed waits until then. `host` is what a step in turn takes besides that, sampling from the bundled model's
vocabulary on the CPU included: what a device would wait for.

A step with drafts cannot run ahead. The mixed table has tokens per second with drafts and in turn, ahead and without
drafts, and as the engine chooses by what it measures (`runtime/speculate/overlap_policy.py`).
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from random_decoder import LLAMA_8B, QWEN3_0_6B, random_decoder

from phloem.runtime.config import EngineConfig
from phloem.runtime.constrain.spec import json_schema
from phloem.runtime.device import Reading
from phloem.runtime.engine.engine import Engine
from phloem.runtime.execute.loading import LoadedModel
from phloem.runtime.models import resolve_model
from phloem.runtime.request import SamplingParams
from phloem.runtime.sample import sampler_output as choice
from phloem.runtime.speculate.step_costs import OTHER_STEP_COSTS
from phloem.runtime.tokenizer.tokenizer import Tokenizer

TINY = QWEN3_0_6B | {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1}
TINY |= {"num_key_value_heads": 1, "head_dim": 16}
PROMPT_LEN = 64
LIKES_LONG = 3.0  # logits per byte of a token, so that text is spelt nearly as the tokeniser would
BOTH: list[dict[str, Any]] = [{"run_ahead": False}, {"run_ahead": True}]
WAYS: list[dict[str, Any]] = [{"run_ahead": False}, {"run_ahead": True, "jump": "off"}, {"run_ahead": True}]
TICKET = {
    "type": "object",
    "properties": {
        "severity": {"enum": ["low", "medium", "high"]},
        "component": {"enum": ["scheduler", "tokenizer", "cache"]},
        "is_regression": {"type": "boolean"},
        "num_affected_users": {"type": "integer", "minimum": 0, "maximum": 99999},
        "summary": {"type": "string", "maxLength": 40},
    },
    "required": ["severity", "component", "is_regression", "num_affected_users", "summary"],
    "additionalProperties": False,
}


class Clock:
    """A device that takes some seconds per forward, one after the other."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.free_at = 0.0

    def queue(self) -> None:
        self.free_at = max(self.free_at, time.perf_counter()) + self.seconds

    def wait_until(self, moment: float) -> None:
        time.sleep(max(0.0, moment - time.perf_counter()))


@contextmanager
def simulated(engine: Engine, clock: Clock) -> Iterator[None]:
    """Forwards of `engine` compute nothing and are queued on the clock; what is read was computed when it says so."""

    class ClockedReading(Reading):
        __slots__ = ("_ready_at",)

        def __init__(self, source: torch.Tensor) -> None:
            super().__init__(source)
            self._ready_at = clock.free_at

        def tensor(self) -> torch.Tensor:
            clock.wait_until(self._ready_at)
            return super().tensor()

    vocabulary = engine.tokenizer.vocabulary()
    lens = torch.from_numpy(np.diff(vocabulary.token_offsets).astype(np.float32))
    logits = torch.zeros(512, engine.model_config.vocab_size)
    logits[:, : len(lens)] = LIKES_LONG * lens

    def forward(batch: Any, decided: torch.Tensor | None = None) -> torch.Tensor:
        clock.queue()
        return logits[: len(batch.logits_rows)]

    engine.core._runner.forward = forward  # type: ignore[method-assign]
    engine.core._stepper._drafter.step_costs = OTHER_STEP_COSTS
    before, choice.Reading = choice.Reading, ClockedReading  # type: ignore[misc]
    import phloem.runtime.sample.sampler as sampler

    sampler.Reading = ClockedReading  # type: ignore[attr-defined]
    try:
        yield
    finally:
        choice.Reading = before  # type: ignore[misc]
        sampler.Reading = before  # type: ignore[attr-defined]


def make_engines(
    shape: dict[str, Any], device: torch.device, settings: list[dict[str, Any]], *, num_blocks: int
) -> list[Engine]:
    """One for each of the settings. The vocabulary is that of the bundled tokenizer: every token has a text."""
    tokenizer = Tokenizer.from_folder(resolve_model("nano"))
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    decoder = random_decoder(shape | {"vocab_size": tokenizer.vocab_size}, device, dtype)
    loaded = LoadedModel(decoder, tokenizer, device, dtype, dtype)
    shared: dict[str, Any] = {"num_blocks": num_blocks, "max_batch_tokens": 1 << 15, "prefix_cache": False}
    return [Engine.from_loaded(EngineConfig(**shared, **own), loaded, stopwatch=time.perf_counter) for own in settings]


def milliseconds_per_step(engine: Engine, batch: int, num_steps: int) -> float:
    """Median time from step to step while `batch` requests decode."""
    for index in range(batch):
        sampling = SamplingParams(max_tokens=num_steps + 30, seed=index, ignore_eos=True, stop=("never said",))
        engine.core.add([1 + (7 * index + place) % 90 for place in range(PROMPT_LEN)], sampling)
    while engine.statistics().num_running < batch:
        engine.core.step()
    for _ in range(8):  # captures graphs
        engine.core.step()
    marks = [time.perf_counter()]
    for _ in range(num_steps):
        engine.core.step()
        marks.append(time.perf_counter())
    while engine.core.has_work:
        engine.core.step()
    return 1e3 * statistics.median(after - before for before, after in pairwise(marks))


def compare(turn: Engine, ahead: Engine, batch: int, num_steps: int, rounds: int = 3) -> tuple[float, float]:
    """Milliseconds per step of both, measured in turns; medians of the rounds."""
    found: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for engine, times in zip((turn, ahead), found, strict=True):
            times.append(milliseconds_per_step(engine, batch, num_steps))
    return statistics.median(found[0]), statistics.median(found[1])


def run_simulated(num_steps: int) -> None:
    device = torch.device("cpu")
    turn, ahead = make_engines(TINY, device, BOTH, num_blocks=8192)
    print(f"{'requests':>9}{'device ms':>11}{'in turn ms':>12}{'host ms':>9}{'ahead ms':>10}{'ratio':>7}")
    for batch in (1, 16, 64, 256):
        for milliseconds in (3.0, 6.0, 12.0, 24.0):
            clock = Clock()
            clock.seconds = milliseconds / 1e3
            with simulated(turn, clock), simulated(ahead, clock):
                one, other = compare(turn, ahead, batch, num_steps)
            host = one - milliseconds
            print(
                f"{batch:>9}{milliseconds:>11.1f}{one:>12.2f}{host:>9.2f}{other:>10.2f}{one / other:>7.2f}", flush=True
            )


def tokens_per_second(engine: Engine, num_chats: int, num_json: int, num_steps: int) -> float:
    """Of `num_chats` and `num_json` requests at a time, each replaced by another when it ends."""
    ticket = json_schema(TICKET)
    kinds: dict[str, bool] = {}

    def begin(wants_json: bool) -> None:
        sampling = SamplingParams(max_tokens=120 if wants_json else 400, seed=len(kinds), ignore_eos=not wants_json)
        prompt = [1 + (7 * len(kinds) + place) % 90 for place in range(PROMPT_LEN)]
        kinds[engine.core.add(prompt, sampling, ticket if wants_json else None)] = wants_json

    for index in range(num_chats + num_json):
        begin(index < num_json)
    num_tokens, start = 0, 0.0
    for step in range(2 * num_steps):  # the first half settles what is measured and learnt
        if step == num_steps:
            num_tokens, start = 0, time.perf_counter()
        for delta in engine.core.step():
            num_tokens += len(delta.token_ids)
            if delta.finish_reason is not None:
                begin(kinds[delta.request_id])
    seconds = time.perf_counter() - start
    for request_id in kinds:
        engine.core.abort(request_id)
    return num_tokens / seconds


def run_mixed(num_steps: int) -> None:
    engines = make_engines(TINY, torch.device("cpu"), WAYS, num_blocks=8192)
    print(f"{'chats':>6}{'JSON':>6}{'device ms':>11}{'drafts':>9}{'ahead':>9}{'chosen':>9}{'of the better':>15}")
    for milliseconds in (6.0, 12.0):
        for num_json in (0, 4, 16, 32, 64):
            clock = Clock()
            clock.seconds = milliseconds / 1e3
            found: list[float] = []
            for engine in engines:
                with simulated(engine, clock):
                    found.append(tokens_per_second(engine, 64 - num_json, num_json, num_steps))
            speeds = "".join(f"{speed:9.0f}" for speed in found)
            share = found[2] / max(found[:2])
            print(f"{64 - num_json:>6}{num_json:>6}{milliseconds:>11.1f}{speeds}{share:>15.2f}", flush=True)


def run_on_gpu(num_steps: int) -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    print(f"{'model':>6}{'requests':>9}{'in turn ms':>12}{'ahead ms':>10}{'ratio':>7}")
    for name, shape in (("0.6B", QWEN3_0_6B), ("8B", LLAMA_8B)):
        turn, ahead = make_engines(shape, device, BOTH, num_blocks=6000)
        for batch in (1, 16, 64, 256):
            one, other = compare(turn, ahead, batch, num_steps)
            print(f"{name:>6}{batch:>9}{one:>12.2f}{other:>10.2f}{one / other:>7.2f}", flush=True)
        del turn, ahead
        gc.collect()  # a runner and its graphs hold each other, and with them the KV
        torch.cuda.empty_cache()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulated", action="store_true", help="the device is a clock")
    parser.add_argument("--steps", type=int, default=100, help="steps that are timed")
    parser.add_argument("--mixed", action="store_true", help="with requests for JSON; the device is a clock")
    arguments = parser.parse_args()
    if arguments.mixed:
        run_mixed(arguments.steps)
    elif arguments.simulated:
        run_simulated(arguments.steps)
    elif torch.cuda.is_available():
        run_on_gpu(arguments.steps)
    else:
        parser.error("no CUDA device; --simulated needs none")


if __name__ == "__main__":
    main()
