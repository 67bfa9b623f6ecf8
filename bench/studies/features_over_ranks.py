"""What several ranks say beside one, by what is asked of them: models whose layers differ, or keep states.

    OMP_NUM_THREADS=1 python bench/studies/features_over_ranks.py [--only gemma3n]

Random checkpoints of the tests with the bundled vocabulary. 64 greedy tokens each of five prompts that begin alike (15
where requests shall be preempted), with one, two and four ranks in the same settings. "other" counts tokens that differ
from one rank's, "apart" is the largest difference of a log-probability before the first of them; "hit = miss" whether
the same prompts say the same again, to the bit, with that many tokens from the cache and of these from host memory.
Takes some minutes.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import phloem as ph

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))

from runtime.fakes import expect_short_answers
from runtime.models.decoder_cases import CASES
from runtime.models.oracle import save_random_model
from runtime.models.saved_adapters import save_adapter
from tensor_parallel import CPU, of_eight

from phloem.runtime.config import EngineConfig
from phloem.runtime.engine.engine import Engine
from phloem.runtime.execute.loading import load
from phloem.runtime.models import ModelConfig, resolve_model
from phloem.runtime.parallel.rank_processes import RankProcesses

MODELS = ("gemma3n", "gemma4-small", "gemma4-moe", "granite-hybrid")
ADAPTER, PLACES = "one", r".*layers\.\d+\.self_attn\.(q|o)_proj"
WAYS: dict[str, dict[str, Any]] = {
    "chunks of 13, preempted": {"max_batch_tokens": 13, "num_blocks": 44},
    "int8 keys, host memory below": {"kv_dtype": "int8", "host_memory_bytes": 64 << 20, "num_blocks": 60},
    "drafts of itself, a regex": {"speculative_model": ""},
    "an adapter": {"adapters": {}},
}
PARAMS = ph.SamplingParams(max_tokens=64, temperature=0.0, ignore_eos=True, logprobs=0, stop="never said")
Said = list[list[tuple[int, float]]]


def prompts(times: int) -> list[list[int]]:
    """Five that begin alike, n times with other ends."""
    source = random.Random(3)
    shared = [source.randrange(300, 1200) for _ in range(60)]
    cuts = (0, 20, 31, 50, 60) * times
    return [shared[:cut] + [source.randrange(300, 1200) for _ in range(9)] for cut in cuts]


def answers(
    folder: Path, way: str, options: dict[str, Any], ranks: RankProcesses | None
) -> tuple[Said, Said, tuple[int, int, int]]:
    """What was said, and the same again; preemptions, and the second time's tokens from the cache and from a tier."""
    has_states = ModelConfig.from_folder(folder).recurrent is not None
    settings: dict[str, Any] = {"block_size": 4, "num_blocks": 600, **options}
    if "speculative_model" in settings and has_states:
        del settings["speculative_model"]  # states cannot be taken back
    elif "speculative_model" in settings:
        settings["speculative_model"] = str(folder)
    if "adapters" in settings:
        settings["adapters"] = {ADAPTER: str(folder / ADAPTER)}
    config = EngineConfig(
        str(folder),
        device="cpu",
        check_invariants=True,
        tensor_parallel_size=1 if ranks is None else ranks.size,
        **settings,
    )
    constraint = ph.regex("([a-z ]{3,9}, )*") if "regex" in way else None
    with Engine.from_loaded(config, load(config, None, ranks)) as engine:
        if "preempted" in way:
            expect_short_answers(engine)
        asked = prompts(3 if "preempted" in way else 1)
        found, cached = [], 0
        for _ in range(2):
            done = engine.generate(asked, PARAMS, constraint, adapter=ADAPTER if "adapters" in settings else None)
            found.append([[(one.token_id, one.logprob) for one in each.logprobs] for each in done])
            cached = sum(one.usage.cached_tokens for one in done)
            tiers = engine.prefix_cache.tiers
            if tiers is not None:
                tiers.settle()
                tiers.loads.cost.prefill.seconds_per_operation = 1.0  # it always pays
        loaded = sum(one.usage.loaded_tokens for one in done)
        return found[0], found[1], (engine.statistics().num_preemptions, cached, loaded)


def compare(found: Said, expected: Said) -> tuple[int, float]:
    """Tokens that are others, and how far apart log-probabilities are before the first of them."""
    others, apart = 0, 0.0
    for mine, its in zip(found, expected, strict=True):
        same = [a[0] == b[0] for a, b in zip(mine, its, strict=True)]
        first = same.index(False) if False in same else len(same)
        others += same.count(False)
        apart = max([apart, *(abs(a[1] - b[1]) for a, b in zip(mine[:first], its[:first], strict=True))])
    return others, apart


def rows(name: str, folder: Path, ways: list[str], processes: dict[int, RankProcesses]) -> Iterator[str]:
    for way in ways:
        options = WAYS[way]
        alone = answers(folder, way, options, None)[0]
        for size, ranks in processes.items():
            found, again, counts = answers(folder, way, options, ranks)
            others, apart = compare(found, alone)
            same = "yes" if found == again else "no"
            numbers = "".join(f"{number:>11,}" for number in counts)
            yield f"  {name:<16}{way:<30}{size:>5}{others:>7}{apart:>9.1e}{same:>12}{numbers}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="models and ways in whose names this text is")
    only = parser.parse_args().only
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    processes = {size: RankProcesses(size, CPU, 30.0, outlives_engine=True) for size in (2, 4)}
    columns = f"{'preempted':>11}{'cached':>11}{'loaded':>11}"
    print(f"  {'':<46}{'ranks':>5}{'other':>7}{'apart':>9}{'hit = miss':>12}{columns}")
    for name in MODELS:
        ways = [way for way in WAYS if only in f"{name}, {way}"]
        if not ways:
            continue
        with tempfile.TemporaryDirectory() as place:
            folder, (kind, options) = Path(place), CASES[name]
            model = save_random_model(folder, kind, of_eight({**options, "vocab_size": 1280}))
            for file in ("tokenizer.model", "tokenizer_config.json"):
                shutil.copy(resolve_model("nano") / file, folder)
            save_adapter(folder / ADAPTER, model, PLACES, {}, target_modules=["q_proj", "o_proj"])
            for row in rows(name, folder, ways, processes):
                print(row, flush=True)
    for one in processes.values():
        one.close()


if __name__ == "__main__":
    main()
