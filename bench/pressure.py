"""Throughput when the KV pool is too small for what is asked: does it fall smoothly?

    python bench/pressure.py [--requests 64] [--prompt 120] [--shared 200] [--max-tokens 160] [--rounds 3]

All requests arrive at once: a shared prefix, a prompt of their own, and an answer of fixed length that grows in the
pool. "needed" is what all of them hold together at the end. For each share of it, alternating over the rounds: tokens
per second of CPU time (median), preemptions, the tokens computed for each token that had to be computed, and the
greatest number of requests that ran at once. Every pool must give the same text; the script fails if one does not.
"""

from __future__ import annotations

import argparse
import statistics
import time
from random import Random

import phloem as ph

SHARES = (1.0, 0.75, 0.5, 0.35, 0.25, 0.15, 0.1)


def make_prompts(engine: ph.Engine, options: argparse.Namespace) -> list[list[int]]:
    random = Random(0)
    size = engine.tokenizer.vocab_size

    def draw(count: int) -> list[int]:
        return [random.randrange(16, size) for _ in range(count)]

    shared = draw(options.shared)
    least, most = options.prompt // 2, options.prompt * 3 // 2
    return [shared + draw(random.randrange(least, most)) for _ in range(options.requests)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--shared", type=int, default=200, help="tokens of the shared prefix")
    parser.add_argument("--prompt", type=int, default=120, help="mean tokens of each prompt's own part")
    parser.add_argument("--max-tokens", type=int, default=160, help="tokens generated for each request")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--policy", default="lru", help="eviction policy")
    options = parser.parse_args()
    params = ph.SamplingParams(max_tokens=options.max_tokens, temperature=0.0, ignore_eos=True)
    with ph.Engine("nano") as engine:
        prompts = make_prompts(engine, options)
    block_size = 16
    own = sum(-(-(len(prompt) - options.shared + options.max_tokens) // block_size) + 1 for prompt in prompts)
    needed = own + options.shared // block_size
    least = options.shared + sum(len(p) - options.shared + options.max_tokens - 1 for p in prompts)
    print(f"{options.requests} requests, {needed} blocks of {block_size} needed; {least} tokens to compute at least")
    settings = {"eviction_policy": options.policy, "max_running_requests": 256}
    engines = {share: ph.Engine("nano", num_blocks=int(needed * share), **settings) for share in SHARES}
    rates: dict[float, list[float]] = {share: [] for share in SHARES}
    rows: dict[float, tuple[int, float, int]] = {}
    texts: dict[float, list[tuple[int, ...]]] = {}
    for _ in range(options.rounds):
        for share, engine in engines.items():
            engine.flush_cache()
            before = engine.statistics()
            start = time.process_time()
            order = [engine.add(prompt, params) for prompt in prompts]
            output: dict[str, list[int]] = {name: [] for name in order}
            most = 0
            while engine.has_work:
                for delta in engine.step():
                    output[delta.request_id] += delta.token_ids
                most = max(most, engine.statistics().num_running)
            rates[share].append(options.requests * options.max_tokens / (time.process_time() - start))
            after = engine.statistics()
            computed = after.num_computed_tokens - before.num_computed_tokens
            rows[share] = after.num_preemptions - before.num_preemptions, computed / least, most
            texts[share] = [tuple(output[name]) for name in order]
    print("| pool | blocks | tok/s (CPU) | of full | preemptions | computed / least | most at once |")
    print("|--:|--:|--:|--:|--:|--:|--:|")
    full = statistics.median(rates[1.0])
    for share in SHARES:
        rate = statistics.median(rates[share])
        preemptions, factor, most = rows[share]
        blocks = int(needed * share)
        print(f"| {share:.2f} | {blocks} | {rate:.0f} | {rate / full:.2f} | {preemptions} | {factor:.3f} | {most} |")
    different = [share for share in SHARES if texts[share] != texts[1.0]]
    if different:
        raise SystemExit(f"the text differs at {different}")
    print("same text at every size")


if __name__ == "__main__":
    main()
