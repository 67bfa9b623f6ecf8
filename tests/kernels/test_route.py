"""Which experts rows choose, and the order of their pairs: Triton against the twin, the twin against torch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from phloem.kernels import ExpertChoice
from phloem.kernels.ops import choose_experts, mix_experts
from phloem.kernels.plain import ops as reference

from . import lazy_triton as triton
from .rounding import assert_within, gamma
from .test_experts import CLAMPED, SHAPES, Problem

RULES = {
    "mixtral": (8, ExpertChoice(2, normalises=True)),
    "qwen3": (128, ExpertChoice(8, normalises=True)),
    "qwen2": (60, ExpertChoice(4)),
    "deepseek-v2": (160, ExpertChoice(6, scale=16.0, num_groups=8, num_chosen_groups=3)),
    "deepseek-v3": (256, ExpertChoice(8, "sigmoid", True, 2.5, 8, 4, 2)),
    "groups of one": (6, ExpertChoice(3, "sigmoid", True, 1.0, 6, 4, 2)),
    "all": (5, ExpertChoice(5, "sigmoid")),
    "one": (1, ExpertChoice(1)),
}


def scores_of(logits: Tensor, choice: ExpertChoice) -> Tensor:
    """In float64."""
    return torch.softmax(logits.double(), -1) if choice.scoring == "softmax" else torch.sigmoid(logits.double())


def clear_logits(num_rows: int, num_experts: int, choice: ExpertChoice, bias: Tensor | None = None) -> Tensor:
    """Random rows `[T, E]` whose scores, and sums of groups, lie farther apart than roundings move them."""
    added, rows = torch.zeros(num_experts) if bias is None else bias, []
    while len(rows) < num_rows:
        logits = torch.randn(num_experts) * 3
        wanted = scores_of(logits, choice) + added
        sums = wanted.view(choice.num_groups, -1).sort(descending=True).values[:, : choice.counts_top].sum(-1)
        if all(
            (each.sort().values.diff() > gamma(64) * (each.sort().values[1:].abs() + added.abs().max())).all()
            for each in (wanted, sums)
        ):
            rows.append(logits)
    return torch.stack(rows)


def share_bound(shares: Tensor, num_experts: int) -> Tensor:
    """Of the exponents' and the sums' roundings; logits lie at most 32 apart."""
    return gamma(2 * num_experts + 128) * shares.double().abs()


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("has_bias", [False, True], ids=["plain", "bias"])
def test_triton_chooses_as_its_twin_does(rule: tuple[int, ExpertChoice], has_bias: bool, device: torch.device) -> None:
    num_experts, choice = rule
    bias = torch.randn(num_experts) / 4 if has_bias else None
    both = torch.cat([clear_logits(7, num_experts, choice, bias), torch.randn(7, 1)], 1)
    logits = both[:, :num_experts]  # as next to the score of a shared expert
    slots = torch.tensor([5, -1, 0, 9, -1, 2, 1])
    expected, parts = reference.choose_experts(logits, bias, choice, slots)
    moved = None if bias is None else bias.to(device)
    chosen, shares = triton.route.choose_experts(both.to(device)[:, :num_experts], moved, choice, slots.to(device))
    assert torch.equal(chosen.cpu().long(), expected)
    assert (expected[slots < 0] == num_experts).all()
    assert_within(shares, parts, 2 * share_bound(parts, num_experts))


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_the_twin_takes_the_best_and_their_shares(rule: tuple[int, ExpertChoice]) -> None:
    num_experts, choice = rule
    logits = clear_logits(50, num_experts, choice)
    wanted = scores_of(logits, choice)
    if choice.num_groups > choice.num_chosen_groups:
        groups = wanted.view(50, choice.num_groups, -1)
        sums = groups.topk(min(choice.counts_top, groups.shape[-1])).values.sum(-1)
        worst = sums.topk(choice.num_groups - choice.num_chosen_groups, largest=False).indices
        groups.scatter_(1, worst[:, :, None].expand(-1, -1, groups.shape[-1]), -1.0)
    shares, chosen = wanted.topk(choice.num_chosen)
    if choice.normalises:
        shares = shares / shares.sum(-1, keepdim=True)
    found, parts = reference.choose_experts(logits, None, choice)
    assert torch.equal(found, chosen)
    assert_within(parts, shares * choice.scale, share_bound(shares * choice.scale, num_experts))


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_rows_choice_has_the_same_bits_alone_and_among_others(rule: tuple[int, ExpertChoice]) -> None:
    num_experts, choice = rule
    logits = (torch.randn(200, num_experts) * 3).round(decimals=1)  # equal ones among them
    chosen, shares = choose_experts(logits, None, choice)
    for row in range(0, 200, 7):
        alone = choose_experts(logits[row : row + 1], None, choice)
        assert torch.equal(alone[0][0], chosen[row])
        assert torch.equal(alone[1][0], shares[row])


def test_equal_scores_go_to_the_first(device: torch.device) -> None:
    logits = torch.tensor([[0.0, 1.0, 1.0, 0.0, 1.0], [2.0, 2.0, 2.0, 2.0, 2.0]])
    for chosen, _ in (
        reference.choose_experts(logits, None, ExpertChoice(4)),
        triton.route.choose_experts(logits.to(device), None, ExpertChoice(4), None),
    ):
        assert chosen.tolist() == [[1, 2, 4, 0], [0, 1, 2, 3]]


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # numpy's, in Triton's interpreter
def test_what_is_no_number_chooses_experts_that_there_are(device: torch.device) -> None:
    logits = torch.randn(4, 12)
    logits[0] = torch.nan
    logits[1, 3] = torch.inf
    logits[2] = -torch.inf
    for choice in (ExpertChoice(3, normalises=True), ExpertChoice(3, "sigmoid", True, 1.0, 4, 2, 2)):
        chosen, _ = triton.route.choose_experts(logits.to(device), None, choice, None)
        assert 0 <= int(chosen.min()) <= int(chosen.max()) < 12


def test_shares_of_the_best_are_a_softmax_over_them_alone() -> None:
    """As gpt-oss says it; far apart they neither vanish nor overflow."""
    logits = torch.tensor([[300.0, -5.0, 299.0, 0.0], [-300.0, -301.0, -400.0, -299.5]])
    chosen, shares = choose_experts(logits, None, ExpertChoice(2, normalises=True))
    assert chosen.tolist() == [[0, 2], [3, 0]]
    expected = torch.softmax(logits.double().gather(1, chosen), -1)
    assert_within(shares, expected, share_bound(expected, 5))


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 700), st.integers(1, 4), st.integers(1, 9), st.sampled_from([1, 4, 16]), st.integers(0, 1 << 30))
def test_pairs_are_sorted_by_expert_and_tiles_counted(
    num_rows: int, num_chosen: int, num_experts: int, block_rows: int, seed: int
) -> None:
    """More pairs than one round of a program takes among them, and rows that go nowhere."""
    check_sorting(num_rows, num_chosen, num_experts, block_rows, seed, torch.device("cpu"))


@pytest.mark.parametrize("num_rows", [1, 300])
def test_pairs_are_sorted_on_any_device(num_rows: int, device: torch.device) -> None:
    check_sorting(num_rows, 8, 128, 16, 0, device)


def check_sorting(
    num_rows: int, num_chosen: int, num_experts: int, block_rows: int, seed: int, device: torch.device
) -> None:
    chosen = np.random.default_rng(seed).integers(0, num_experts + 1, (num_rows, num_chosen), dtype=np.int32)
    experts = chosen.ravel()
    counts = np.bincount(experts, minlength=num_experts + 1)[:num_experts]
    order, starts, tiles = (
        found.cpu().numpy()
        for found in triton.route.sorted_pairs(torch.from_numpy(chosen).to(device), num_experts, block_rows)
    )
    assert np.array_equal(order, np.argsort(experts, kind="stable"))
    assert np.array_equal(starts, np.cumsum([0, *counts]))
    assert np.array_equal(tiles, np.cumsum([0, *-(-counts // block_rows)]))


def without(problem: Problem, rows: Tensor) -> Problem:
    """These rows choose none."""
    num_experts = len(problem.down)
    return replace(problem, chosen=problem.chosen.masked_fill(rows[:, None], num_experts))


# rows of pairs that there are not hold whatever lay in memory, and the gate computes on it
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("shape", [SHAPES["many rows"], (11, 5, 2, 48, 32, CLAMPED, True)], ids=["many", "few"])
def test_rows_that_choose_none_change_no_other(shape: tuple[object, ...], device: torch.device) -> None:
    problem = Problem.random(shape)  # type: ignore[arg-type]
    is_none = torch.rand(len(problem.x)) < 0.4
    fewer = without(problem, is_none)
    assert torch.equal(fewer.run_triton(device)[~is_none], problem.run_triton(device)[~is_none])
    weights = problem.weights()
    found, expected = fewer.run(mix_experts, weights), problem.run(mix_experts, weights)
    assert torch.equal(found[~is_none], expected[~is_none])
    assert (found[is_none] == 0).all()


def test_rows_that_choose_none_are_zero_in_the_twin() -> None:
    problem = Problem.random(SHAPES["gpt-oss"])
    is_none = torch.rand(len(problem.x)) < 0.4
    found = without(problem, is_none).run(reference.mix_experts, problem.weights())
    assert (found[is_none] == 0).all()
    exact, bound = problem.exact_and_bound()
    assert_within(found[~is_none], exact[~is_none], bound[~is_none])
