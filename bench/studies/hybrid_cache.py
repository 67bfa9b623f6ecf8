"""Token hit rates of a model with recurrent layers, by where states are kept and which of them makes room.

    python bench/studies/hybrid_cache.py [--scale 1] [--workloads chats,shots,agents,mixed]

Each workload is played, request by request, through the real tree, whose leaves go least recently used first. A hit
ends at the last state on the path whose keys are all there. All policies have the same memory, half of it for keys and
values and half for states, of the proportions of Qwen3-Next-80B-A3B (12 layers with 24 KiB of keys and values a token
together, 36 with a state of 75 MiB together, as much as the keys of 3,200 tokens).

    align        vLLM's rule of that name: the last whole large block (544 tokens) of each chunk that was scheduled
                 (2,048 tokens), and of the output; least recently used goes
    all          vLLM's `all`: every large block; least recently used goes
    branches     SGLang's: where a node of the tree is split, and the ends of requests; least recently used goes
    marconi      Marconi (arXiv 2411.19379): the same places; what goes is chosen by recency and computation saved per
                 byte, weighed by the best of several weights, tried for each row by itself
    phloem       `runtime/cache/state_store.py`, the very code of the engine
    unlimited    states after every token, and memory for all

Chats: conversations under one of several system prompts, turn by turn in random order. Shots: few-shot prompts, one of
many templates with its examples, then a question. Agents: long instructions that all share, a task, and turns that
append tool output of some hundred tokens to some thousands. Mixed: all of them, interleaved.
"""

from __future__ import annotations

import argparse
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, cast

from phloem.radix import BlockPool, RadixTree, pack
from phloem.runtime.cache.state_slots import StateSlots
from phloem.runtime.cache.state_store import StateStore
from phloem.runtime.request import Request

BLOCK, LARGE_BLOCK, CHUNK = 16, 544, 2048
STATE_TOKENS = 3200  # a state takes as much memory as the keys and values of n tokens
Asked = tuple[list[int], list[int]]  # a prompt, and what is answered


def words(random: Random, count: int) -> list[int]:
    return [random.randrange(1 << 20) for _ in range(count)]


def grow(random: Random, sessions: list[list[int]], turns: int, asked: range, answered: range) -> Iterator[Asked]:
    """Sessions that append a question and an answer at each turn, in random order."""
    left = [turns] * len(sessions)
    while any(left):
        which = random.choice([index for index, number in enumerate(left) if number])
        left[which] -= 1
        sessions[which] = sessions[which] + words(random, random.choice(asked))
        answer = words(random, random.choice(answered))
        yield sessions[which], answer
        sessions[which] = sessions[which] + answer


def chats(random: Random, scale: float) -> Iterator[Asked]:
    systems = [words(random, random.randrange(200, 1500)) for _ in range(6)]
    sessions = [random.choice(systems) for _ in range(int(60 * scale))]
    return grow(random, sessions, 8, range(20, 300), range(50, 500))


def shots(random: Random, scale: float) -> Iterator[Asked]:
    templates = [words(random, random.randrange(800, 4000)) for _ in range(24)]
    weights = [1 / (1 + rank) for rank in range(len(templates))]
    for _ in range(int(500 * scale)):
        yield random.choices(templates, weights)[0] + words(random, random.randrange(30, 200)), words(random, 40)


def agents(random: Random, scale: float) -> Iterator[Asked]:
    instructions = words(random, 6000)
    sessions = [instructions + words(random, random.randrange(300, 2000)) for _ in range(int(20 * scale))]
    return grow(random, sessions, 15, range(200, 3000, 7), range(40, 300))


def mixed(random: Random, scale: float) -> Iterator[Asked]:
    streams = [kind(random, scale / 2) for kind in (chats, shots, agents)]
    while streams:
        stream = random.choice(streams)
        found = next(stream, None)
        if found is None:
            streams.remove(stream)
        else:
            yield found


WORKLOADS: dict[str, Callable[[Random, float], Iterator[Asked]]] = {
    "chats": chats,
    "shots": shots,
    "agents": agents,
    "mixed": mixed,
}


@dataclass(eq=False)
class Step:
    """One request, with what a store of states looks at."""

    token_ids: list[int]
    num_prompt_tokens: int
    num_computed_tokens: int = 0
    blocks: array[int] = field(default_factory=lambda: array("i"))
    is_probe: bool = False


class Engine:
    """`StateStore`: what phloem does."""

    def __init__(self, num_slots: int, interval: int = 512) -> None:
        self.store = StateStore(StateSlots(num_slots, BLOCK), interval=interval, keeps=True)

    def find(self, step: Step, blocks: list[int], partial_block: int, num_partial: int) -> int:
        point = self.store.slots.find(blocks, partial_block, num_partial)
        self.store.resume(cast(Request, step), point, len(blocks) * BLOCK)
        return 0 if point is None else point.num_tokens

    def run(self, step: Step) -> None:
        request, prompt, end = cast(Request, step), step.num_prompt_tokens, len(step.token_ids)
        ends = [*range(step.num_computed_tokens + CHUNK, prompt, CHUNK), prompt, end - 1]
        for last in ends:  # chunks, then the output, all of whose steps but the last leave nothing
            start = step.num_computed_tokens
            self.store.begin_step()
            self.store.plan([(request, request.num_computed_tokens, last, last)])
            step.num_computed_tokens = last
            self.store.settle(request, start)
        self.store.keep_last(request)
        self.store.end(request)

    def forget(self, blocks: list[int]) -> None:
        self.store.slots.forget(blocks)


@dataclass
class Kept:
    saved: int  # tokens from the state before it on
    used_at: int


class Rule:
    """Other engines' rules. alpha: the weight of computation saved against recency; 0: least recently used."""

    def __init__(self, name: str, num_slots: int, alpha: float = 0.0) -> None:
        self.name, self.room, self.alpha, self.now = name, num_slots, alpha, 0
        self.kept: dict[int, dict[int, Kept]] = {}
        self.count = 0

    def find(self, step: Step, blocks: list[int], partial_block: int, num_partial: int) -> int:
        self.now += 1
        self.split = len(blocks) * BLOCK
        for index in range(len(blocks), -1, -1):
            block, most = (blocks[index], BLOCK) if index < len(blocks) else (partial_block, num_partial)
            inside = [number for number in self.kept.get(block, {}) if number <= most]
            if inside:
                self.kept[block][max(inside)].used_at = self.now
                return index * BLOCK + max(inside)
        return 0

    def run(self, step: Step) -> None:
        start, end = step.num_computed_tokens, len(step.token_ids) - 1
        before = start
        for number in sorted(self.places(step, start, end)):
            if start < number <= end:
                self.keep(step, number, number - before)
                before = number

    def places(self, step: Step, start: int, end: int) -> set[int]:
        if self.name == "all":
            return set(range(LARGE_BLOCK, end + 1, LARGE_BLOCK))
        if self.name == "align":
            ends = [*range(start + CHUNK, step.num_prompt_tokens, CHUNK), step.num_prompt_tokens, end]
            return {number // LARGE_BLOCK * LARGE_BLOCK for number in ends}
        return {self.split, end}

    def keep(self, step: Step, number: int, saved: int) -> None:
        block = step.blocks[(number - 1) // BLOCK]
        inside = self.kept.setdefault(block, {})
        if (number - 1) % BLOCK + 1 in inside:
            return
        if self.count >= self.room:
            self.evict()
        inside = self.kept.setdefault(block, {})
        inside[(number - 1) % BLOCK + 1] = Kept(saved, self.now)
        self.count += 1

    def evict(self) -> None:
        every = [(kept, block, number) for block, inside in self.kept.items() for number, kept in inside.items()]
        oldest = min(kept.used_at for kept, _, _ in every)
        span, most = max(1, self.now - oldest), max(kept.saved for kept, _, _ in every)

        def worth(one: tuple[Kept, int, int]) -> tuple[float, int]:
            kept = one[0]
            return (kept.used_at - oldest) / span + self.alpha * kept.saved / most, kept.used_at

        _, block, number = min(every, key=worth)
        del self.kept[block][number]
        if not self.kept[block]:
            del self.kept[block]
        self.count -= 1

    def forget(self, blocks: list[int]) -> None:
        for block in blocks:
            self.count -= len(self.kept.pop(block, {}))


class Everywhere(Rule):
    """States after every token."""

    def __init__(self) -> None:
        super().__init__("everywhere", 0)

    def find(self, step: Step, blocks: list[int], partial_block: int, num_partial: int) -> int:
        return len(blocks) * BLOCK + num_partial

    def run(self, step: Step) -> None:
        pass


def hit_rate(asked: list[Asked], num_blocks: int, policy: Any) -> float:
    """Prompt tokens that were not computed, of all."""
    now = 0.0
    tree, pool = RadixTree(BLOCK, clock=lambda: now), BlockPool(num_blocks, BLOCK)
    hits = total = 0
    for prompt, answer in asked:
        now += 1.0
        step = Step([*prompt, *answer], len(prompt))
        match = tree.match(pack(prompt[:-1]), "")
        step.num_computed_tokens = policy.find(step, match.blocks, match.partial_block, match.num_partial_tokens)
        hits += step.num_computed_tokens
        total += len(prompt)
        tree.lease(match.node)
        length = len(step.token_ids) - 1
        wanted = -(-length // BLOCK) - len(match.blocks)
        if wanted > pool.num_free:
            evicted = tree.evict(wanted - pool.num_free)
            policy.forget(evicted)
            pool.free(evicted)
        if wanted > pool.num_free:  # it cannot run in so small a pool
            tree.release(match.node)
            continue
        own = pool.allocate(wanted)
        inserted = tree.insert(pack(step.token_ids[len(match.blocks) * BLOCK : length]), own, "", after=match.node)
        tree.release(match.node)
        pool.free(inserted.duplicates)
        there = tree.match(pack(step.token_ids[:length]), "")
        step.blocks = array("i", [*there.blocks, there.partial_block])
        policy.run(step)
    return hits / total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--states", default="8,16,32,64,128", help="slots for states; as much memory again for keys")
    options = parser.parse_args()
    names = ["align", "all", "branches", "marconi", "phloem"]
    print(f"| workload | states | {' | '.join(names)} | unlimited |\n|---|--:|{'--:|' * (len(names) + 1)}")
    for workload in options.workloads.split(","):
        asked = list(WORKLOADS[workload](Random(7), options.scale))
        best = hit_rate(asked, 1 << 20, Everywhere())
        for num_states in map(int, options.states.split(",")):
            num_blocks = num_states * STATE_TOKENS // BLOCK
            rates = [hit_rate(asked, num_blocks, Rule(name, num_states - 1)) for name in names[:3]]
            rates.append(max(hit_rate(asked, num_blocks, Rule("marconi", num_states - 1, a)) for a in (0, 0.25, 1, 4)))
            rates.append(hit_rate(asked, num_blocks, Engine(num_states)))
            print(
                f"| {workload} | {num_states} | {' | '.join(f'{rate:.3f}' for rate in rates)} | {best:.3f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
