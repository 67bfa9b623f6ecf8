"""Inputs made to hurt: each must end soon, in a constraint or in an error that names its place.

    python bench/bombs.py [VOCABULARY] [--only TEXT] [--key-order schema|any|both] [--walk TOKENS] [--limit SECONDS]
    python bench/bombs.py --stream [--only TEXT] [--key-order schema|any|both]

Every bomb runs in a process of its own, warmed up before the clock starts. VOCABULARY as in `real_vocabularies` (a
tekken file, a sentencepiece model, a folder); by default the bundled model's. Printed are the CPU seconds until the
first mask or the error, the peak memory that this added, and what came of it; "SLOW" marks what took
longer than --limit (1 second by default).

With --walk texts are written as well, of at most TOKENS tokens, as an engine does that has other requests: one of
tokens drawn by lot among those that close nothing, and some within the least budget and a little more. Then printed,
in milliseconds: how long it took to find the least budget (when a request is submitted); the longest that a mask took
(this request waits); and the longest that one call took, for a part of a mask or for a token (others wait). Peak memory
includes them.

With --stream each bomb is a request to one engine of the bundled model, next to a running stream; see `bomb_stream`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parent / "studies"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "bombs"))
from bomb_conditions import condition_schemas
from bomb_keywords import keyword_schemas
from bomb_limits import limit_choices, limit_grammars, limit_patterns, limit_schemas, limit_tags
from bomb_schemas import schemas
from bomb_stream import BackgroundStream
from bomb_texts import grammars, patterns, tags
from real_vocabularies import read_vocabulary

from phloem.errors import PhloemError
from phloem.fsm import Compiler, Constraint, Cursor
from phloem.fsm.foresight import forced_tokens_within
from phloem.runtime.sample.sampler import MASK_WORK

FAR = 1_000_000  # tokens
MEBIBYTE = 1 << 20
MOST_MEMORY = 8 << 30
GIVE_UP_AFTER = 60  # seconds

Bomb = Callable[[Compiler], Constraint]


def bombs(key_orders: tuple[Any, ...]) -> Iterator[tuple[str, Bomb]]:
    """All bombs with their names; schemas in each of these orders of keys."""
    for name, schema in (*schemas(), *keyword_schemas(), *limit_schemas(), *condition_schemas()):
        for order in key_orders:
            yield (
                f"schema: {name}" if order == "schema" else f"schema, any order: {name}",
                lambda compiler, schema=schema, order=order: compiler.json_schema(schema, key_order=order),
            )
    if "schema" not in key_orders:
        return
    for name, pattern in (*patterns(), *limit_patterns()):
        yield f"regex: {name}", lambda compiler, pattern=pattern: compiler.regex(pattern)
    for count in (10_000, 100_000):
        options = [f"option {index * 7919 % count} of {count}" for index in range(count)]
        yield f"choice of {count}", lambda compiler, options=options: compiler.choice(options)
    shared = ["a" * 200 + f"{index:x}" for index in range(100_000)]
    yield "choice of 100,000 that begin alike", lambda compiler: compiler.choice(shared)
    nested = ["ab" * (index // 2) + "a" * (index % 2) for index in range(4000)]
    yield "choice of 4,000 that begin each other", lambda compiler: compiler.choice(nested)
    for name, texts in limit_choices():
        yield f"choice: {name}", lambda compiler, texts=texts: compiler.choice(texts)
    for name, text in (*grammars(), *limit_grammars()):
        yield f"grammar: {name}", lambda compiler, text=text: compiler.grammar(text)
    for name, description in (*tags(), *limit_tags()):
        yield f"tags: {name}", lambda compiler, described=description: compiler.structural_tag(described)


def peak_bytes(*, reset: bool = False) -> int:
    """The greatest memory of this process so far; `reset`: counted anew from now on, where the system can do that."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) << 10
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def walk(cursor: Cursor, num_tokens: int, budget: int, *, is_open: bool) -> tuple[float, float]:
    """The longest that a mask and that a single call took while a text was written, in seconds.

    `is_open`: of tokens that close nothing, where there are such.
    """
    rng, longest_mask, longest_call = random.Random(0), 0.0, 0.0
    tokens = cursor.constraint.vocabulary.tokens
    closing = np.array([b"}" in token or b"]" in token for token in tokens])
    for index in range(min(num_tokens, budget)):
        row, seconds = None, 0.0
        while row is None:
            begin = time.process_time()
            row = cursor.row_soon(budget - index, MASK_WORK)
            taken = time.process_time() - begin
            seconds, longest_call = seconds + taken, max(longest_call, taken)
        longest_mask = max(longest_mask, seconds)
        allowed = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))
        if not len(allowed):
            assert cursor.is_accepting, "a text came to a dead end"
            break
        if is_open and not closing[allowed].all():
            allowed = allowed[~closing[allowed]]
        begin = time.process_time()
        forced_tokens_within(cursor, budget - index)
        assert cursor.advance(int(rng.choice(allowed))), "a token of the mask was refused"
        longest_call = max(longest_call, time.process_time() - begin)
    return longest_mask, longest_call


def explode(bomb: Bomb, compiler: Compiler, num_tokens: int, connection: Any) -> None:
    """Runs one bomb and sends (seconds, times of walks, bytes, outcome)."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    before = peak_bytes(reset=True)
    begin = time.process_time()
    seconds, least, mask, call = 0.0, 0.0, 0.0, 0.0
    try:
        constraint = bomb(compiler)
        constraint.cursor().row()
        seconds = time.process_time() - begin
        outcome = f"compiled, {constraint.automaton.network.num_nodes} nodes"
        if num_tokens:
            begin = time.process_time()
            budget = constraint.min_tokens()
            least = time.process_time() - begin
            walks = [walk(constraint.cursor(), num_tokens, max(FAR, budget), is_open=True)]
            for more in (0, 3, 20):
                walks.append(walk(constraint.cursor(), num_tokens, budget + more, is_open=False))
            mask, call = max(mask for mask, _ in walks), max(call for _, call in walks)
    except PhloemError as error:
        outcome = f"{type(error).__name__}: {str(error)[:110]}"
    except BaseException as error:  # what must never happen is what this is for
        outcome = f"FAULT {type(error).__name__}: {str(error)[:90]}"
    seconds = seconds or time.process_time() - begin
    connection.send((seconds, (least, mask, call), peak_bytes() - before, outcome))


def beside_a_stream(chosen: Iterable[tuple[str, Bomb]]) -> None:
    """Prints how long a stream waits for each of these bombs."""
    stream = BackgroundStream()
    print("| bomb | waited, ms | gap, ms | held, ms | prepare, s | outcome |\n|:--|--:|--:|--:|--:|:--|")
    for name, bomb in (("none", None), *chosen):
        found = stream.alone() if bomb is None else stream.bomb(bomb)
        times = f"{1e3 * found.waited:.0f} | {1e3 * found.gap:.0f} | {1e3 * found.held:.0f} | {found.prepare:.2f}"
        print(f"| {name} | {times} | {json.dumps(found.outcome)[1:-1]} |", flush=True)
    os._exit(0)  # the stream never ends


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("vocabulary", nargs="?", default="nano")
    arguments.add_argument("--only", default="", help="only bombs whose name contains this")
    arguments.add_argument("--key-order", choices=("schema", "any", "both"), default="both", help="of schemas")
    arguments.add_argument("--walk", type=int, default=0, help="tokens that are written")
    arguments.add_argument("--limit", type=float, default=1.0, help="CPU seconds that are allowed")
    arguments.add_argument("--stream", action="store_true", help="how long a running stream waits")
    options = arguments.parse_args()
    key_orders = ("schema", "any") if options.key_order == "both" else (options.key_order,)
    chosen = ((name, bomb) for name, bomb in bombs(key_orders) if options.only in name)
    if options.stream:
        beside_a_stream(chosen)
        return
    compiler = Compiler(read_vocabulary(options.vocabulary))
    compiler.warm_up()
    context = multiprocessing.get_context("fork")
    walks = " least ms | mask ms | call ms |" if options.walk else ""
    print(f"| bomb | seconds |{walks} MiB | outcome |\n|:--|--:|{'--:|--:|--:|' if walks else ''}--:|:--|")
    for name, bomb in chosen:
        ours, theirs = context.Pipe()
        process = context.Process(target=explode, args=(bomb, compiler, options.walk, theirs))
        process.start()
        theirs.close()
        seconds, times, size, outcome = float(GIVE_UP_AFTER), (0.0, 0.0, 0.0), 0, "FAULT no end"
        try:
            if ours.poll(GIVE_UP_AFTER):
                seconds, times, size, outcome = ours.recv()
        except EOFError:
            outcome = "FAULT the process died"
        process.kill()
        process.join()
        slow = " SLOW" if seconds > options.limit else ""
        walked = "".join(f" {1000 * taken:.0f} |" for taken in times) if options.walk else ""
        outcome = json.dumps(outcome)[1:-1]
        print(f"| {name} | {seconds:.2f}{slow} |{walked} {size / MEBIBYTE:.0f} | {outcome} |", flush=True)


if __name__ == "__main__":
    main()
