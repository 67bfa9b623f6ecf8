"""Time between tokens of requests that are answering while long prompts come in: with a target for steps and without.

    python bench/studies/inter_token.py [--decoding 8] [--prompts 6] [--length 3750] [--chunk 256] [--rounds 3]

A few requests decode; every so often a long prompt arrives that no request had before. Three regimes alternate over
the rounds, on the same prompts: "target", the default, where the chunk of a prompt in a step is chosen by what prompts
were measured to cost (`target_step_seconds`); "fixed", chunks of `--chunk` tokens; "none", steps of the default
`max_batch_tokens`, for which all others wait. Printed are milliseconds of CPU time between two tokens of a decoding
request (median, 99th percentile, worst), the time to the first token of the long prompts, and the whole run: what
chunks cost; then the ratios.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from dataclasses import dataclass, field
from random import Random

import phloem as ph


@dataclass
class Timing:
    """Milliseconds of CPU time."""

    gaps: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)


def play(engine: ph.Engine, prompts: list[list[int]], options: argparse.Namespace, timing: Timing) -> list[list[int]]:
    """One run; returns the tokens of every request, in the order in which they were added."""
    engine.flush_cache()
    arrive_every = options.tokens // (len(prompts) + 1)
    decoding = ph.SamplingParams(max_tokens=options.tokens, temperature=0.0, ignore_eos=True)
    order = [engine.core.add([20 + i] * 8, decoding) for i in range(options.decoding)]
    decodes = set(order)
    tokens: dict[str, list[int]] = {name: [] for name in order}
    last: dict[str, float] = {}
    arrived: dict[str, float] = {}
    coming = list(prompts)
    start = time.process_time()
    while engine.core.has_work:
        if coming and len(tokens[order[0]]) >= arrive_every * (len(prompts) - len(coming) + 1):
            name = engine.core.add(coming.pop(0), ph.SamplingParams(max_tokens=4, temperature=0.0, ignore_eos=True))
            order.append(name)
            tokens[name] = []
            arrived[name] = time.process_time()
        deltas = engine.core.step()
        now = time.process_time()
        for delta in deltas:
            name = delta.request_id
            tokens[name] += delta.token_ids
            if name in decodes:
                if name in last:
                    timing.gaps.append(1e3 * (now - last[name]))
                last[name] = now
            elif name in arrived:
                timing.first.append(1e3 * (now - arrived.pop(name)))
    timing.whole.append(1e3 * (time.process_time() - start))
    return [tokens[name] for name in order]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decoding", type=int, default=8, help="requests that decode")
    parser.add_argument("--tokens", type=int, default=160, help="tokens that each of them generates")
    parser.add_argument("--prompts", type=int, default=6, help="long prompts that come in")
    parser.add_argument("--length", type=int, default=3750, help="tokens of each")
    parser.add_argument("--chunk", type=int, default=256, help="tokens of a chunk where it is fixed")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    settings = {"device": "cpu", "num_blocks": 4096, "lookup_drafts": False}  # a token a step
    engines = {
        "target": ph.Engine("nano", **settings),
        "fixed": ph.Engine("nano", max_batch_tokens=options.chunk, target_step_seconds=math.inf, **settings),
        "none": ph.Engine("nano", target_step_seconds=math.inf, **settings),
    }
    random = Random(0)
    size = engines["none"].tokenizer.vocab_size
    prompts = [[random.randrange(16, size) for _ in range(options.length)] for _ in range(options.prompts)]
    for engine in engines.values():
        play(engine, prompts[:1], options, Timing())
    timings = {name: Timing() for name in engines}
    for _ in range(options.rounds):
        texts = {name: play(engine, prompts, options, timings[name]) for name, engine in engines.items()}
        if not texts["target"] == texts["fixed"] == texts["none"]:
            raise SystemExit("the regimes answer differently")
    print(
        f"{options.decoding} decodes of {options.tokens} tokens, {options.prompts} prompts of {options.length} tokens"
    )
    print("| prefill | between tokens: median, ms | p99, ms | worst, ms | first token, ms | run, ms |")
    print("|:--|--:|--:|--:|--:|--:|")
    for name, timing in timings.items():
        p99 = statistics.quantiles(timing.gaps, n=100)[98]
        print(
            f"| {name} | {statistics.median(timing.gaps):.2f} | {p99:.2f} | {max(timing.gaps):.2f}"
            f" | {statistics.median(timing.first):.1f} | {statistics.median(timing.whole):.0f} |"
        )
    none = timings["none"]
    for name in ("target", "fixed"):
        timing = timings[name]
        print(
            f"{name} / none: worst gap {max(timing.gaps) / max(none.gaps):.2f},"
            f" first token {statistics.median(timing.first) / statistics.median(none.first):.2f},"
            f" run {statistics.median(timing.whole) / statistics.median(none.whole):.2f}"
        )
    print("same tokens in all")


if __name__ == "__main__":
    main()
