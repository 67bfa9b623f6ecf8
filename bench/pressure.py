"""Throughput when the KV pool is too small for the load: does it fall smoothly?

    python bench/pressure.py [--requests 64] [--prompt 120] [--shared 200] [--max-tokens 160] [--rounds 3]

All requests arrive at once: a shared prefix, a prompt of their own, and an answer that grows in the pool. Answers are
"fixed": as long as allowed, which the engine can see; "unknown": as long, but for all that it knows they might end any
time; or "read": their readers leave after a length drawn between an eighth of what is allowed and all of it.

"needed" is what all of them hold together at the end. For each share of it, alternating over the rounds: tokens per
second of CPU time (median), and for the first round and the worst of those after it preemptions and the tokens
computed for each token that had to be computed; the greatest number of requests that ran at once, and the steps of the
last round: each costs something however few are in it. Steps are no measure of admission in a single pool: a block
more or less delays some request by as many steps as a block has tokens, and the last request by a whole
answer, as in any schedule that begins what fits (Graham, 1969). The engines are cold in the first round: they know
nothing of how long answers are. Every pool must give the same text; the script fails if one does not.
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


def serve(
    engine: ph.Engine, prompts: list[list[int]], params: ph.SamplingParams, lengths: list[int]
) -> tuple[list[list[int]], int]:
    """The tokens that each reader has read, and the greatest number of requests that ran at once.

    A request that leaves has read its length, though its last step may have brought more: drafts that were right.
    """
    names = {engine.core.add(prompt, params): index for index, prompt in enumerate(prompts)}
    output: list[list[int]] = [[] for _ in prompts]
    most = 0
    while engine.core.has_work:
        for delta in engine.core.step():
            index = names[delta.request_id]
            output[index] += delta.token_ids
            if delta.finish_reason is None and len(output[index]) >= lengths[index]:
                engine.core.abort(delta.request_id)
        most = max(most, engine.statistics().num_running)
    return [tokens[:length] for tokens, length in zip(output, lengths, strict=False)], most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--shared", type=int, default=200, help="tokens of the shared prefix")
    parser.add_argument("--prompt", type=int, default=120, help="mean tokens of each prompt's own part")
    parser.add_argument("--max-tokens", type=int, default=160, help="tokens generated for each request")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--answers", choices=["fixed", "unknown", "read"], default="fixed")
    parser.add_argument("--policy", default="lru", help="eviction policy")
    options = parser.parse_args()
    params = ph.SamplingParams(
        max_tokens=options.max_tokens,
        temperature=0.0,
        ignore_eos=True,
        stop=() if options.answers == "fixed" else ("never said, so the length is not known",),
    )
    lengths = [options.max_tokens] * options.requests
    if options.answers == "read":
        random = Random(1)
        lengths = [random.randrange(options.max_tokens // 8, options.max_tokens) for _ in lengths]
    with ph.Engine("nano") as engine:
        prompts = make_prompts(engine, options)
        serve(engine, prompts[:2], params, lengths)  # what is compiled on first use is not measured
    block_size = 16
    sizes = [len(prompt) - options.shared + length for prompt, length in zip(prompts, lengths, strict=True)]
    needed = sum(-(-size // block_size) + 1 for size in sizes) + options.shared // block_size
    least = options.shared + sum(size - 1 for size in sizes)
    print(f"{options.requests} requests, {needed} blocks of {block_size} needed; {least} tokens to compute at least")
    # rows of drafts that are not taken would count as tokens computed twice
    settings = {"eviction_policy": options.policy, "max_running_requests": 256, "lookup_drafts": False}
    engines = {share: ph.Engine("nano", num_blocks=int(needed * share), **settings) for share in SHARES}
    rates: dict[float, list[float]] = {share: [] for share in SHARES}
    rows: dict[float, list[tuple[int, float, int, int]]] = {share: [] for share in SHARES}
    texts: dict[float, list[list[int]]] = {}
    for number in range(options.rounds):
        for share, engine in sorted(engines.items(), reverse=number % 2 == 0):
            engine.flush_cache()
            before = engine.statistics()
            start = time.process_time()
            texts[share], most = serve(engine, prompts, params, lengths)
            rates[share].append(sum(lengths) / (time.process_time() - start))
            after = engine.statistics()
            computed = after.num_computed_tokens - before.num_computed_tokens
            rows[share].append(
                (
                    after.num_preemptions - before.num_preemptions,
                    computed / least,
                    most,
                    after.num_steps - before.num_steps,
                )
            )
    print(
        "| pool | blocks | tok/s (CPU) | of full | preempted, cold | computed / least | then | | most at once | steps |"
    )
    print("|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    full = statistics.median(rates[1.0])
    for share in SHARES:
        rate = statistics.median(rates[share])
        cold, *later = rows[share]
        then = f"{max(row[0] for row in later)} | {max(row[1] for row in later):.3f}" if later else "|"
        print(
            f"| {share:.2f} | {int(needed * share)} | {rate:.0f} | {rate / full:.2f} | {cold[0]} | {cold[1]:.3f} "
            f"| {then} | {max(row[2] for row in rows[share])} | {rows[share][-1][3]} |"
        )
    different = [share for share in SHARES if texts[share] != texts[1.0]]
    if different:
        raise SystemExit(f"the text differs at {different}")
    print("same text at every size")


if __name__ == "__main__":
    main()
