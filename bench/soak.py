"""Twenty thousand mixed requests through a pool that is far too small: does memory stay flat, and is nothing lost?

    python bench/soak.py [--requests 20000] [--blocks 64] [--seed 0] [--seconds …]

Chats that grow and begin anew, n samples of one prompt, forks of requests under way, constraints, priorities, pins,
explanations, scores with alternatives, deadlines, long outputs where short ones were expected, prompts that need nearly
the whole pool (for which pins have to go), and one request in eight aborted at a random moment, all at once over the
bundled model. Twenty times on the way the accounting of the pool is audited, and memory,
hit rate and preemptions are printed. A sample of the requests that ran to their end is computed again by an engine
without a cache, alone, and must have the same tokens.

An engine remembers replies, recent traffic and constraints up to bounds (`Monitor.kept_bytes`). The warm-up is over
when what it remembers has stopped growing: replies and traffic have reached their bounds. Resident memory after that
must not be more than `--tolerance` above the first figure after it.

Fails if the audit does, if a text differs, if a block is missing at the end, or if memory grows after the warm-up.
"""

from __future__ import annotations

import argparse
import gc
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import phloem as ph

WORDS = ["block", "tree", "radix", "token", "prefix", "cache", "lease", "evict", "model", "city", "person", "ticket"]
SYSTEMS = ["Answer briefly.", "You read documents. Answer briefly, or give JSON. " * 3, "Say it in one word. " * 8]
CONSTRAINTS = [
    ph.choice(["yes", "no", "perhaps"]),
    ph.regex(r"[a-z]{2,5}-\d{3}"),
    ph.json_schema({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}),
]
NUM_CHATS = 32
MAX_TURNS = 5
MAX_OPEN = 24  # requests in the engine at a time
REPLY_BYTES = 1 << 20


@dataclass
class Open:
    """A request on its way.

    Attributes:
        inherited: what its parent had said when it was forked.
        chat_index: of the chat that its reply continues.
        steps_left: before it is aborted.
    """

    prompt: list[int]
    sampling: ph.SamplingParams
    constraint: ph.ConstraintSpec | None
    chat: list[dict[str, str]]
    chat_index: int | None = None
    steps_left: int | None = None
    inherited: list[int] = field(default_factory=list)
    tokens: dict[int, list[int]] = field(default_factory=dict)
    text: str = ""
    num_open: int = 1


@dataclass
class Tally:
    """What came of all requests."""

    num_ended: int = 0
    num_aborted: int = 0
    num_forked: int = 0
    num_late: int = 0
    num_evicted_reports: int = 0
    num_checked: int = 0
    num_different: int = 0


def resident_bytes() -> int:
    """Resident memory of this process now."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


class Soak:
    """Feeds one engine; `plain` says what is right, for one request in `sampled`."""

    def __init__(self, engine: ph.Engine, plain: ph.Engine, seed: int, sampled: int) -> None:
        self.engine = engine
        self.plain = plain
        self.sampled = sampled
        self.random = Random(seed)
        self.chats: list[list[dict[str, str]]] = [self._new_chat() for _ in range(NUM_CHATS)]
        self.busy: set[int] = set()
        self.open: dict[str, Open] = {}
        self.tally = Tally()
        self.num_started = 0

    def _new_chat(self) -> list[dict[str, str]]:
        return [{"role": "system", "content": self.random.choice(SYSTEMS)}]

    def start(self) -> None:
        """One more request of a random kind."""
        random, engine = self.random, self.engine
        idle = [index for index in range(NUM_CHATS) if index not in self.busy]
        index = random.choice(idle)
        messages = self.chats[index]
        if len(messages) > 2 * MAX_TURNS:
            messages = self.chats[index] = self._new_chat()
        words = " ".join(random.choice(WORDS) for _ in range(random.randrange(2, 16)))
        asked = [*messages, {"role": "user", "content": words}]
        namespace = f"tenant {index % 3}"
        chat = engine.encode_chat(asked, namespace=namespace)
        constraint = random.choice(CONSTRAINTS) if random.random() < 0.25 else None
        is_long = constraint is None and random.random() < 0.1
        sampling = ph.SamplingParams(
            max_tokens=random.randrange(12, 18) if constraint else 100 if is_long else random.randrange(2, 60),
            temperature=random.choice([0.0, 0.8, 1.2]),
            seed=self.num_started,
            n=random.choice([1, 1, 1, 1, 1, 1, 2, 4]),
            ignore_eos=is_long,
        )
        if constraint is None and random.random() < 0.03:
            sampling = replace(sampling, prompt_logprobs_from=1, logprobs=random.choice([0, 3]))
        request_id = engine.core.add(
            chat.token_ids,
            sampling,
            constraint,
            namespace=namespace,
            priority=random.choice([0, 0, 0, 0, 1, 5]),
            pin_ttl=random.choice([0.2, 5.0]) if random.random() < 0.03 else 0.0,
            conversation=chat.text,
            explain_cache=random.random() < 0.1,
            deadline_seconds=random.choice([0.01, 60.0]) if random.random() < 0.02 else None,
        )
        keeps = sampling.n == 1 and constraint is None
        if keeps:
            self.busy.add(index)
        begun = Open(list(chat.token_ids), sampling, constraint, asked, index if keeps else None, self._steps_to_live())
        begun.num_open = sampling.n
        self.open[request_id] = begun
        self.num_started += 1

    def start_large(self) -> None:
        """A prompt that leaves no room for what is pinned."""
        num_tokens = 15 * self.engine.statistics().num_blocks
        prompt = [self.random.randrange(16, self.engine.tokenizer.vocab_size) for _ in range(num_tokens)]
        sampling = ph.SamplingParams(max_tokens=8, temperature=0.0)
        self.open[self.engine.core.add(prompt, sampling)] = Open(prompt, sampling, None, [])
        self.num_started += 1

    def fork(self) -> None:
        """A copy of some request under way, under a seed of its own."""
        candidates = [name for name, request in self.open.items() if request.tokens and request.sampling.n == 1]
        if not candidates:
            return
        name = self.random.choice(candidates)
        parent = self.open[name]
        sampling = replace(parent.sampling, seed=self.num_started)
        (child,) = self.engine.core.fork(name, 1, sampling)
        inherited = list(parent.tokens[0])
        self.open[child] = Open(
            parent.prompt,
            sampling,
            parent.constraint,
            parent.chat,
            steps_left=self._steps_to_live(),
            inherited=inherited,
        )
        self.num_started += 1
        self.tally.num_forked += 1

    def _steps_to_live(self) -> int | None:
        return self.random.randrange(40) if self.random.random() < 0.125 else None

    def step(self) -> None:
        """One step of the engine, and the aborts that are due."""
        for delta in self.engine.core.step():
            request = self.open.get(delta.request_id)
            if request is None:
                continue
            if delta.error is not None:
                if not isinstance(delta.error, ph.DeadlineExceeded):
                    raise delta.error
                self.tally.num_late += 1
                self.engine.core.abort(delta.request_id)
                self._end(delta.request_id)
                continue
            request.tokens.setdefault(delta.index, []).extend(delta.token_ids)
            request.text += delta.text
            if delta.finish_reason is not None:
                request.num_open -= 1
                explanation = delta.usage.cache_explanation
                self.tally.num_evicted_reports += explanation is not None and explanation.reason == "evicted"
                if not request.num_open:
                    self._finish(delta.request_id, request)
        for request_id, request in list(self.open.items()):
            if request.steps_left is not None:
                request.steps_left -= 1
                if request.steps_left < 0:
                    self.engine.core.abort(request_id)
                    self.tally.num_aborted += 1
                    self._end(request_id)

    def _finish(self, request_id: str, request: Open) -> None:
        if request.chat_index is not None:
            reply = {"role": "assistant", "content": request.text}
            self.chats[request.chat_index] = [*request.chat, reply]
        if self.tally.num_ended % self.sampled == 0:
            self._check(request)
        self._end(request_id)

    def _check(self, request: Open) -> None:
        """Whether it has the tokens that it has when it is computed alone and without a cache."""
        said = request.inherited
        if said and request.constraint is not None and request.sampling.temperature:
            request.constraint.parse(request.text)  # half a constraint cannot be asked for: it has to be valid at least
            return
        if request.constraint is not None:
            said = []
        sampling = replace(request.sampling, max_tokens=(request.sampling.max_tokens or 0) - len(said))
        completions = self.plain.generate([[*request.prompt, *said]], sampling, request.constraint)
        truth = {completion.index: [*said, *completion.token_ids] for completion in completions}
        self.tally.num_checked += 1
        self.tally.num_different += truth != request.tokens

    def _end(self, request_id: str) -> None:
        request = self.open.pop(request_id)
        self.tally.num_ended += 1
        if request.chat_index is not None:
            self.busy.remove(request.chat_index)

    def run(self, num_requests: int, num_reports: int, seconds: float) -> Iterator[int]:
        """Starts and finishes `num_requests`, or as many as `seconds` allow.

        Yields the number that have ended, `num_reports` times on the way.
        """
        due = num_requests // num_reports
        ends_at = time.monotonic() + seconds
        while self.tally.num_ended < num_requests and time.monotonic() < ends_at:
            room = MAX_OPEN - len(self.open)
            for _ in range(min(room, num_requests - self.num_started)):
                chance = self.random.random()
                if chance < 0.1:
                    self.fork()
                elif chance < 0.102:
                    self.start_large()
                elif len(self.busy) < NUM_CHATS:
                    self.start()
            self.step()
            if self.tally.num_ended >= due:
                yield self.tally.num_ended
                due += num_requests // num_reports
        for request_id in list(self.open):
            self.engine.core.abort(request_id)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="nano", help="with nano's tokenizer, if another one")
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--blocks", type=int, default=64, help="KV blocks of 16 tokens")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sampled", type=int, default=50, help="one request in N is computed again")
    parser.add_argument("--reports", type=int, default=20, help="how often it looks at itself on the way")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after so long")
    parser.add_argument("--tolerance", type=float, default=0.03, help="growth of memory that is let pass")
    parser.add_argument("--run-ahead", action="store_true", help="queue forwards before tokens are read, draft nothing")
    options = parser.parse_args()
    engine = ph.Engine(
        options.model,
        device="cpu",
        num_blocks=options.blocks,
        max_batch_tokens=256,
        reply_memory_bytes=REPLY_BYTES,
        run_ahead=options.run_ahead,
        jump="off" if options.run_ahead else "verified",
    )
    soak = Soak(
        engine,
        ph.Engine(options.model, prefix_cache=False, device="cpu", num_blocks=256),
        options.seed,
        options.sampled,
    )
    warm: list[int] = []
    before = 0
    print("| requests | CPU, s | resident, MiB | replies, KiB | traffic | constraints | tables |", end="")
    print(" scores | hit rate | preemptions | evicted blocks | pinned | pins given up |")
    print("|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for num_ended in soak.run(options.requests, options.reports, options.seconds):
        engine.core.audit()
        now, evicted = engine.statistics(), engine.prefix_cache.tree.statistics.num_evicted_blocks
        kept, resident = engine.core.monitor.kept_bytes(), resident_bytes()
        if warm or (kept.replies > 0.97 * REPLY_BYTES and kept.traffic <= before):
            warm.append(resident)
        before = kept.traffic
        sizes = (
            kept.replies,
            kept.traffic,
            kept.constraints,
            kept.sampling_tables,
            kept.prompt_scores,
        )
        print(
            f"| {num_ended:,} | {time.process_time():.0f} | {resident / 2**20:.1f} | "
            + " | ".join(f"{size / 1024:,.0f}" for size in sizes)
            + f" | {now.hit_rate:.3f} | {now.num_preemptions:,} | {evicted:,} | {now.num_pinned_blocks} "
            f"| {now.num_pins_given_up} |",
            flush=True,
        )
    tally = soak.tally
    print(
        f"{tally.num_ended:,} ended, {tally.num_forked:,} of them forks, {tally.num_aborted:,} aborted,"
        f" {tally.num_late} past their deadline; {tally.num_evicted_reports} report that their prefix was evicted"
    )
    print(f"{tally.num_different} of {tally.num_checked} sampled requests differ from an engine without a cache")
    engine.flush_cache()
    engine.prefix_cache.supply.flush(pinned=True)
    lost = options.blocks - engine.statistics().num_free_blocks
    growth = warm[-1] / warm[0] - 1 if warm else 0.0
    when = f"{growth:+.2%} in {len(warm) - 1} reports after the warm-up" if warm else "the warm-up was not over"
    print(f"blocks lost: {lost}; memory: {when}")
    if lost or tally.num_different or growth > options.tolerance:
        raise SystemExit("the soak failed")


if __name__ == "__main__":
    main()
