"""Time to first token over the turns of a chat: does it grow with what has been said?

    python bench/multi_turn.py [--turns 20] [--chats 8] [--message 60] [--reply 60]

The same chats are held under three regimes, alternating: with the replies spliced in as the tokens that were
generated, with replies tokenised anew (what a server does that keeps text only), and without a prefix cache. Replies
are sampled warmly, so their spelling is not always the tokenizer's. Per turn, medians over the chats: milliseconds of
CPU time to the first token, and the share of earlier tokens that were found in the cache (all but the last one could
be: its KV is never needed before).

A second table says where the time of the spliced turns goes: rendering the template and putting together the token ids,
checking the request, looking up the prefix and leasing it, attention, and all else in the step. The new tokens attend
to all of the history, so attention cannot be flat; the last column is a step of as many tokens that have no history, in
the same run.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from random import Random
from typing import Any

import phloem as ph
from phloem.kernels import ops

PARTS = ("render and splice", "prepare", "match", "attention", "the rest of the step")
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


class Timer:
    """Adds up the milliseconds of CPU time that calls of one function take."""

    def __init__(self, owner: Any, name: str) -> None:
        self._owner, self._name, self._function = owner, name, getattr(owner, name)
        self.spent = 0.0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        start = time.process_time()
        try:
            return self._function(*args, **kwargs)
        finally:
            self.spent += 1000 * (time.process_time() - start)

    def __enter__(self) -> Timer:
        setattr(self._owner, self._name, self)
        return self

    def __exit__(self, *_: object) -> None:
        setattr(self._owner, self._name, self._function)


def split(engine: ph.Engine, options: argparse.Namespace, seed: int) -> list[list[float]]:
    """One chat; for each turn the milliseconds of `PARTS`, and of computing as many tokens without a history."""
    random = Random(seed)
    messages: list[dict[str, str]] = [{"role": "system", "content": "Answer briefly."}]
    turns = []
    for _ in range(options.turns):
        messages.append(
            {"role": "user", "content": " ".join(random.choice(WORDS) for _ in range(options.message // 3))}
        )
        params = ph.SamplingParams(max_tokens=options.reply, temperature=1.2, seed=random.getrandbits(32))
        with Timer(engine.prefix_cache, "lease") as lease, Timer(ops, "attention") as attention:
            times = [time.process_time()]
            chat = engine.encode_chat(messages, namespace=str(seed))
            times.append(time.process_time())
            prepared = engine.prepare(chat.token_ids, params, conversation=chat.text, namespace=str(seed))
            times.append(time.process_time())
            engine.enqueue(prepared)
            deltas = engine.step()
            times.append(time.process_time())
        while engine.has_work:
            deltas += engine.step()
        messages.append({"role": "assistant", "content": "".join(delta.text for delta in deltas)})
        num_new = len(chat.token_ids) - deltas[0].usage.cached_tokens
        engine.enqueue(engine.prepare(chat.token_ids[-num_new:], ph.SamplingParams(max_tokens=1), namespace="alone"))
        start = time.process_time()
        engine.step()
        alone = 1000 * (time.process_time() - start)
        encode, prepare, step = (1000 * (after - before) for before, after in itertools.pairwise(times))
        rest = step - lease.spent - attention.spent
        turns.append([encode, prepare, lease.spent, attention.spent, rest, alone])
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
    print("\n| turn | " + " | ".join(f"{part}, ms" for part in PARTS) + " | a step without history, ms |")
    print("|--:|" + "--:|" * (len(PARTS) + 1))
    cached.flush_cache()
    parts = [split(cached, options, seed) for seed in range(options.chats)]
    for turn in range(options.turns):
        if turn < 2 or turn % 3 == 1 or turn == options.turns - 1:
            medians = [statistics.median(chat[turn][part] for chat in parts) for part in range(len(PARTS) + 1)]
            print(f"| {turn + 1} | " + " | ".join(f"{median:.2f}" for median in medians) + " |")
    worst = min(share for run in runs["spliced"] for _, share in run)
    print(f"worst hit of any spliced turn: {100 * worst:.2f} %")
    if worst < 1:
        raise SystemExit("a spliced turn computed something twice")


if __name__ == "__main__":
    main()
