"""Masked sampling: the fast paths against the twin and against float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from phloem.kernels import Logprobs, ops
from phloem.kernels.plain import ops as reference
from phloem.kernels.plain import sample as reference_sample

from . import lazy_triton as triton
from .rounding import assert_within, gamma
from .sample_rows import bit_rows, implementation, mixed_rows, random_edits, rows_of


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is allocated without a value holds nonsense, so that what is never written shows."""
    empty = torch.empty

    def spoilt(*size: Any, **options: Any) -> Tensor:
        made = empty(*size, **options)
        return made.fill_(torch.nan if made.is_floating_point() else -99)

    monkeypatch.setattr(torch, "empty", spoilt)
    monkeypatch.setattr(torch, "empty_like", lambda like, **options: spoilt(like.shape, device=like.device, **options))


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("is_edited", [False, True], ids=["plain", "edited"])
@pytest.mark.parametrize("vocab_size", [40, 1000, 5000])
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


def test_logprobs_of_given_tokens(path: str, device: torch.device) -> None:
    logits, token_ids = (torch.randn(3, 400) * 5).half(), torch.tensor([399, 0, -1])
    if path == "cpu":
        found = ops.logprobs(logits, token_ids, 4)
    else:
        found = triton.logprobs.logprobs(logits.to(device), token_ids.to(device), 4)
    exact = reference_sample.logprobs_in(torch.float64, logits, token_ids, 4)
    assert torch.equal(found.top_ids.cpu(), exact.top_ids)
    assert_logprobs(found, exact, logits)


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
    for position in range(2 if path == "triton" else 40):
        rows = replace(rows, positions=torch.full((9,), position))
        assert torch.equal(implementation(path, device)(rows)[0], implementation("reference", device)(rows)[0])


@pytest.mark.parametrize(("vocab_size", "kind"), [(2000, "fp16"), (999, "bf16")])
def test_half_types_are_widened_as_they_are_read(
    vocab_size: int, kind: str, device: torch.device, bfloat16: torch.dtype
) -> None:
    """On a GPU logits come as the last product has them."""
    rows = mixed_rows(12, vocab_size)
    half = replace(rows, logits=rows.logits.to(bfloat16 if kind == "bf16" else torch.float16))
    wide = replace(half, logits=half.logits.float())
    edits = random_edits(12, vocab_size)
    (found, logprobs), (expected, others) = (
        triton.sample.sample(*replace(each, edits=edits).arguments(device), 3) for each in (half, wide)
    )
    assert torch.equal(found, expected)
    assert logprobs is not None
    assert others is not None
    for name in ("chosen", "top_ids", "top"):
        pair = (getattr(each, name).nan_to_num() for each in (logprobs, others))
        assert torch.equal(*pair), name
