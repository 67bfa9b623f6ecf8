"""First masks, masks and advances, ours and llguidance's: case by case in turns, in one process.

    PYTHONPATH=bench:FOLDER python bench/studies/mask_turns.py CASES TOKENIZER [--reads matcher | ordered]
        [--sample 400]

The yardstick of `maskbench_adapter` (`maskbench.py`, in FOLDER) runs one engine after the other. If the clock wanders
they meet different clocks, and it is the clocks that are compared. Here both take every case at once, and which of them
goes first alternates. CPU time, in microseconds; the ratio is the median over the cases that both compile.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import maskbench


def first_mask(engine: Any, schema: Any) -> tuple[float, Any, Any]:
    """Microseconds from the schema to its first mask; what was compiled, and a matcher at its beginning."""
    begin = time.process_time_ns()
    compiled = engine.schema(schema)
    matcher = engine.start(compiled)
    matcher.mask()
    return (time.process_time_ns() - begin) / 1e3, compiled, matcher


def walk_all(engine: Any, compiled: Any, matcher: Any, texts: list[list[int]], eos: int, record: Any) -> None:
    """Walks every text; the times are added to `record`."""
    for number, token_ids in enumerate(texts):
        if number:
            if hasattr(matcher, "reset"):
                matcher.reset()
            else:
                matcher = engine.start(compiled)
        maskbench.walk(matcher, token_ids, eos, record)


def at(values: list[float], share: float) -> float:
    """The value that so large a share of them does not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases")
    parser.add_argument("tokenizer")
    parser.add_argument("--reads", choices=["matcher", "ordered", "strict"], default="matcher")
    parser.add_argument("--sample", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    tokenizer = maskbench.Tok(options.tokenizer)
    names = ["llguidance", f"project:maskbench_adapter:{options.reads}"]
    engines = [maskbench.make_engine(name, tokenizer, {}) for name in names]
    records: list[dict[str, list[int]]] = [{key: [] for key in ("mask", "mask_cpu", "adv", "adv_cpu")} for _ in names]
    firsts: list[dict[int, float]] = [{} for _ in names]
    for number, case in enumerate(maskbench.take_sample(options.cases, options.sample, options.seed)):
        texts = [tokenizer.encode(maskbench.render(test["data"], "compact")) for test in case["tests"]]
        for side in (0, 1) if number % 2 else (1, 0):
            try:
                firsts[side][number], compiled, matcher = first_mask(engines[side], case["schema"])
            except Exception:  # it refuses the schema, in one of several ways
                continue
            walk_all(engines[side], compiled, matcher, texts, tokenizer.eos, records[side])
    print(f"{'':36}{'first mask p50, p99, max':>28}{'mask p50, p99, mean, max':>32}{'advance p50, mean':>20}")
    for name, found, record in zip(names, firsts, records, strict=True):
        first, masks, advances = (
            list(found.values()),
            *([t / 1e3 for t in record[key]] for key in ("mask_cpu", "adv_cpu")),
        )
        print(
            f"{name:36}{at(first, 0.5):>12,.0f}{at(first, 0.99):>8,.0f}{max(first):>8,.0f}"
            f"{at(masks, 0.5):>10.1f}{at(masks, 0.99):>7,.0f}{statistics.mean(masks):>7.1f}{max(masks):>8,.0f}"
            f"{at(advances, 0.5):>12.2f}{statistics.mean(advances):>8.2f}"
        )
    both = firsts[0].keys() & firsts[1].keys()
    ratio = statistics.median(firsts[1][number] / firsts[0][number] for number in both)
    print(f"median ratio of first masks over {len(both)} cases that both compile: {ratio:.3f}")


if __name__ == "__main__":
    main()
