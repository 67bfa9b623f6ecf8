"""Masked sampling: the twin against probability theory, the fast paths against the twin and against float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from phloem.kernels import LogitEdits, Logprobs, ops
from phloem.kernels.plain import ops as reference
from phloem.kernels.plain import sample as reference_sample

from .rounding import assert_within, gamma


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
    edits: LogitEdits | None = None

    def arguments(self, device: torch.device | str = "cpu") -> list[Any]:
        values = [getattr(self, name) for name in self.__dataclass_fields__ if name != "edits"]
        edits = self.edits and LogitEdits(*(getattr(self.edits, n).to(device) for n in LogitEdits.__slots__))
        return [*(None if v is None else v.to(device) for v in values), edits]

    def pick(self, rows: list[int]) -> Rows:
        """The same arguments for some of the rows."""
        kept = ("mask_table", "edits")
        picked = {n: getattr(self, n)[rows] for n in self.__dataclass_fields__ if n not in kept}
        edits = self.edits and replace(
            self.edits,
            **{n: getattr(self.edits, n)[rows] for n in LogitEdits.__slots__ if n not in ("counts", "biases")},
        )
        return Rows(mask_table=self.mask_table, edits=edits, **picked)


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


def implementation(name: str, device: torch.device) -> Callable[..., tuple[Tensor, Logprobs | None]]:
    """(rows, num_top) -> token ids and log-probabilities on the CPU."""

    def run(rows: Rows, num_top: int | None = None) -> tuple[Tensor, Logprobs | None]:
        if name == "reference":
            return reference.sample(*rows.arguments(), num_top)
        if name == "cpu":
            return ops.sample(*rows.arguments(), num_top)
        from phloem.kernels.triton import sample as triton_sample

        token_ids, found = triton_sample.sample(*rows.arguments(device), num_top)
        return token_ids.cpu(), found and Logprobs(*(t.cpu() for t in found))

    return run


@pytest.fixture(params=["reference", "cpu", "triton"])
def sampler(request: pytest.FixtureRequest, device: torch.device) -> Callable[[Rows], Tensor]:
    """rows -> token ids on the CPU, by each implementation."""
    return lambda rows: implementation(request.param, device)(rows)[0]


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is allocated without a value holds nonsense, so that what is never written shows."""
    empty = torch.empty

    def spoilt(*size: Any, **options: Any) -> Tensor:
        made = empty(*size, **options)
        return made.fill_(torch.nan if made.is_floating_point() else -99)

    monkeypatch.setattr(torch, "empty", spoilt)
    monkeypatch.setattr(torch, "empty_like", lambda like, **options: spoilt(like.shape, device=like.device, **options))


def mixed_rows(num_rows: int, vocab_size: int) -> Rows:
    """Everything at once: masks (one empty, one with a single token), filters, temperatures, a NaN."""
    logits = torch.randn(num_rows, vocab_size) * 3
    logits[0, min(3, vocab_size - 1)] = torch.nan
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


def random_edits(num_rows: int, vocab_size: int) -> LogitEdits:
    """Penalties and biases of all signs; some rows have none, some have drafted tokens on top."""
    counts = torch.randint(0, 4, (3, vocab_size)) * (torch.rand(3, vocab_size) < 0.3)
    counts -= 0x8000 * (torch.rand(3, vocab_size) < 0.2)
    return LogitEdits(
        counts.to(torch.int16),
        torch.randint(-1, 3, (num_rows,)).to(torch.int32),
        torch.rand(num_rows) * 2 + 0.3,
        torch.rand(num_rows) * 4 - 2,
        torch.rand(num_rows) * 4 - 2,
        torch.randint(-1, vocab_size, (num_rows, 3)).to(torch.int32),
        torch.randn(2, vocab_size) * 3,
        torch.randint(-1, 2, (num_rows,)).to(torch.int32),
    )


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("is_edited", [False, True], ids=["plain", "edited"])
@pytest.mark.parametrize("vocab_size", [40, 1000, 5000])
@pytest.mark.parametrize("path", ["cpu", "triton"])
def test_fast_paths_choose_what_the_twin_chooses(
    path: str, vocab_size: int, is_edited: bool, device: torch.device
) -> None:
    rows = mixed_rows(300 if path == "cpu" else 14, vocab_size)
    if is_edited:
        rows = replace(rows, edits=random_edits(len(rows.seeds), vocab_size))
    assert torch.equal(implementation(path, device)(rows)[0], implementation("reference", device)(rows)[0])


@pytest.mark.parametrize("vocab_size", [256, 512])
def test_groups_that_may_be_drawn_by_their_mass_alone_are_looked_at(vocab_size: int) -> None:
    """One peak among groups of 128 equal scores, which have as much mass as the bound on a group's mass says."""
    num_rows = 2000
    peak = torch.randint(0, vocab_size, (num_rows,))
    is_beside = torch.arange(vocab_size) // 128 == peak[:, None] // 128
    logits = torch.where(is_beside, -50.0, 0.0)
    logits[torch.arange(num_rows), peak] = torch.rand(num_rows) * 4 + 3  # about log(128), which is 4.85
    rows = rows_of(logits)
    assert torch.equal(ops.sample(*rows.arguments(), None)[0], reference.sample(*rows.arguments(), None)[0])


@pytest.mark.filterwarnings("ignore:overflow encountered")  # of NumPy, by which Triton's interpreter computes
@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("path", ["cpu", "triton"])
def test_fast_paths_choose_what_the_twin_chooses_at_the_edges_of_float32(path: str, device: torch.device) -> None:
    """Subnormal numbers, neighbours of 1, and logits as large as they are, or as small."""
    small = [0.0, 1e-45, 1e-40, 1.1754942e-38, 1.1754944e-38, 1e-30, 1e-20, 1e-6]
    near_one = [1.0 - 2.0**-24, 1.0, 1.0 + 2.0**-23]

    def some(values: list[float]) -> Tensor:
        return torch.tensor(values)[torch.randint(0, len(values), (num_rows,))]

    num_rows = 200 if path == "cpu" else 20
    rows, edits = mixed_rows(num_rows, 300), random_edits(num_rows, 300)
    signs = torch.where(torch.rand(2, num_rows) < 0.5, 1.0, -1.0)
    rows = replace(
        rows,
        logits=rows.logits * some([1.0, 1e-38, 1e30, 3e37])[:, None],
        temperature=some([0.0, 1e-6, *near_one, 100.0]),
        top_p=some([1e-30, 1e-6, 0.5, *near_one]),
        min_p=some([*small, *near_one[:2]]),
        edits=replace(
            edits,
            repetition=some([1e-30, 1e-6, *near_one, 10.0]),
            presence=signs[0] * some([*small, *near_one, 2.0]),
            frequency=signs[1] * some([*small, *near_one, 2.0]),
        ),
    )
    chosen, expected = (implementation(name, device)(rows)[0] for name in (path, "reference"))
    assert torch.equal(chosen, expected)


def assert_logprobs(found: Logprobs, exact: Logprobs, logits: Tensor) -> None:
    """Of sums in any order: a relative error of the sum is an absolute one of its logarithm; then a few roundings."""
    finite = logits.double().nan_to_num(0.0, 0.0, 0.0).abs()
    bound = gamma(logits.shape[1] + 64) + gamma(16) * finite.amax(-1, keepdim=True)
    assert_within(found.top, exact.top, bound)
    assert_within(found.chosen, exact.chosen, bound[:, 0])


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("path", ["reference", "cpu", "triton"])
@pytest.mark.parametrize(("vocab_size", "num_top"), [(3, 5), (129, 1), (700, 7), (5000, 20), (300, 0)], ids=str)
def test_logprobs_agree_with_float64(vocab_size: int, num_top: int, path: str, device: torch.device) -> None:
    """Of chosen and likeliest tokens, under the raw logits: masks, edits and temperature do not count."""
    rows = mixed_rows(7, vocab_size)
    rows = replace(rows, logits=rows.logits.round(decimals=2), edits=random_edits(7, vocab_size))  # rounded: ties
    token_ids, found = implementation(path, device)(rows, num_top)
    exact = reference_sample.logprobs_in(torch.float64, rows.logits, token_ids, num_top)
    assert found is not None
    assert torch.equal(found.top_ids, exact.top_ids)
    assert_logprobs(found, exact, rows.logits)


@pytest.mark.parametrize("path", ["cpu", "triton"])
def test_logprobs_of_given_tokens(path: str, device: torch.device) -> None:
    logits, token_ids = (torch.randn(3, 400) * 5).half(), torch.tensor([399, 0, -1])
    if path == "cpu":
        found = ops.logprobs(logits, token_ids, 4)
    else:
        from phloem.kernels.triton import logprobs as triton_logprobs

        found = triton_logprobs.logprobs(logits.to(device), token_ids.to(device), 4)
    exact = reference_sample.logprobs_in(torch.float64, logits, token_ids, 4)
    assert torch.equal(found.top_ids.cpu(), exact.top_ids)
    assert_logprobs(found, exact, logits)


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


@pytest.mark.parametrize("vocab_size", [50, 9000])
@pytest.mark.parametrize(
    "filters", [{"top_k": 37}, {"top_p": 0.4}, {"top_k": 700, "top_p": 0.9}, {"min_p": 1.0}], ids=str
)
def test_equal_scores_stay_or_go_together(filters: dict[str, float], vocab_size: int, device: torch.device) -> None:
    """All tokens alike: whatever the filter, none may go, and every path draws the same."""
    rows = rows_of(torch.full((3, vocab_size), 1.25), **filters)  # type: ignore[arg-type]
    drawn = [implementation(name, device)(rows)[0].tolist() for name in ("reference", "cpu", "triton")]
    assert drawn[0] == drawn[1] == drawn[2]
    unfiltered = implementation("reference", device)(rows_of(rows.logits))[0].tolist()
    assert drawn[0] == unfiltered


@pytest.mark.parametrize("step", [0.0, 0.5], ids=["distinct", "ties"])
@pytest.mark.parametrize("path", ["cpu", "triton"])
def test_top_k_is_exact_for_every_k(path: str, step: float, device: torch.device) -> None:
    """Fewer groups than k, as many, more; scores of both signs; a mask that leaves fewer tokens than k."""
    vocab_size = 4300
    top_k = torch.tensor([1, 2, 33, 34, 35, 300, 4299, 50, 50], dtype=torch.int32)
    logits = torch.randn(len(top_k), vocab_size) * 3 - 2
    logits[1] = logits[1].abs() * -1
    if step:
        logits = (logits / step).round() * step
    allowed = torch.zeros(1, vocab_size, dtype=torch.bool)
    allowed[0, torch.randint(0, vocab_size, (40,))] = True
    mask_rows = torch.tensor([-1] * 8 + [0], dtype=torch.int32)
    options = {"temperature": torch.full((9,), 30.0), "mask_table": bit_rows(allowed), "mask_rows": mask_rows}
    rows = replace(rows_of(logits, top_p=0.9), top_k=top_k, **options)  # type: ignore[arg-type]  # hot: any may come
    for position in range(2 if path == "triton" else 100):
        rows = replace(rows, positions=torch.full((9,), position))
        assert torch.equal(implementation(path, device)(rows)[0], implementation("reference", device)(rows)[0])


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


@pytest.mark.parametrize("kind", ["fp16", "bf16"])
@pytest.mark.parametrize("vocab_size", [999, 2000])
def test_half_types_are_widened_as_they_are_read(
    vocab_size: int, kind: str, device: torch.device, bfloat16: torch.dtype
) -> None:
    """On a GPU logits come as the last product has them."""
    from phloem.kernels.triton import sample as triton_sample

    rows = mixed_rows(12, vocab_size)
    half = replace(rows, logits=rows.logits.to(bfloat16 if kind == "bf16" else torch.float16))
    wide = replace(half, logits=half.logits.float())
    edits = random_edits(12, vocab_size)
    (found, logprobs), (expected, others) = (
        triton_sample.sample(*replace(each, edits=edits).arguments(device), 3) for each in (half, wide)
    )
    assert torch.equal(found, expected)
    assert logprobs is not None
    assert others is not None
    for name in ("chosen", "top_ids", "top"):
        pair = (getattr(each, name).nan_to_num() for each in (logprobs, others))
        assert torch.equal(*pair), name
