"""Random traffic over models whose layers are not all full attention: does each request say what it says alone?

    python bench/studies/layer_groups.py [--runs 54] [--model qwen3-next]

Short convolutions (LFM2), the delta rule (Qwen3-Next), state spaces (Granite 4) and windows (Gemma 2), with random
weights, in float32 on the CPU. In each run an engine has a small pool, few states, chunks, tiers below the pool or
none, drafts or none, steps that run ahead or in turn; requests come, fork, are aborted and preempted, at random steps,
some with constraints, adapters, a `kv_budget` or another namespace. What each says is compared, tokens and
log-probabilities to the bit, with an engine that computes it alone, without a cache, tiers and drafts. Takes minutes;
tokens are counted, so the machine does not matter.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from runtime.models.decoder_cases import CASES
from runtime.models.oracle import save_random_model
from runtime.models.saved_adapters import save_adapter

import phloem as ph
from phloem.runtime.config import EngineConfig
from phloem.runtime.engine.engine import Engine
from phloem.runtime.engine.engine_core import EngineCore
from phloem.runtime.execute.loading import LoadedModel, load
from phloem.runtime.models import resolve_model

MODELS = ("lfm2", "qwen3-next", "granite-hybrid", "gemma2")
MIXERS, ADAPTER = r".*(self_attn|conv|linear_attn|mamba)\..*", "adapter"
SPECS = (None, None, None, ph.regex("[a-z ]{5,30}"), ph.regex("(left|right) and (up|down), (yes|no)"))
BUDGETS = (None, None, 64)
Asked = tuple[tuple[int, ...], int, float, int | None, int, str | None, str]


def load_model(name: str, folder: Path) -> LoadedModel:
    class_name, options = CASES[name]
    sizes = {"vocab_size": 1280, "max_position_embeddings": 512, "eos_token_id": None}
    model = save_random_model(folder, class_name, {**options, **sizes})
    for file in ("tokenizer.model", "tokenizer_config.json"):
        shutil.copy(resolve_model("nano") / file, folder)
    save_adapter(folder / ADAPTER, model, MIXERS, {}, target_modules=MIXERS)
    return load(EngineConfig(str(folder), device="cpu", adapters={ADAPTER: str(folder / ADAPTER)}))


def params_of(asked: Asked) -> ph.SamplingParams:
    _, length, temperature, budget, _, _, _ = asked
    kept: dict[str, Any] = {} if budget is None else {"kv_budget": budget, "kv_policy": "sinks"}
    return ph.SamplingParams(
        max_tokens=length, temperature=temperature, seed=5, ignore_eos=True, logprobs=0, stop="never said", **kept
    )


class Truth:
    """What requests say alone, each computed once."""

    def __init__(self, loaded: LoadedModel) -> None:
        config = EngineConfig(device="cpu", prefix_cache=False, lookup_drafts=False, jump="off", num_blocks=99)
        self._engine = Engine.from_loaded(config, loaded)
        self._known: dict[Asked, list[Any]] = {}

    def of(self, asked: Asked) -> list[Any]:
        if asked not in self._known:
            prompt, _, _, _, spec, adapter, _ = asked
            said = self._engine.generate(list(prompt), params_of(asked), SPECS[spec], adapter=adapter)
            self._known[asked] = [*said.logprobs]
        return self._known[asked]


class Run:
    """One engine and its requests."""

    def __init__(self, loaded: LoadedModel, source: Random, folder: Path, counts: Counter[str]) -> None:
        self.source, self.counts = source, counts
        block_size = source.choice([1, 4, 16])
        options: dict[str, Any] = {
            "block_size": block_size,
            "num_blocks": source.choice([176, 240, 900]) // block_size,
            "max_batch_tokens": source.choice([8, 33, 512]),
            "state_interval": source.choice([0, 8, 32, 512]),
            "jump": source.choice(["verified", "off"]),
            "max_running_requests": source.choice([3, 16]),
            "max_model_len": 300,
            "run_ahead": source.choice([False, True]),
        }
        tiers = source.choice(
            [{}, {"host_memory_bytes": 4 << 20}, {"host_memory_bytes": 4 << 20}, {"disk_cache": str(folder)}]
        )
        recurrent = loaded.decoder.config.recurrent
        if recurrent is not None:
            options["state_memory_bytes"] = recurrent.num_state_bytes * source.choice([6, 20, 80])
        self.core = EngineCore(EngineConfig(device="cpu", check_invariants=True, **tiers, **options), loaded)
        if self.core.prefix_cache.tiers is not None:  # to read what computing brings as fast, too
            self.core.prefix_cache.tiers.loads.cost._always = True
        self.asked: dict[str, Asked] = {}
        self.said: dict[str, list[Any]] = {}
        self.ended: set[str] = set()

    def step(self) -> None:
        for delta in self.core.step():
            assert delta.error is None, delta.error
            self.said.setdefault(delta.request_id, []).extend(delta.logprobs)
            if delta.finish_reason is not None:
                self.ended.add(delta.request_id)
                self.counts["cached tokens"] += delta.usage.cached_tokens
                self.counts["loaded tokens"] += delta.usage.loaded_tokens

    def crowd_in(self) -> None:
        """So that the engine takes in more than it can hold if the next ones go on."""
        every = tuple(range(self.core.tokenizer.vocab_size))
        for token in range(32):
            self.core.add([token], ph.SamplingParams(max_tokens=100, stop_token_ids=every), namespace="crowd")
        while self.core.has_work:
            self.core.step()

    def add(self) -> None:
        source = self.source
        prompt = (*range(20, 20 + source.choice([3, 17, 40, 120])), *range(700, 700 + source.randrange(3)))
        budget = source.choice(BUDGETS)
        length = source.randrange(2, 40) if budget is None or len(prompt) > 100 else 130
        spec = 0 if budget else source.randrange(len(SPECS))
        adapter, namespace = source.choice([None, None, ADAPTER]), source.choice(["", "", "other"])
        asked: Asked = (
            prompt,
            max(length, 40 * bool(spec)),
            source.choice([0.0, 1.0]),
            budget,
            spec,
            adapter,
            namespace,
        )
        more = {"adapter": adapter, "namespace": namespace}
        try:
            name = self.core.add(list(prompt), params_of(asked), SPECS[spec], **more)  # type: ignore[arg-type]
        except ph.RequestError:
            return  # a pool that is too small for it
        self.asked[name] = asked

    def play(self, truth: Truth, num_events: int = 70) -> None:
        self.crowd_in()
        for _ in range(num_events):
            what = self.source.choice(["add", "add", "step", "step", "step", "step", "fork", "abort", "flush"])
            open_ids = [name for name in self.asked if name not in self.ended]
            if what == "add":
                self.add()
            elif what == "step":
                self.step()
            elif what == "flush" and self.source.random() < 0.3:
                self.core.flush_cache()
            elif what in ("fork", "abort") and open_ids:
                name = self.source.choice(open_ids)
                if what == "abort":
                    self.core.abort(name)
                    del self.asked[name]
                else:
                    (child,) = self.core.fork(name, sampling=params_of(self.asked[name]))
                    self.asked[child] = self.asked[name]
        while self.core.has_work:
            self.step()
        statistics = self.core.statistics()
        self.counts["preemptions"] += statistics.num_preemptions
        self.counts["steps"] += statistics.num_steps
        self.counts["of them ahead"] += statistics.num_ahead
        for name, asked in self.asked.items():
            self.counts["requests"] += 1
            self.counts["with a budget"] += asked[3] is not None
            self.counts["with an adapter"] += asked[5] is not None
            self.counts["that said something else"] += self.said[name] != truth.of(asked)
        self.core.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=54, help="of each model")
    parser.add_argument("--model", choices=MODELS, action="append", help="only this one; default: all")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    num_wrong = 0
    for name in options.model or MODELS:
        counts: Counter[str] = Counter()
        with tempfile.TemporaryDirectory() as folder:
            loaded = load_model(name, Path(folder) / "model")
            truth, source = Truth(loaded), Random(7)
            for _ in range(options.runs):
                Run(loaded, source, Path(folder) / "kv", counts).play(truth)
        wrong = counts.pop("that said something else", 0)
        num_wrong += wrong
        shown = ", ".join(f"{number:,} {what}" for what, number in counts.items())
        print(f"{name}: {options.runs} runs: {shown}: {wrong} said something else than alone", flush=True)
    if num_wrong:
        raise SystemExit(f"{num_wrong} requests said something else than alone")


if __name__ == "__main__":
    main()
