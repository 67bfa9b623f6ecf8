"""Random traffic at engines of two ranks: does each request say what it says alone with one?

    python bench/studies/fuzz_ranks.py [--engines 54]

Arrivals, forks, aborts, pins, flushes, and faults of rank 0 between two operations with the other rank, at random
steps, in pools too small for all, on the bundled model. Takes half a minute an engine on a busy machine.
"""

from __future__ import annotations

import argparse
import random
from contextlib import suppress
from typing import Any

import torch

import phloem as ph
from phloem.radix import PinBudgetExceeded
from phloem.runtime.config import EngineConfig
from phloem.runtime.engine.engine import Engine
from phloem.runtime.engine.engine_core import EngineCore
from phloem.runtime.execute.loading import load
from phloem.runtime.parallel.rank_processes import RankProcesses
from phloem.runtime.parallel.ranks import Ranks

CPU = torch.device("cpu")


def fuzz(rounds: int) -> None:
    """What each request says alone is computed by one rank."""
    loaded = load(EngineConfig("nano", device="cpu"))
    processes = RankProcesses(2, CPU, 30.0, outlives_engine=True)
    alone = Engine.from_loaded(EngineConfig("nano", device="cpu", prefix_cache=False, lookup_drafts=False), loaded)
    source, num_requests, num_preempted, num_other, num_faults = random.Random(7), 0, 0, 0, 0
    for index in range(rounds):
        config = EngineConfig(
            "nano",
            device="cpu",
            tensor_parallel_size=2,
            block_size=source.choice([1, 4, 16]),
            num_blocks=None,
            kv_memory_bytes=source.choice([170, 250, 2000]) * 1024,
            max_batch_tokens=source.choice([8, 33, 512]),
            run_ahead=source.random() < 0.5,
            check_invariants=True,
            jump=source.choice(["verified", "off"]),
            max_model_len=160,
        )
        core = EngineCore(config, load(config, None, processes))
        asked: dict[str, tuple[list[int], ph.SamplingParams, Any]] = {}
        said: dict[str, list[int]] = {}
        ended: set[str] = set()

        def step(core: EngineCore = core, said: dict[str, list[int]] = said, ended: set[str] = ended) -> None:
            for delta in core.step():
                said.setdefault(delta.request_id, []).extend(delta.token_ids)
                if delta.finish_reason is not None:
                    ended.add(delta.request_id)

        ends_at_once = ph.SamplingParams(max_tokens=100, stop_token_ids=tuple(range(core.tokenizer.vocab_size)))
        for token in range(32):  # so that the engine takes in more than it can hold if the next ones go on
            core.add([token], ends_at_once)
        while core.has_work:
            core.step()
        for _ in range(90):
            what = source.choice(
                ["add", "add", "add", "step", "step", "step", "fork", "abort", "flush", "pin", "fault"]
            )
            open_ids = [name for name in asked if name not in ended]
            if what == "add":
                prompt = [*range(20, 20 + source.choice([3, 17, 40])), source.randrange(20, 600)]
                temperature, seed = source.choice([0.0, 1.0]), source.randrange(3)
                length = source.randrange(2, 40)
                params = ph.SamplingParams(
                    max_tokens=length, temperature=temperature, seed=seed, ignore_eos=True, stop="never said"
                )
                spec = source.choice([None, None, ph.regex("[a-z ]{5,30}")])
                try:
                    asked[core.add(prompt, params, spec)] = (prompt, params, spec)
                except ph.RequestError:
                    continue
            elif what == "step":
                step()
            elif what == "fault":
                num_faults += break_once(processes.ranks, source.randrange(12))
            elif what == "flush":
                core.flush_cache()
            elif what == "pin":
                core.pins.end_expired()
                with suppress(PinBudgetExceeded):
                    core.pins.add(list(range(20, 37)), 0.01, "")
            elif open_ids:
                name = source.choice(open_ids)
                if what == "abort":
                    core.abort(name)
                    del asked[name]
                else:
                    (child,) = core.fork(name, sampling=asked[name][1])
                    asked[child] = asked[name]
        while core.has_work:
            step()
        num_preempted += core.statistics().num_preemptions
        core.close()
        for name, (prompt, params, spec) in asked.items():
            num_requests += 1
            expected = alone.generate(prompt, params, spec).token_ids
            num_other += tuple(said[name]) != expected
        print(
            f"{index + 1} engines of two ranks, {num_requests} requests, {num_preempted} preemptions, {num_faults} "
            f"faults: {num_other} said other tokens than with one rank",
            flush=True,
        )
    alone.close()
    processes.close()


def break_once(ranks: Ranks, after: int) -> bool:
    """Lets the operation fail that comes after n others; False: one that is to fail has not come yet."""
    if "_run" in vars(ranks):
        return False
    run, left = ranks._run, iter(range(after))

    def broken(*given: Any) -> None:
        if next(left, None) is None:
            del ranks._run
            raise ValueError("a fault")
        run(*given)

    ranks._run = broken  # type: ignore[method-assign]
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", type=int, default=54)
    torch.set_num_threads(1)
    fuzz(parser.parse_args().engines)


if __name__ == "__main__":
    main()
