"""Automata on a device: every path walks as the host's cursors do, and a step of decoding asks the host nothing."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from phloem.fsm import Compiler, Constraint, Vocabulary, flatten
from phloem.kernels import SamplingRows, ops
from phloem.kernels.automata import Automata, lay_out_automata
from phloem.kernels.plain import ops as reference

from . import lazy_triton as triton

PATTERNS = ["yes|no|maybe", r"\d{4}-\d\d-\d\d", "[а-я]{2,9}", "(ab|abc|b)*c", r'\{"n": (0|[1-9]\d{0,5})\}']
Advance = Callable[[Tensor, Tensor, Tensor, Tensor, Automata], None]


@functools.cache
def vocabulary() -> Vocabulary:
    pieces = ["ye", "yes", "may", "no", "ab", "abc", "bc", "20", "-1", "19", '{"', '": ', "пр", "иве", "00"]
    tokens = [bytes([byte]) for byte in range(256)] + [piece.encode() for piece in pieces] + [b"", b""]
    return Vocabulary(tokens, [len(tokens) - 1])


@functools.cache
def constraints() -> list[Constraint]:
    compiler = Compiler(vocabulary())
    return [compiler.regex(pattern) for pattern in PATTERNS]


def automata_on(device: torch.device | str, chosen: Sequence[Constraint]) -> tuple[Automata, list[int]]:
    """The tables of some constraints on a device, and their first states."""
    flat = [found for found in map(flatten, chosen) if found is not None]
    assert len(flat) == len(chosen)
    laid_out = lay_out_automata(flat, vocabulary().token_bytes, vocabulary().token_offsets, device)
    return laid_out, [each.start + end for each, end in zip(flat, laid_out.ends.tolist(), strict=True)]


@pytest.fixture(params=["ops", "triton"])
def advance(request: pytest.FixtureRequest) -> Advance:
    found: Advance = (ops if request.param == "ops" else triton.advance).advance_states
    return found


@pytest.mark.parametrize("num_rows", [1, 45])
def test_rows_walk_as_cursors_do(num_rows: int, advance: Advance, device: torch.device) -> None:
    """Random allowed tokens to the end and beyond, and end tokens too early; some rows have no automaton."""
    laid_out, starts = automata_on(device, constraints())
    rng = random.Random(num_rows)
    ids = [row % (len(PATTERNS) + 1) - 1 for row in range(num_rows)] if num_rows > 1 else [3]
    cursors = [constraints()[k].cursor() for k in ids]
    has_ended = [False] * num_rows
    as_ints = {"dtype": torch.int32, "device": device}
    states = torch.tensor([starts[k] if k >= 0 else -5 for k in ids], **as_ints)
    automaton_ids, mask_rows = torch.tensor(ids, **as_ints), torch.full((num_rows,), -7, **as_ints)
    for step in range(12):
        tokens = []
        for row, cursor in enumerate(cursors):
            allowed = [token for token in range(vocabulary().size) if cursor.fork().advance(token)]
            token = rng.choice(allowed) if allowed and not has_ended[row] else -1
            if step == 3 and row % 7 == 3:
                token = vocabulary().eos_ids[0]
            has_ended[row] |= token < 0 or not cursor.advance(token) or cursor.is_finished
            tokens.append(token)
        advance(torch.tensor(tokens, device=device), states, automaton_ids, mask_rows, laid_out)
        for row, cursor in enumerate(cursors):
            if ids[row] < 0:
                assert int(states[row]) == -5 and int(mask_rows[row]) == -7
            else:
                found = laid_out.rows[mask_rows[row]].cpu()
                expected = torch.from_numpy(cursor.row().copy())
                assert torch.equal(found, torch.zeros_like(found) if has_ended[row] else expected)
    assert sum(has_ended) > num_rows / 3


class Decoding:
    """Constrained decoding of a model whose logits depend on the last token alone, all of it on one device."""

    def __init__(self, device: torch.device, num_steps: int) -> None:
        generator = torch.Generator().manual_seed(9)
        vocab_size, num_rows = vocabulary().size, len(PATTERNS) + 1
        automata, starts = automata_on(device, constraints())
        ids = [*range(len(PATTERNS)), 0]
        as_ints = {"dtype": torch.int32, "device": device}
        self.automata = automata
        self.model = (torch.randn(vocab_size, vocab_size, generator=generator) * 3).to(device)
        self.token_ids = torch.zeros(num_rows, dtype=torch.int64, device=device)
        self.states = torch.tensor([starts[k] for k in ids], **as_ints)
        self.automaton_ids = torch.tensor(ids, **as_ints)
        self.mask_rows = automata.table[self.states.long()].clone()
        self.temperature = torch.tensor([0.0, 0.7, 1.5, 1.0, 1.0, 1.2], device=device)
        self.top_k = torch.tensor([0, 0, 12, 0, 5, 0], **as_ints)
        self.top_p = torch.tensor([1.0, 0.9, 1.0, 1.0, 0.8, 1.0], device=device)
        self.min_p = torch.tensor([0.0, 0.0, 0.0, 0.05, 0.0, 0.0], device=device)
        self.seeds = torch.arange(num_rows, device=device)
        self.positions = torch.zeros(num_rows, dtype=torch.int64, device=device)
        self.written = torch.full((num_steps, num_rows), -9, dtype=torch.int64, device=device)

    def step(self) -> None:
        """One step; nothing in it looks at a number on the host."""
        columns = (self.temperature, self.top_k, self.top_p, self.min_p, self.seeds, self.positions)
        rows = SamplingRows(self.mask_rows, *columns)
        logits = self.model[self.token_ids.clamp(min=0)]
        chosen, _ = triton.sample.sample(logits, self.automata.rows, rows)
        triton.advance.advance_states(chosen, self.states, self.automaton_ids, self.mask_rows, self.automata)
        self.token_ids.copy_(chosen)
        self.written.index_copy_(0, self.positions[:1], chosen[None])
        self.positions += 1

    def by_the_host(self, row: int) -> list[int]:
        """The tokens of one row as a host would decide them, one at a time, with a cursor."""
        cursor, token, found = constraints()[row % len(PATTERNS)].cursor(), 0, []
        for position in range(len(self.written)):
            columns = (self.temperature, self.top_k, self.top_p, self.min_p, self.seeds)
            at = [column[row : row + 1].cpu() for column in columns]
            mask = torch.from_numpy(cursor.row().copy())[None]
            logits = self.model[token : token + 1].cpu()
            none = torch.zeros(1, dtype=torch.int32)
            chosen, _ = reference.sample(logits, mask, SamplingRows(none, *at, torch.tensor([position])))
            found.append(int(chosen))
            if found[-1] < 0 or not cursor.advance(found[-1]):
                return found + [-1] * (len(self.written) - len(found))
            token = found[-1]
        return found


def test_a_constrained_decode_asks_the_host_nothing(device: torch.device) -> None:
    decoding = Decoding(device, 8)
    for _ in range(8):
        decoding.step()
    written = decoding.written.T.tolist()
    assert written == [decoding.by_the_host(row) for row in range(len(written))]
    assert any(-1 in row for row in written) and any(-1 not in row for row in written)


@pytest.mark.gpu
def test_a_constrained_decode_runs_inside_a_cuda_graph(device: torch.device) -> None:
    decoding = Decoding(device, 30)
    other_stream = torch.cuda.Stream()
    with torch.cuda.stream(other_stream):  # compiled before it is captured
        Decoding(device, 1).step()
    torch.cuda.current_stream().wait_stream(other_stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        decoding.step()
    for _ in range(30):
        graph.replay()
    assert decoding.written.T.tolist() == [decoding.by_the_host(row) for row in range(len(PATTERNS) + 1)]
