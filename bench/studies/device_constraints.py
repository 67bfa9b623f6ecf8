"""Constraints whose steps a device takes by itself: what their tables cost, and what a step costs then.

    python bench/studies/device_constraints.py            tables, with the bundled model's vocabulary
    python bench/studies/device_constraints.py 131072     tables, with a made-up vocabulary of that size

First part, CPU: states, classes, bytes and the time to write the tables out (CPU time, cursors not yet used). Second
part, on a GPU only: microseconds per decode step of sampling and moving on, in a CUDA graph, and of the same with the
host in between (tokens to the host, cursors, rows back to the device), over batch sizes.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from phloem.fsm import Compiler, Constraint, Vocabulary, flatten
from phloem.kernels.automata import lay_out_automata
from phloem.kernels.ops import advance_states, sample
from phloem.runtime.models import resolve_model
from phloem.runtime.tokenizer.tokenizer import Tokenizer

PATTERNS = {
    "a date": r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])",
    "a number": r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?",
    "one of 200": "|".join(f"{name}{number}" for name in ("alpha", "beta", "gamma", "delta") for number in range(50)),
    "an address": r"[a-z0-9._%+-]{1,32}@[a-z0-9-]{1,32}(\.[a-z]{2,8}){1,2}",
    "a line": r"[^\n]{1,120}\n",
}
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "email": {"type": "string", "pattern": r"^[a-z.]{1,20}@[a-z]{1,20}\.com$"},
        "role": {"enum": ["admin", "editor", "reader"]},
    },
    "required": ["name", "age", "email", "role"],
    "additionalProperties": False,
}


def made_up(size: int) -> Vocabulary:
    rng = random.Random(1)
    pieces: set[bytes] = set()
    while len(pieces) < size - 258:
        word = "".join(rng.choice("etaoinshrdlu") for _ in range(rng.randint(1, 9)))
        text = word if rng.random() < 0.9 else str(rng.randrange(10**6))
        pieces.add((" " * rng.randrange(2) + text).encode())
    single = [bytes([byte]) for byte in range(256)]
    tokens = single + sorted(pieces - set(single))
    return Vocabulary([*tokens, b""], [len(tokens)])


def constraints(vocabulary: Vocabulary) -> dict[str, Constraint]:
    compiler = Compiler(vocabulary)
    return {name: compiler.regex(pattern) for name, pattern in PATTERNS.items()} | {
        "a person": compiler.json_schema(SCHEMA)
    }


def print_tables(vocabulary: Vocabulary) -> None:
    print(f"vocabulary of {vocabulary.size}\nconstraint   states classes  rows     KiB      ms")
    for constraint in constraints(vocabulary).values():
        flatten(constraint)  # compiled, and the vocabulary's own rows made
    for name, constraint in constraints(vocabulary).items():
        start = time.process_time()
        flat = flatten(constraint)
        took = (time.process_time() - start) * 1e3
        if flat is None:
            print(f"{name:12} too many states or rows")
            continue
        size = (flat.table.nbytes + flat.rows.nbytes) / 1024
        print(f"{name:12} {flat.num_states:6} {flat.width - 1:7} {len(flat.rows):5} {size:7.0f} {took:7.1f}")


def median_us(call: Callable[[], object], reset: Callable[[], object], count: int = 200) -> float:
    """Microseconds of a call, from the same beginning every time."""
    times = []
    for _ in range(count):
        reset()
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times)


def print_steps(vocabulary: Vocabulary, num_rows: int) -> None:
    """Sampling and moving on, with and without the host in between."""
    device = torch.device("cuda")
    constraint = constraints(vocabulary)["a line"]
    flat = flatten(constraint)
    assert flat is not None
    automata = lay_out_automata([flat], vocabulary.token_bytes, vocabulary.token_offsets, device)
    states = torch.full((num_rows,), flat.start, dtype=torch.int32, device=device)
    automaton_ids, rows = torch.zeros_like(states), automata.table[states.long()].clone()
    logits = torch.randn(num_rows, vocabulary.size, device=device)
    heat, no_k = torch.full((num_rows,), 0.8, device=device), torch.zeros_like(states)
    no_p, no_min, ids = torch.ones_like(heat), torch.zeros_like(heat), torch.arange(num_rows, device=device)

    def on_device() -> None:
        chosen, _ = sample(logits, automata.rows, rows, heat, no_k, no_p, no_min, ids, ids)
        advance_states(chosen, states, automaton_ids, rows, automata)

    first_states, first_rows = states.clone(), rows.clone()

    def begin_again() -> None:
        states.copy_(first_states)
        rows.copy_(first_rows)

    on_device()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        on_device()
    cursors = [constraint.cursor() for _ in range(num_rows)]
    own_rows = torch.arange(num_rows, dtype=torch.int32, device=device)

    def through_host() -> None:
        table = torch.from_numpy(np.stack([cursor.row() for cursor in cursors])).to(device)
        chosen, _ = sample(logits, table, own_rows, heat, no_k, no_p, no_min, ids, ids)
        for cursor, token_id in zip(cursors, chosen.tolist(), strict=True):
            cursor.advance(token_id)

    def go_back() -> None:
        for cursor in cursors:
            cursor.rollback(cursor.num_consumed)

    hosted, alone = median_us(through_host, go_back), median_us(graph.replay, begin_again)
    print(
        f"rows {num_rows:3}: on the device {alone:7.1f} us, through the host {hosted:8.1f} us, x {hosted / alone:5.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("num_tokens", type=int, nargs="?", help="of a made-up vocabulary")
    num_tokens = parser.parse_args().num_tokens
    vocabulary = made_up(num_tokens) if num_tokens else Tokenizer.from_folder(resolve_model("nano")).vocabulary()
    print_tables(vocabulary)
    if torch.cuda.is_available():
        print(f"\n{torch.cuda.get_device_name()}, torch {torch.__version__}")
        for num_rows in (1, 8, 32, 128, 256):
            print_steps(vocabulary, num_rows)


if __name__ == "__main__":
    main()
