"""What tiers below the pool bring: documents that are asked about again and again, in a tenth of the pool they need.

    OMP_NUM_THREADS=1 python bench/tiers.py [--shape nano] [--documents 20] [--document 600] [--rounds 5]
    OMP_NUM_THREADS=1 python bench/tiers.py --shape smollm-135m --documents 12 --document 400 --rounds 3

Every round puts a new question to each document in turn, which no pool of a tenth can hold. Five engines on the same
weights take turns, each in its own pool:

    none       a tenth, nothing below it
    host       a tenth, and host memory for all of it (on a CPU: a larger pool in other words)
    disk       a tenth, and a folder for all of it
    restart    the same folder, with an engine that is started anew for each round
    ample      a pool for all of it

A first round, in which nothing is cached anywhere, shows what writing costs. Then, medians over the rounds:
milliseconds to the first token of requests that come one at a time, by the clock and in CPU time of all threads, and
tokens of prompts and answers per CPU-second when all come at once. Files are in the memory of the system when they are
read again, so CPU time leaves nothing out but other processes. Greedy tokens must be equal, or the script says so.

`smollm-135m` is a random checkpoint with all layers of SmolLM-135M and the vocabulary of the bundled model.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import statistics
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import torch
from cpu_decode import SMOLLM_135M, commit

import phloem as ph
from phloem.runtime.config import EngineConfig
from phloem.runtime.execute.loading import LoadedModel, load
from phloem.runtime.models import resolve_model

BLOCK_SIZE = 16
QUESTION = 16  # tokens
ANSWER = 8
SHAPE = SMOLLM_135M | {"vocab_size": 1280, "bos_token_id": 1, "eos_token_id": [6, 2]}
GREEDY = ph.SamplingParams(max_tokens=ANSWER, temperature=0.0, ignore_eos=True)

Prompts = list[list[int]]


def make_rounds(options: argparse.Namespace) -> list[Prompts]:
    """Prompts of each round: the documents in the same order, each with another question. The first is the cold one."""
    random = Random(0)

    def draw(count: int) -> list[int]:
        return [random.randrange(16, 700) for _ in range(count)]

    documents = [draw(options.document) for _ in range(options.documents)]
    return [[document + draw(QUESTION) for document in documents] for _ in range(2 * options.rounds + 1)]


def one_at_a_time(engine: ph.Engine, prompts: Prompts) -> tuple[list[tuple[float, float]], list[tuple[int, ...]]]:
    """Milliseconds to each first token, by the clock and of CPU time, and what was said."""
    times, said = [], []
    for prompt in prompts:
        begin, cpu = time.perf_counter(), time.process_time()
        engine.core.add(prompt, GREEDY)
        deltas = engine.core.step()
        while not deltas:
            deltas = engine.core.step()
        times.append((1000 * (time.perf_counter() - begin), 1000 * (time.process_time() - cpu)))
        while engine.core.has_work:
            deltas += engine.core.step()
        said.append(tuple(token for delta in deltas for token in delta.token_ids))
    return times, said


def all_at_once(engine: ph.Engine, prompts: Prompts) -> tuple[float, list[tuple[int, ...]]]:
    """Tokens of prompts and answers per CPU-second, and what was said."""
    begin = time.process_time()
    done = engine.generate(prompts, GREEDY)
    seconds = time.process_time() - begin
    return sum(len(prompt) + ANSWER for prompt in prompts) / seconds, [one.token_ids for one in done]


def run(make: dict[str, Callable[[], ph.Engine]], rounds: list[Prompts], num_rounds: int) -> list[str]:
    """The lines of the table."""
    engines = {name: make[name]() for name in make if name != "restart"}
    cold: dict[str, float] = {}
    first: dict[str, list[tuple[float, float]]] = defaultdict(list)
    rate: dict[str, list[float]] = defaultdict(list)
    computed: dict[str, list[float]] = defaultdict(list)
    said: dict[str, list[Any]] = defaultdict(list)
    for name, engine in engines.items():
        times, words = one_at_a_time(engine, rounds[0])
        cold[name] = statistics.median(cpu for _, cpu in times)
        said[name].append(words)
    for number in range(num_rounds):
        for name in sorted(make, reverse=number % 2 == 1):
            engine = engines[name] if name in engines else make[name]()
            settle(engine)
            before = engine.statistics().num_computed_tokens
            times, words = one_at_a_time(engine, rounds[1 + 2 * number])
            computed[name].append((engine.statistics().num_computed_tokens - before) / len(times))
            first[name] += times
            said[name].append(words)
            if name not in engines:
                engine.close()
                engine = make[name]()
            settle(engine)
            speed, words = all_at_once(engine, rounds[2 + 2 * number])
            rate[name].append(speed)
            said[name].append(words)
            if name not in engines:
                engine.close()
    lines = [
        "| below the pool | cold: first token, CPU ms | first token, ms | CPU ms | none / this | all at once, tok/s "
        "| this / none | computed per request |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name in make:
        wall, cpu = (statistics.median(column) for column in zip(*first[name], strict=True))
        speed = statistics.median(rate[name])
        lines.append(
            f"| {name} | {f'{cold[name]:.1f}' if name in cold else ''} | {wall:.1f} | {cpu:.1f} "
            f"| {statistics.median(cpu for _, cpu in first['none']) / cpu:.1f} | {speed:,.0f} "
            f"| {speed / statistics.median(rate['none']):.1f} | {statistics.median(computed[name]):.0f} |"
        )
    texts = {name: words[-2 * num_rounds :] for name, words in said.items()}
    different = [name for name in make if texts[name] != texts["none"]]
    lines.append(f"THE TEXT DIFFERS: {', '.join(different)}" if different else "same text everywhere")
    lines += [f"{name}: {below(engine)}" for name, engine in engines.items() if engine.prefix_cache.tiers]
    for engine in engines.values():
        engine.close()
    return lines


def settle(engine: ph.Engine) -> None:
    if engine.prefix_cache.tiers is not None:
        engine.prefix_cache.tiers.settle()


def below(engine: ph.Engine) -> str:
    tiers = engine.prefix_cache.tiers
    assert tiers is not None
    counts, cost = tiers.statistics(), tiers.loads.cost
    block_cost = (cost.prefill.seconds_per_operation or 0.0) * engine.block_cost(BLOCK_SIZE)
    reading = ", ".join(f"{1000 * seconds:.2f} ms from {tier}" for tier, seconds in cost.seconds_per_block.items())
    return (
        f"{counts.num_stored} blocks stored, {counts.num_loaded} loaded, {counts.num_dropped} dropped; "
        f"a block takes {1000 * block_cost:.2f} ms to compute, {reading}"
    )


def checkpoint(shape: str, folder: Path) -> Path:
    nano = resolve_model("nano")
    if shape == "nano":
        return nano
    warnings.simplefilter("ignore")
    import transformers

    shutil.copytree(nano, folder, dirs_exist_ok=True)
    (folder / "model.safetensors").unlink()
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SHAPE))
    model.save_pretrained(folder)
    return folder


def engine_maker(loaded: LoadedModel, model: str, **settings: Any) -> Callable[[], ph.Engine]:
    return lambda: ph.Engine.from_loaded(EngineConfig(model, device="cpu", dtype="float32", **settings), loaded)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=["nano", "smollm-135m"], default="nano")
    parser.add_argument("--documents", type=int, default=20)
    parser.add_argument("--document", type=int, default=600, help="tokens of a document")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    each = -(-(options.document + QUESTION + ANSWER) // BLOCK_SIZE)
    needed = options.documents * each
    small, ample = max(each + 1, needed // 10), 2 * needed + 2 * options.rounds * options.documents * 3
    with tempfile.TemporaryDirectory() as name:
        folder = checkpoint(options.shape, Path(name) / "model")
        loaded = load(EngineConfig(str(folder), device="cpu", dtype="float32", num_threads=torch.get_num_threads()))
        disk = {"num_blocks": small, "disk_cache": str(Path(name) / "kv")}
        settings: dict[str, dict[str, Any]] = {
            "none": {"num_blocks": small},
            "host": {"num_blocks": small, "host_memory_bytes": 4 << 30},
            "disk": disk,
            "restart": disk,
            "ample": {"num_blocks": ample},
        }
        make = {name: engine_maker(loaded, str(folder), **chosen) for name, chosen in settings.items()}
        with make["none"]() as engine:  # what is compiled on first use is not measured
            all_at_once(engine, make_rounds(argparse.Namespace(documents=2, document=100, rounds=1))[0])
        print(f"{platform.machine()}, {torch.get_num_threads()} thread; commit {commit()}; {time.strftime('%Y-%m-%d')}")
        print(
            f"{options.shape}: {options.documents} documents of {options.document} tokens, questions of {QUESTION}; "
            f"{needed} blocks needed, pool of {small}"
        )
        print("\n".join(run(make, make_rounds(options), options.rounds)))


if __name__ == "__main__":
    main()
