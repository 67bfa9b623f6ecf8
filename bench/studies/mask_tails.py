"""The longest pauses of constraints: compiling, the first mask after it, single masks, and collections of garbage.

    PYTHONPATH=bench:FOLDER python bench/studies/mask_tails.py CASES TOKENIZER [--reads matcher | ordered]

FOLDER has the yardstick of `maskbench_adapter` (`maskbench.py`). Every case is compiled and its texts are walked, as in
a server: warmed up, with its settings of the collector. Compiling is the work of the thread that submits a request;
masks are made by the thread of the engine's steps. CPU time of the thread, in microseconds, without that of
collections; `crc` is of all masks, so that two trees can be compared.
"""

from __future__ import annotations

import argparse
import collections
import gc
import json
import time
import zlib
from pathlib import Path

import maskbench
import maskbench_adapter

from phloem.errors import ConstraintError

SHARES = 0.5, 0.9, 0.95, 0.99, 1.0


class Clock:
    """CPU time of this thread without collections, which are noted by what was being done."""

    def __init__(self) -> None:
        self.doing = ""
        self.times: dict[str, list[int]] = collections.defaultdict(list)
        self.collections: dict[tuple[str, int], list[int]] = collections.defaultdict(list)
        self._collected = self._begin = 0
        gc.callbacks.append(self._note)

    def _note(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._begin = time.thread_time_ns()
            return
        spent = time.thread_time_ns() - self._begin
        self._collected += spent
        self.collections[self.doing, info["generation"]].append(spent)

    def now(self) -> int:
        return time.thread_time_ns() - self._collected

    def took(self, since: int) -> None:
        """Notes what took from then until now."""
        self.times[self.doing].append(self.now() - since)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path)
    parser.add_argument("tokenizer")
    parser.add_argument("--reads", choices=["matcher", "ordered", "strict"], default="matcher")
    options = parser.parse_args()
    tokenizer = maskbench.Tok(options.tokenizer)
    engine = getattr(maskbench_adapter, options.reads)
    engine.prepare(tokenizer.vocab, tokenizer.eos)
    clock, crc, num_refused = Clock(), 0, 0
    for path in sorted(options.cases.glob("*.json")):
        case = json.loads(path.read_text())
        texts = [tokenizer.encode(maskbench.render(test["data"], "compact")) for test in case["tests"]]
        clock.doing, begin = "compile", clock.now()
        try:
            matcher = engine(case["schema"], tokenizer.vocab, tokenizer.eos)
        except ConstraintError:
            num_refused += 1
            continue
        clock.took(begin)
        clock.doing, begin = "first mask", clock.now()
        matcher.mask()
        clock.took(begin)
        clock.doing = "mask"
        for token_ids in texts:
            matcher.reset()
            for token_id in token_ids:
                begin = clock.now()
                row = matcher.mask()
                clock.took(begin)
                crc = zlib.crc32(row, crc)
                if not matcher.advance(token_id):
                    break
    print(f"{'':12}{'number':>9}" + "".join(f"{share:>10.0%}" for share in SHARES) + f"{'sum, ms':>10}")
    for name, times in clock.times.items():
        ordered = sorted(times)
        at = [ordered[min(len(ordered) - 1, int(share * len(ordered)))] / 1e3 for share in SHARES]
        print(f"{name:12}{len(times):>9,}" + "".join(f"{time:>10,.1f}" for time in at) + f"{sum(times) / 1e6:>10,.0f}")
    for (name, generation), times in sorted(clock.collections.items()):
        longest = f"the longest {max(times) / 1e6:.1f} ms, in all {sum(times) / 1e6:.0f} ms"
        print(f"collections of generation {generation} while {name or 'loading'}: {len(times)}, {longest}")
    print(
        f"refused: {num_refused}; crc of all masks: {crc:08x}; objects in sight at the end: {len(gc.get_objects()):,}"
    )


if __name__ == "__main__":
    main()
