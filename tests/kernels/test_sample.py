"""Masked sampling, by each implementation: the definitions of filters and penalties, and probability theory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from phloem.kernels import LogitEdits, ops
from phloem.kernels.plain import ops as reference
from phloem.kernels.plain import sample as reference_sample

from .sample_rows import Rows, bit_rows, implementation, mixed_rows, rows_of


@pytest.fixture(params=["reference", "cpu", "triton"])
def sampler(request: pytest.FixtureRequest, device: torch.device) -> Callable[[Rows], Tensor]:
    """rows -> token ids on the CPU, by each implementation."""
    return lambda rows: implementation(request.param, device)(rows)[0]


def test_penalties_follow_their_definition(sampler: Callable[[Rows], Tensor]) -> None:
    """Token by token: the bias, then repetition for prompt and output, presence and frequency for the output."""
    logits = torch.tensor([[-6.5, -3.0, 2.5, 2.4, 2.3, -9.0]])
    in_prompt, count = torch.tensor([1, 1, 0, 0, 0, 0]), torch.tensor([0, 0, 0, 2, 0, 0])
    drafted = torch.tensor([[4, 4, 4]], dtype=torch.int32)
    row = torch.zeros(1, dtype=torch.int32)
    edits = LogitEdits(
        (count - 0x8000 * in_prompt).to(torch.int16)[None],
        row,
        torch.tensor([2.0]),
        torch.tensor([0.25]),
        torch.tensor([0.125]),
        drafted,
        torch.tensor([[9.5, 0.0, 0.0, 0.0, 0.0, 9.5]]),
        row,
    )
    expected = [1.5, -6.0, 2.5, 1.2 - 0.5, 1.15 - 0.625, 0.5]
    torch.testing.assert_close(reference_sample.edited(logits, edits)[0], torch.tensor(expected))
    order = []
    for _ in range(6):  # the best, then the best of the others ..
        allowed = torch.ones(1, 6, dtype=torch.bool)
        allowed[0, order] = False
        rows = replace(rows_of(logits, temperature=0.0), mask_table=bit_rows(allowed), mask_rows=row, edits=edits)
        order += sampler(rows).tolist()
    assert order == torch.tensor(expected).argsort(descending=True).tolist()


def test_half_logits_are_taken(sampler: Callable[[Rows], Tensor]) -> None:
    rows = rows_of((torch.randn(3, 100) * 3).half())
    assert torch.equal(sampler(rows), reference.sample(*rows.arguments())[0])


def test_temperature_zero_is_argmax_and_the_lowest_id_wins_ties(sampler: Callable[[Rows], Tensor]) -> None:
    logits = torch.randn(2, 4500)
    logits[0, [4400, 17, 3000]] = 9.0
    logits[1, 4499] = 9.0
    assert sampler(rows_of(logits, temperature=0.0)).tolist() == [17, 4499]


def test_infinite_logits_win(sampler: Callable[[Rows], Tensor]) -> None:
    logits = torch.randn(2, 300)
    logits[:, 200] = torch.inf
    assert sampler(rows_of(logits, top_p=0.5, temperature=0.3)).tolist() == [200, 200]


def test_nothing_allowed_is_minus_one_and_nan_is_never_chosen(sampler: Callable[[Rows], Tensor]) -> None:
    logits = torch.full((4, 64), -torch.inf)
    logits[1:] = torch.nan
    logits[2, 5] = -3.0
    logits[3] = 0.0
    rows = replace(
        rows_of(logits),
        mask_table=torch.zeros(1, 2, dtype=torch.int32),
        mask_rows=torch.tensor([-1, -1, -1, 0], dtype=torch.int32),
    )
    assert sampler(rows).tolist() == [-1, -1, 5, -1]


def test_masked_tokens_are_never_chosen(sampler: Callable[[Rows], Tensor]) -> None:
    allowed = torch.rand(1, 77) < 0.1
    allowed[0, 76] = True
    rows = replace(
        rows_of(torch.randn(12, 77)), mask_table=bit_rows(allowed), mask_rows=torch.zeros(12, dtype=torch.int32)
    )
    assert allowed[0, sampler(rows)].all()


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"top_k": 1}, {2}),
        ({"top_k": 3}, {2, 0, 4}),
        ({"top_p": 0.0}, {2}),
        ({"top_p": 0.45}, {2, 0}),
        ({"top_k": 3, "top_p": 0.95}, {2, 0, 4}),
        ({"min_p": 0.4}, {2, 0, 4}),
        ({"min_p": 1.0}, {2}),
    ],
    ids=str,
)
@pytest.mark.parametrize("sample", [reference.sample, ops.sample], ids=["reference", "cpu"])
def test_filters_keep_what_they_say(options: dict[str, float], kept: set[int], sample: Callable[..., Any]) -> None:
    probabilities = torch.tensor([0.25, 0.1, 0.4, 0.05, 0.2])
    rows = rows_of(probabilities.log().expand(40, 5).contiguous(), **options)  # type: ignore[arg-type]
    assert set(sample(*rows.arguments())[0].tolist()) == kept


@pytest.mark.parametrize(
    "options",
    [{}, {"top_p": 0.8}, {"top_p": 0.3}, {"top_k": 4}, {"top_k": 5, "top_p": 0.7}, {"min_p": 0.2}],
    ids=lambda options: "+".join(options) or "all",
)
@pytest.mark.parametrize("vocab_size", [7, 896])
def test_the_law_is_the_softmax_of_what_stays(vocab_size: int, options: dict[str, float]) -> None:
    """Chi-square of 40,000 draws over the seven tokens that carry the mass, in one group or in seven."""
    num_draws, place = 40_000, torch.tensor([0, 1, 2, 3, 4, 5, 6]) * (vocab_size // 7)
    logits = torch.full((vocab_size,), -40.0)
    logits[place] = torch.tensor([0.0, 1.0, 2.0, -1.0, 0.5, 0.6, -3.0])
    rows = rows_of(logits.expand(num_draws, vocab_size), temperature=0.8, **options)  # type: ignore[arg-type]
    counts = torch.bincount(ops.sample(*rows.arguments())[0], minlength=vocab_size)[place]
    scores = logits[None] / 0.8
    kept = reference_sample.thresholds(scores, rows.top_k[:1], rows.top_p[:1], rows.min_p[:1]).kept
    expected = torch.softmax(scores.masked_fill(scores < kept, -torch.inf)[0], 0)[place] * num_draws
    assert counts.sum() == num_draws and (counts[expected == 0] == 0).all()
    off = ((counts - expected) ** 2 / expected)[expected > 0].sum()
    assert off < 22.5  # 99.9 % of chi-square with 6 degrees of freedom


@pytest.mark.parametrize("axis", ["seed", "position", "index", "stream"])
def test_noise_is_independent_along_every_axis(axis: str) -> None:
    steps, fixed = torch.arange(50_000), torch.tensor(12345)
    arguments = (steps if axis == name else fixed for name in ("seed", "position", "index", "stream"))
    noise = reference_sample.gumbel_noise(*arguments).double()
    assert abs(noise.mean() - 0.5772) < 0.025  # four standard errors
    assert abs(noise.var() - torch.pi**2 / 6) < 0.08
    for lag in (1, 2, 128):
        assert abs(torch.corrcoef(torch.stack([noise[:-lag], noise[lag:]]))[0, 1]) < 0.02


def test_philox_answers_as_published() -> None:
    """Salmon et al.'s known-answer vectors for Philox4x32 with 7 rounds, counter and key all zero."""
    zero = torch.zeros((), dtype=torch.int64)
    assert reference_sample.philox(zero, zero, zero, zero).tolist() == [0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48]


def test_a_row_does_not_depend_on_its_batch(sampler: Callable[[Rows], Tensor]) -> None:
    rows = mixed_rows(9, 1100)
    together = sampler(rows)
    assert torch.equal(sampler(rows.pick([4])), together[4:5])
    assert torch.equal(sampler(rows.pick([8, 2, 2])), together[[8, 2, 2]])


def test_same_seed_other_position_gives_other_tokens(sampler: Callable[[Rows], Tensor]) -> None:
    rows = rows_of(torch.zeros(16, 500))
    rows = replace(rows, seeds=torch.zeros(16, dtype=torch.int64))
    assert len(set(sampler(rows).tolist())) > 10
    assert torch.equal(sampler(rows), sampler(rows))


@pytest.mark.parametrize(
    "filters", [{"top_k": 1}, {"top_k": 3}, {"min_p": 1.0}, {"top_k": 2, "temperature": 0.3}], ids=str
)
def test_zeros_at_a_threshold_stay(filters: dict[str, Any], sampler: Callable[[Rows], Tensor]) -> None:
    """Of either sign: no number is less than 0.0 and not less than -0.0."""
    logits = torch.full((6, 700), -3.0)
    for row in range(6):
        logits[row, [5, 300 + 4 * row, 690]] = torch.tensor([0.0, -0.0, 0.0])
    allowed = torch.zeros(6, 700, dtype=torch.bool)
    allowed[:, 200:650] = True
    masked = replace(rows_of(logits, **filters), mask_table=bit_rows(allowed), mask_rows=torch.arange(6).int())
    if filters.get("top_k", 1) == 1:
        assert sampler(masked).tolist() == [300 + 4 * row for row in range(6)]
    few = sampler(rows_of(logits, **{"top_k": 3, **filters})).tolist()
    assert all(token in (5, 300 + 4 * row, 690) for row, token in enumerate(few))
