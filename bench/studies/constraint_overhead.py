"""What constraints cost in a batch: per request and step by part, and tokens per second with and without.

    python bench/studies/constraint_overhead.py [--batch 1 16 64 256] [--tokenizer tekken.json] [--cases FOLDER]
                                        [--throughput-batch 64] [--rounds 8]
                                        [--skip-parts] [--skip-throughput] [--skip-heavy]

Parts: valid answers under mixed constraints (the schemas of the bundled model's documents, any JSON object, a regex;
with `--cases` the schemas and valid instances of a folder in the layout of MaskBench) are replayed token by token over
random logits; every part of a step is timed for the whole batch at once and divided by the requests in it. Cold: every
state is met for the first time, by a compiler that has seen nothing but its warm-up; warm: the same once more. The
vocabularies are the bundled one, and one of 131,072 tokens: Mistral's tekken if `--tokenizer` names its file, otherwise
made up.

Throughput: the bundled model answers the same prompts with and without a constraint, the same number of tokens for
each request, greedily; prompts are computed before the clock starts. A wrapper around the model rules the end token
out, so that free text goes on. The two sides take steps in turn, on two engines that change places every round, and
of each step the median over the rounds counts; "of rounds" is the ratio of whole rounds, lowest and highest. Verified
drafts know the texts from the rounds before; for texts that are new see `jump.py`. Heavy: how long the steps of 16
ordinary requests take next to one whose masks are a lot of work, and whether their texts stay the same. All times are
CPU time of one thread.
"""

from __future__ import annotations

import argparse
import dataclasses
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from constraint_parts import case_answers, document_answers, made_up_vocabulary, print_parts, tekken_vocabulary

import phloem as ph
from phloem.runtime.config import EngineConfig, JumpMode
from phloem.runtime.execute.loading import LoadedModel, load
from phloem.runtime.models import Decoder

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from nano_text import documents  # noqa: E402

CPU = torch.device("cpu")
clock = time.process_time_ns


# --------------------------------------------------------------------------------------------------- vocabularies


class Endless:
    """The model, never ending a text of its own accord."""

    def __init__(self, decoder: Decoder, eos_ids: Sequence[int]) -> None:
        self._decoder = decoder
        self._eos_ids = list(eos_ids)
        self.config = decoder.config

    def forward(self, *arguments: Any) -> torch.Tensor:
        logits = self._decoder.forward(*arguments)
        logits[:, self._eos_ids] = -torch.inf
        return logits


def endless_model() -> tuple[EngineConfig, LoadedModel]:
    config = EngineConfig(model="nano", device="cpu", jump="off", prefix_cache=False)
    loaded = load(config)
    endless: Any = Endless(loaded.decoder, loaded.tokenizer.eos_ids)
    return config, dataclasses.replace(loaded, decoder=endless)


def endless_engine() -> ph.Engine:
    return ph.Engine.from_loaded(*endless_model())


class Run:
    """Requests on their way.

    Attributes:
        seconds: CPU time of each step after the one that computed the prompts.
        lengths: tokens by request so far.
    """

    def __init__(
        self, engine: ph.Engine, prompts: list[list[int]], limits: list[int], specs: Sequence[ph.ConstraintSpec | None]
    ) -> None:
        self._engine = engine
        order = [
            engine.core.add(prompt, ph.SamplingParams(max_tokens=limit, temperature=0.0), spec)
            for prompt, limit, spec in zip(prompts, limits, specs, strict=True)
        ]
        self._counts = dict.fromkeys(order, 0)
        self._num_steps = 0
        self.seconds: list[float] = []

    @property
    def lengths(self) -> list[int]:
        return list(self._counts.values())

    def step(self) -> bool:
        """One step; whether there was one to be done."""
        if not self._engine.core.has_work:
            return False
        begin = time.process_time()
        deltas = self._engine.core.step()
        seconds = time.process_time() - begin
        if self._num_steps:
            self.seconds.append(seconds)
        self._num_steps += 1
        for delta in deltas:
            if delta.error is not None:
                raise delta.error
            self._counts[delta.request_id] += len(delta.token_ids)
        return True


def finish(*runs: Run) -> None:
    """Steps of all runs in turn, so that they meet the same neighbours, until all are done."""
    while any([run.step() for run in runs]):
        pass


def typical(runs: Sequence[Run]) -> float:
    """Seconds of a run, each of its steps taken as the median over the runs: what disturbed one of them is left out."""
    steps = [[s for s in of_runs if s is not None] for of_runs in zip_longest(*(run.seconds for run in runs))]
    return sum(statistics.median(found) * len(found) / len(runs) for found in steps)


def print_throughput(batch_size: int, rounds: int) -> None:
    config, loaded = endless_model()
    found = list(documents(seed=2, count=batch_size))
    prompts = [
        loaded.tokenizer.apply_chat_template(
            [{"role": "user", "content": f"{d.text}\n\nExtract the {d.kind.name} as JSON."}]
        )
        for d in found
    ]
    print(f"\nbundled model, batch {batch_size}: tokens per CPU second, the same tokens per request with and without")
    print(
        f"{'constraint':24}{'jump':11}{'with':>8}{'without':>9}{'ratio':>7}{'of rounds':>15}{'tokens':>8}{'steps':>7}"
        f"{'without':>8}"
    )
    long_list = {"type": "array", "items": {"type": "string"}}
    cases: list[tuple[str, list[ph.ConstraintSpec], int]] = [
        ("regex [\\s\\S]*", [ph.regex(r"[\s\S]*")] * batch_size, 128),
        ("a list of strings", [ph.json_schema(long_list)] * batch_size, 128),
        ("schemas of documents", [ph.json_schema(d.kind.schema) for d in found], 512),
    ]
    jumps: tuple[JumpMode, ...] = ("off", "verified", "canonical")
    for jump in jumps:
        # Two engines take both parts in turn: where its blocks are in memory makes one faster than its twin.
        twins = [ph.Engine.from_loaded(dataclasses.replace(config, jump=jump), loaded) for _ in range(2)]
        for name, specs, max_tokens in cases:
            limits = [max_tokens] * batch_size
            for _ in range(2):
                for engine in twins:
                    warm_up = Run(engine, prompts, limits, specs)
                    finish(warm_up)
            lengths = warm_up.lengths
            with_runs, free_runs = [], []
            for index in range(rounds):
                engines = twins[:: 1 if index % 2 else -1]
                with_runs.append(Run(engines[0], prompts, limits, specs))
                free_runs.append(Run(engines[1], prompts, lengths, [None] * batch_size))
                finish(with_runs[-1], free_runs[-1])
            total = sum(lengths)
            with_seconds, free_seconds = typical(with_runs), typical(free_runs)
            ratios = sorted(sum(f.seconds) / sum(w.seconds) for w, f in zip(with_runs, free_runs, strict=True))
            print(
                f"{name:24}{jump:11}{total / with_seconds:>8.0f}{total / free_seconds:>9.0f}"
                f"{free_seconds / with_seconds:>7.3f}   {ratios[0]:.3f}-{ratios[-1]:.3f}{total:>8}"
                f"{len(with_runs[0].seconds):>7}{len(free_runs[0].seconds):>8}",
                flush=True,
            )


# ---------------------------------------------------------------------------------------------- heavy constraints

HEAVY = {
    "none": None,
    "words": r"(\w{1,50}){1,50}@",
    "states": r"(.{1,1000}){1,1000}",
    "ways": "((a{1,100}){1,100}){1,100}",
    "long alternation": "|".join(f"{index:x}[a-f]*{index * 7919:x}" for index in range(3000)),
}


def print_heavy(num_ordinary: int) -> None:
    """The steps of ordinary requests next to one with a constraint whose masks take long."""
    engine = endless_engine()
    prompts = [engine.tokenizer.encode(f"{document.text}") for document in documents(seed=3, count=num_ordinary)]
    params = ph.SamplingParams(max_tokens=96, temperature=0.0)
    schema = ph.json_schema({"type": "array", "items": {"type": "string"}})
    print(f"\nbundled model, {num_ordinary} ordinary requests (half with a schema) next to one that is heavy, CPU time")
    print(f"{'heavy request':20}{'steps p50':>12}{'p99':>12}{'longest':>12}{'its tokens':>12}  its end")
    texts: dict[str, list[str]] = {}
    for name, pattern in {"(warming up)": None, **HEAVY}.items():
        specs = [schema if index % 2 else None for index in range(num_ordinary)]
        order = [engine.core.add(prompt, params, spec) for prompt, spec in zip(prompts, specs, strict=True)]
        if pattern is not None:
            hot = ph.SamplingParams(max_tokens=2000, temperature=1.0, seed=1)
            engine.core.add(prompts[0], hot, ph.regex(pattern), request_id="heavy")
        found = dict.fromkeys(order, "")
        times: list[float] = []
        num_tokens, end = 0, ""
        num_open = num_ordinary
        for _ in range(400):
            begin = time.process_time()
            deltas = engine.core.step()
            if num_open:
                times.append(time.process_time() - begin)
            for delta in deltas:
                if delta.request_id == "heavy":
                    num_tokens += len(delta.token_ids)
                    end = (
                        f"{type(delta.error).__name__}: {delta.error}"
                        if delta.error
                        else str(delta.finish_reason or "")
                    )
                else:
                    found[delta.request_id] += delta.text
                    num_open -= delta.finish_reason is not None
        engine.core.abort("heavy")
        texts[name] = list(found.values())
        if name != "(warming up)":
            times = sorted(times[1:])
            print(
                f"{name:20}{times[len(times) // 2] * 1e3:>9.1f} ms{times[len(times) * 99 // 100] * 1e3:>9.1f} ms"
                f"{times[-1] * 1e3:>9.1f} ms{num_tokens:>12}  {end or 'goes on'}",
                flush=True,
            )
    assert all(found == texts["none"] for found in texts.values()), "a heavy request changed the text of another"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16, 64, 256])
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--cases", type=Path)
    parser.add_argument("--throughput-batch", type=int, nargs="+", default=[64])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--skip-parts", action="store_true")
    parser.add_argument("--skip-throughput", action="store_true")
    parser.add_argument("--skip-heavy", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{platform.processor() or platform.machine()}, one thread, torch {torch.__version__}")
    if not options.skip_parts:
        count = max(options.batch)
        answers = case_answers(options.cases, count) if options.cases else document_answers(count)
        print_parts(
            "bundled vocabulary", ph.Engine("nano", device="cpu").tokenizer.vocabulary(), answers, options.batch
        )
        large = tekken_vocabulary(options.tokenizer) if options.tokenizer else made_up_vocabulary(131_072)
        print_parts("large vocabulary", large, answers, options.batch)
    if not options.skip_throughput:
        for batch_size in options.throughput_batch:
            print_throughput(batch_size, options.rounds)
    if not options.skip_heavy:
        print_heavy(16)


if __name__ == "__main__":
    main()
