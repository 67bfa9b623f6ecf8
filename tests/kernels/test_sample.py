"""Masked sampling: the twin against probability theory, the fast paths against the twin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from phloem.kernels import ops, reference

Sampler = Callable[..., Tensor]


@dataclass(frozen=True)
class Rows:
    """The arguments of `sample`, in order."""

    logits: Tensor
    mask_table: Tensor | None
    mask_rows: Tensor
    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    min_p: Tensor
    seeds: Tensor
    positions: Tensor

    def arguments(self, device: torch.device | str = "cpu") -> list[Tensor | None]:
        values = [getattr(self, name) for name in self.__dataclass_fields__]
        return [None if v is None else v.to(device) for v in values]

    def pick(self, rows: list[int]) -> Rows:
        """The same arguments for some of the rows."""
        picked = {n: getattr(self, n)[rows] for n in self.__dataclass_fields__ if n != "mask_table"}
        return Rows(mask_table=self.mask_table, **picked)


def rows_of(
    logits: Tensor, *, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> Rows:
    """Unmasked rows; each has a seed and a position of its own."""
    n = len(logits)
    return Rows(
        logits,
        None,
        torch.full((n,), -1, dtype=torch.int32),
        torch.full((n,), temperature),
        torch.full((n,), top_k, dtype=torch.int32),
        torch.full((n,), top_p),
        torch.full((n,), min_p),
        torch.arange(n) * 7 - 3,
        torch.arange(n) + 2**33,
    )


def bit_rows(allowed: Tensor) -> Tensor:
    """`[M, V]` bool -> `[M, W]` int32 bit rows."""
    num_rows, vocab_size = allowed.shape
    padded = torch.zeros(num_rows, -(-vocab_size // 32) * 32, dtype=torch.int64)
    padded[:, :vocab_size] = allowed
    words = (padded.view(num_rows, -1, 32) << torch.arange(32)).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


@pytest.fixture(params=["reference", "cpu", "triton"])
def sampler(request: pytest.FixtureRequest, device: torch.device) -> Callable[[Rows], Tensor]:
    """rows -> token ids on the CPU, by each implementation."""

    def run(rows: Rows) -> Tensor:
        if request.param == "reference":
            return reference.sample(*rows.arguments())  # type: ignore[arg-type]
        if request.param == "cpu":
            return ops.sample(*rows.arguments())  # type: ignore[arg-type]
        from phloem.kernels import triton_sample

        return triton_sample.sample(*rows.arguments(device), num_processors=8).cpu()  # type: ignore[arg-type]

    return run


def mixed_rows(num_rows: int, vocab_size: int) -> Rows:
    """Everything at once: masks (one empty, one with a single token), filters, temperatures, a NaN."""
    logits = torch.randn(num_rows, vocab_size) * 3
    logits[0, 3] = torch.nan
    allowed = torch.rand(6, vocab_size) < torch.tensor([0.5, 0.9, 0.01, 0.0, 0.0, 1.0])[:, None]
    allowed[4, vocab_size - 1] = True
    coin = torch.rand(5, num_rows) < 0.5
    return Rows(
        logits,
        bit_rows(allowed),
        torch.arange(num_rows, dtype=torch.int32) % 7 - 1,
        torch.rand(num_rows) * 2 * coin[0],
        (torch.randint(1, 40, (num_rows,)) * coin[1]).to(torch.int32),
        torch.where(coin[2], torch.rand(num_rows), 1.0),
        torch.rand(num_rows) * 0.3 * coin[3],
        torch.randint(-(2**62), 2**62, (num_rows,)),
        torch.randint(0, 2**40, (num_rows,)),
    )


@pytest.mark.parametrize("vocab_size", [40, 1000, 5000])
@pytest.mark.parametrize("path", ["cpu", "triton"])
def test_fast_paths_choose_what_the_twin_chooses(path: str, vocab_size: int, device: torch.device) -> None:
    rows = mixed_rows(300 if path == "cpu" else 14, vocab_size)
    expected = reference.sample(*rows.arguments())  # type: ignore[arg-type]
    if path == "cpu":
        actual = ops.sample(*rows.arguments())  # type: ignore[arg-type]
    else:
        from phloem.kernels import triton_sample

        actual = triton_sample.sample(*rows.arguments(device), num_processors=30).cpu()  # type: ignore[arg-type]
    assert torch.equal(actual, expected)


def test_half_logits_are_taken(sampler: Callable[[Rows], Tensor]) -> None:
    rows = rows_of((torch.randn(3, 100) * 3).half())
    assert torch.equal(sampler(rows), reference.sample(*rows.arguments()))  # type: ignore[arg-type]


def test_temperature_zero_is_argmax_and_the_lowest_id_wins_ties(sampler: Callable[[Rows], Tensor]) -> None:
    logits = torch.randn(2, 4500)
    logits[0, [4400, 17, 3000]] = 9.0
    logits[1, 4499] = 9.0
    assert sampler(rows_of(logits, temperature=0.0)).tolist() == [17, 4499]


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
def test_filters_keep_what_they_say(options: dict[str, float], kept: set[int], sample: Sampler) -> None:
    probabilities = torch.tensor([0.25, 0.1, 0.4, 0.05, 0.2])
    rows = rows_of(probabilities.log().expand(40, 5).contiguous(), **options)  # type: ignore[arg-type]
    assert set(sample(*rows.arguments()).tolist()) == kept


@pytest.mark.parametrize("vocab_size", [7, 4200])
def test_the_law_is_the_softmax(vocab_size: int) -> None:
    """Chi-square of 40,000 draws over the seven tokens that carry the mass."""
    num_draws, place = 40_000, torch.tensor([0, 1, 2, 3, 4, 5, 6]) * (vocab_size // 7)
    logits = torch.full((vocab_size,), -40.0)
    logits[place] = torch.tensor([0.0, 1.0, 2.0, -1.0, 0.5, 0.5, -3.0])
    rows = rows_of(logits.expand(num_draws, vocab_size), temperature=0.8)
    counts = torch.bincount(ops.sample(*rows.arguments()), minlength=vocab_size)[place]  # type: ignore[arg-type]
    expected = torch.softmax(logits[place] / 0.8, 0) * num_draws
    assert counts.sum() == num_draws
    assert ((counts - expected) ** 2 / expected).sum() < 22.5  # 99.9 % of chi-square with 6 degrees of freedom


@pytest.mark.parametrize("axis", ["seed", "position", "token"])
def test_noise_is_independent_along_every_axis(axis: str) -> None:
    steps = torch.arange(50_000)
    fixed = torch.tensor(12345)
    seed, position, token = (steps if axis == name else fixed for name in ("seed", "position", "token"))
    noise = reference.gumbel_noise(seed, position, token).double()
    assert abs(noise.mean() - 0.5772) < 0.025  # four standard errors
    assert abs(noise.var() - torch.pi**2 / 6) < 0.08
    for lag in (1, 2, 1024):
        assert abs(torch.corrcoef(torch.stack([noise[:-lag], noise[lag:]]))[0, 1]) < 0.02


def test_philox_answers_as_published() -> None:
    """Salmon et al.'s known-answer vectors for Philox4x32 with 7 rounds, counter and key all zero."""
    zero = torch.zeros(1, dtype=torch.int64)
    words = [int(reference.random_bits(zero, zero, zero + 1024 * lane)) for lane in range(4)]
    assert words == [0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48]


def test_a_row_does_not_depend_on_its_batch(sampler: Callable[[Rows], Tensor]) -> None:
    rows = mixed_rows(9, 1100)
    together = sampler(rows)
    assert torch.equal(sampler(rows.pick([4])), together[4:5])
    assert torch.equal(sampler(rows.pick([8, 2, 2])), together[[8, 2, 2]])


def test_a_row_does_not_depend_on_how_the_vocabulary_is_split(device: torch.device) -> None:
    from phloem.kernels import triton_sample

    rows = mixed_rows(3, 13_000)
    once, split = (
        triton_sample.sample(*rows.arguments(device), num_processors=n)  # type: ignore[arg-type]
        for n in (1, 1000)
    )
    assert torch.equal(once, split)


def test_same_seed_other_position_gives_other_tokens(sampler: Callable[[Rows], Tensor]) -> None:
    rows = rows_of(torch.zeros(16, 500))
    rows = replace(rows, seeds=torch.zeros(16, dtype=torch.int64))
    assert len(set(sampler(rows).tolist())) > 10
    assert torch.equal(sampler(rows), sampler(rows))
