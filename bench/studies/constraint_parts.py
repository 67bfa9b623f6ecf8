"""What constraints cost in a batch, by part: valid answers replayed over random logits (`constraint_overhead.py`)."""

from __future__ import annotations

import base64
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import phloem as ph
from phloem.fsm import Compiler, Constraint, Vocabulary
from phloem.fsm.foresight import forced_tokens
from phloem.kernels.ops import SamplingRows, sample
from phloem.runtime.sample.mask_table import MaskTable

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from nano_text import documents  # noqa: E402

CPU = torch.device("cpu")
FAR = 100_000  # tokens of budget that are left
PARTS = ("mask", "table", "advance", "draft")
clock = time.process_time_ns


def tekken_vocabulary(path: Path) -> Vocabulary:
    """Mistral's 131,072 tokens."""
    data = json.loads(path.read_text(encoding="utf-8"))
    size, num_special = data["config"]["default_vocab_size"], data["config"]["default_num_special_tokens"]
    tokens = [b""] * size
    for entry in data["vocab"][: size - num_special]:
        tokens[num_special + entry["rank"]] = base64.b64decode(entry["token_bytes"])
    return Vocabulary(tokens, [2])


def made_up_vocabulary(size: int) -> Vocabulary:
    """All bytes, JSON's usual pieces, and words of random letters."""
    rng = random.Random(0)
    pieces = {b'","', b'":"', b'":', b'{"', b'"}', b"},{", b'":[', b"]}", b'":{"', b"true", b"false"}
    while len(pieces) < size - 257:
        word = "".join(rng.choices("etaoinshrdlucmfwypvbgkjqxz", k=rng.randint(2, 9)))
        pieces.add((rng.choice(["", " ", " ", '"']) + word + rng.choice(["", "", "", '"', '":', "."])).encode())
    return Vocabulary([b"", *(bytes([byte]) for byte in range(256)), *sorted(pieces)], [0])


def spell(vocabulary: Vocabulary, text: bytes) -> list[int]:
    """The longest token first; not canonical, but an answer that could have been given."""
    token_ids, at = [], 0
    while at < len(text):
        length = next(n for n in range(vocabulary.max_token_len, 0, -1) if text[at : at + n] in vocabulary.ids)
        token_ids.append(vocabulary.ids[text[at : at + length]])
        at += length
    return token_ids


# ---------------------------------------------------------------------------------------------------------- parts


@dataclass(frozen=True)
class Answer:
    """A text and how to compile the constraint that it satisfies."""

    compile: Callable[[Compiler], Constraint]
    text: bytes


def document_answers(count: int) -> list[Answer]:
    """Documents of eight kinds under their schemas; every fifth as any JSON object, every fifth as free text."""
    answers = []
    for index, document in enumerate(documents(seed=2, count=count)):
        schema = document.kind.schema
        text = document.json.encode()
        if index % 5 == 3:
            answers.append(Answer(lambda compiler: compiler.json_object(), text))
        elif index % 5 == 4:
            answers.append(Answer(lambda compiler: compiler.regex(r"[\s\S]*"), document.text.encode()))
        else:
            answers.append(Answer(lambda compiler, schema=schema: compiler.json_schema(schema), text))
    return answers


def case_answers(folder: Path, count: int) -> list[Answer]:
    """One valid instance of each case that compiles, cut to 4,000 bytes, evenly spread over the folder."""
    files = sorted(folder.glob("**/*.json"))
    answers = []
    for path in files[:: max(1, len(files) // (2 * count))]:
        case = json.loads(path.read_text(encoding="utf-8"))
        valid = [test["data"] for test in case.get("tests", []) if test["valid"]] if isinstance(case, dict) else []
        if valid:
            text = json.dumps(valid[0], separators=(",", ":"), ensure_ascii=False).encode()[:4000]
            schema = case["schema"]
            answers.append(Answer(lambda compiler, schema=schema: compiler.json_schema(schema), text))
    return answers


@dataclass
class Costs:
    """Nanoseconds by part, over all request-steps of a replay.

    Attributes:
        plain, masked: the sampling kernel without and with masks.
        longest: the longest step's share of the constraints.
    """

    parts: dict[str, int]
    plain: int = 0
    masked: int = 0
    longest: int = 0
    request_steps: int = 0
    rows_copied: int = 0


def replay(requests: Sequence[tuple[Constraint, list[int]]], logits: torch.Tensor, batch_size: int) -> Costs:
    """Groups of `batch_size` requests, token by token, as the engine goes about it."""
    costs = Costs(dict.fromkeys(PARTS, 0))
    table = MaskTable(-(-logits.shape[1] // 32), CPU)
    for first in range(0, len(requests) - batch_size + 1, batch_size):
        group = [(constraint.cursor(), token_ids) for constraint, token_ids in requests[first : first + batch_size]]
        for position in range(max(len(token_ids) for _, token_ids in group)):
            group = [(cursor, token_ids) for cursor, token_ids in group if position < len(token_ids)]
            step(group, position, logits, table, costs)
    costs.rows_copied = table.num_copied
    return costs


def step(
    group: list[tuple[Any, list[int]]], position: int, logits: torch.Tensor, table: MaskTable, costs: Costs
) -> None:
    times = [clock()]
    rows = [cursor.row_within(FAR) for cursor, _ in group]
    times.append(clock())
    table.begin_step()
    slots = [table.slot(row) for row in rows]
    masks = table.tensor()
    index = torch.from_numpy(np.array(slots, np.int32))
    times.append(clock())
    for cursor, token_ids in group:
        if not cursor.advance(token_ids[position]):
            raise AssertionError(f"{cursor.constraint}: token {position} of a valid answer is refused")
        _ = cursor.is_finished or cursor.must_stop
    times.append(clock())
    for cursor, _ in group:
        forced_tokens(cursor)
    times.append(clock())
    for part, begin, end in zip(PARTS, times, times[1:], strict=False):
        costs.parts[part] += end - begin
    costs.longest = max(costs.longest, times[-1] - times[0])
    costs.request_steps += len(group)
    num_rows = len(group)
    ids = torch.arange(num_rows)
    none, top_k = torch.zeros(num_rows), torch.zeros(num_rows, dtype=torch.int32)
    rows = SamplingRows(index, none, top_k, torch.ones(num_rows), none, ids, ids)
    begin = clock()
    sample(logits[:num_rows], None, rows)
    middle = clock()
    sample(logits[:num_rows], masks, rows)
    costs.plain += middle - begin
    costs.masked += clock() - middle


def compile_all(answers: list[Answer], vocabulary: Vocabulary) -> tuple[list[tuple[Constraint, list[int]]], float]:
    """Constraints and token ids of all answers that compile and are accepted; CPU seconds spent compiling."""
    compiler = Compiler(vocabulary)
    compiler.warm_up()
    compiled: list[tuple[Constraint, list[int]]] = []
    seconds = 0.0
    for answer in answers:
        begin = time.process_time()
        try:
            constraint = answer.compile(compiler)
        except ph.ConstraintError:
            continue
        finally:
            seconds += time.process_time() - begin
        if _is_accepted(answer, vocabulary):
            compiled.append((constraint, spell(vocabulary, answer.text)))
    return compiled, seconds


def _is_accepted(answer: Answer, vocabulary: Vocabulary) -> bool:
    """Whether the answer is what the constraint allows; asked of another compiler, to leave the states unmet."""
    constraint = answer.compile(Compiler(vocabulary))
    return constraint.automaton.advance_bytes(constraint.automaton.start, answer.text) > 0


def print_parts(name: str, vocabulary: Vocabulary, answers: list[Answer], sizes: list[int]) -> None:
    logits = torch.randn(max(sizes), vocabulary.size)
    print(
        f"\n{name}: {vocabulary.size:,} tokens, {vocabulary.num_words * 4:,} bytes a row; microseconds per request-step"
    )
    print(
        f"{'batch':>5} {'masks':5}{'mask':>8}{'table':>8}{'advance':>9}{'draft':>8}{'kernel':>8}{'sum':>8}"
        f"{'kernel free':>13}{'longest step':>14}{'steps':>8}{'copied':>8}"
    )
    compile_all(answers[:8], vocabulary)  # loads the compiled loops
    for size in sizes:
        requests, _ = compile_all(answers, vocabulary)
        for how in ("cold", "warm"):
            costs = replay(requests, logits, size)
            num = costs.request_steps
            parts = [costs.parts[part] / num / 1e3 for part in PARTS]
            extra = (costs.masked - costs.plain) / num / 1e3
            print(
                f"{size:>5} {how:5}{parts[0]:>8.2f}{parts[1]:>8.2f}{parts[2]:>9.2f}{parts[3]:>8.2f}{extra:>8.2f}"
                f"{sum(parts) + extra:>8.2f}{costs.plain / num / 1e3:>13.2f}{costs.longest / 1e6:>11.2f} ms"
                f"{num:>8}{costs.rows_copied:>8}",
                flush=True,
            )


# ----------------------------------------------------------------------------------------------------- throughput
