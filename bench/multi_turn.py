"""Time to first token over the turns of a chat: does it grow with what has been said?

    python bench/multi_turn.py [--turns 20] [--chats 8] [--message 60] [--reply 60]

The same chats are held under three regimes, alternating: with the replies spliced in as the tokens that were
generated, with replies tokenised anew (what a server does that keeps text only), and without a prefix cache. Replies
are sampled warmly, so their spelling is not always the tokenizer's. Per turn, medians over the chats: milliseconds of
CPU time to the first token, and the share of earlier tokens that were found in the cache (all but the last one could
be: its KV is never needed before).
"""

from __future__ import annotations

import argparse
import statistics
import time
from random import Random

import phloem as ph

WORDS = ["block", "tree", "radix", "token", "prefix", "cache", "lease", "evict", "model", "city", "person", "ticket"]


def hold(engine: ph.Engine, options: argparse.Namespace, seed: int, spliced: bool) -> list[tuple[float, float]]:
    """One chat; (milliseconds to the first token, share of earlier tokens hit) for each turn."""
    random = Random(seed)
    messages: list[dict[str, str]] = [{"role": "system", "content": "Answer briefly."}]
    turns = []
    earlier = 0
    for _ in range(options.turns):
        words = " ".join(random.choice(WORDS) for _ in range(options.message // 3))
        messages.append({"role": "user", "content": words})
        params = ph.SamplingParams(max_tokens=options.reply, temperature=1.2, seed=random.getrandbits(32))
        start = time.process_time()
        chat = engine.encode_chat(messages, namespace=str(seed))
        token_ids = chat.token_ids if spliced else engine.tokenizer.apply_chat_template(messages)
        stream = engine.stream(token_ids, params, conversation=chat.text, namespace=str(seed))
        first = next(stream)
        milliseconds = 1000 * (time.process_time() - start)
        deltas = [first, *stream]
        ids = [token for delta in deltas for token in delta.token_ids]
        hit = first.usage.cached_tokens / (earlier - 1) if earlier > 1 else 1.0
        turns.append((milliseconds, min(hit, 1.0)))
        earlier = len(token_ids) + len(ids) - (ids[-1] in engine.tokenizer.eos_ids)
        messages.append({"role": "assistant", "content": "".join(delta.text for delta in deltas)})
    return turns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--chats", type=int, default=8)
    parser.add_argument("--message", type=int, default=60, help="tokens of a user's message, about")
    parser.add_argument("--reply", type=int, default=60, help="tokens of a reply, at most")
    options = parser.parse_args()
    cached, plain = ph.Engine("nano"), ph.Engine("nano", prefix_cache=False)
    regimes = {"spliced": (cached, True), "tokenised anew": (cached, False), "no cache": (plain, True)}
    for engine, spliced in regimes.values():
        hold(engine, options, -1, spliced)
    runs: dict[str, list[list[tuple[float, float]]]] = {name: [] for name in regimes}
    for seed in range(options.chats):
        for name, (engine, spliced) in regimes.items():
            engine.flush_cache()
            runs[name].append(hold(engine, options, seed, spliced))
    print("| turn | " + " | ".join(f"{name}, ms | hit" for name in regimes) + " |")
    print("|--:|" + "--:|--:|" * len(regimes))
    for turn in range(options.turns):
        if turn < 2 or turn % 3 == 1 or turn == options.turns - 1:
            cells = []
            for name in regimes:
                at_turn = [run[turn] for run in runs[name]]
                hit = statistics.mean(share for _, share in at_turn)
                cells.append(f"{statistics.median(ms for ms, _ in at_turn):.2f} | {100 * hit:.1f} %")
            print(f"| {turn + 1} | " + " | ".join(cells) + " |")
    worst = min(share for run in runs["spliced"] for _, share in run)
    print(f"worst hit of any spliced turn: {100 * worst:.2f} %")
    if worst < 1:
        raise SystemExit("a spliced turn computed something twice")


if __name__ == "__main__":
    main()
