"""Which experts rows choose, and the order of their pairs: Triton against the twin, the twin against torch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from phloem.kernels import ExpertChoice, choose_experts, mix_experts, reference

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


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("has_bias", [False, True], ids=["plain", "bias"])
def test_triton_chooses_as_its_twin_does(rule: tuple[int, ExpertChoice], has_bias: bool, device: torch.device) -> None:
    from phloem.kernels import triton_route

    num_experts, choice = rule
    both = torch.randn(7, num_experts + 1) * 3
    logits = both[:, :num_experts]  # as beside the score of a shared expert
    bias = torch.randn(num_experts) / 4 if has_bias else None
    slots = torch.tensor([5, -1, 0, 9, -1, 2, 1])
    expected, parts = reference.choose_experts(logits, bias, choice, slots)
    moved = None if bias is None else bias.to(device)
    chosen, shares = triton_route.choose_experts(both.to(device)[:, :num_experts], moved, choice, slots.to(device))
    assert torch.equal(chosen.cpu().long(), expected)
    assert (expected[slots < 0] == num_experts).all()
    torch.testing.assert_close(shares.cpu(), parts, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_the_twin_takes_the_best_and_their_shares(rule: tuple[int, ExpertChoice]) -> None:
    num_experts, choice = rule
    logits = torch.randn(50, num_experts)
    scores = (torch.softmax if choice.scoring == "softmax" else lambda x, _: torch.sigmoid(x))(logits.double(), -1)
    wanted = scores.clone()
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
    torch.testing.assert_close(parts.double(), shares * choice.scale, atol=1e-6, rtol=1e-5)


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
    from phloem.kernels import triton_route

    logits = torch.tensor([[0.0, 1.0, 1.0, 0.0, 1.0], [2.0, 2.0, 2.0, 2.0, 2.0]])
    for chosen, _ in (
        reference.choose_experts(logits, None, ExpertChoice(4)),
        triton_route.choose_experts(logits.to(device), None, ExpertChoice(4), None),
    ):
        assert chosen.tolist() == [[1, 2, 4, 0], [0, 1, 2, 3]]


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # numpy's, in Triton's interpreter
def test_what_is_no_number_chooses_experts_that_there_are(device: torch.device) -> None:
    from phloem.kernels import triton_route

    logits = torch.randn(4, 12)
    logits[0] = torch.nan
    logits[1, 3] = torch.inf
    logits[2] = -torch.inf
    for choice in (ExpertChoice(3, normalises=True), ExpertChoice(3, "sigmoid", True, 1.0, 4, 2, 2)):
        chosen, _ = triton_route.choose_experts(logits.to(device), None, choice, None)
        assert 0 <= int(chosen.min()) <= int(chosen.max()) < 12


def test_shares_of_the_best_are_a_softmax_over_them_alone() -> None:
    """As gpt-oss says it; far apart they neither vanish nor overflow."""
    logits = torch.tensor([[300.0, -5.0, 299.0, 0.0], [-300.0, -301.0, -400.0, -299.5]])
    chosen, shares = choose_experts(logits, None, ExpertChoice(2, normalises=True))
    assert chosen.tolist() == [[0, 2], [3, 0]]
    torch.testing.assert_close(shares, torch.softmax(logits.gather(1, chosen), -1))


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
    from phloem.kernels.triton_route import sorted_pairs

    chosen = np.random.default_rng(seed).integers(0, num_experts + 1, (num_rows, num_chosen), dtype=np.int32)
    experts = chosen.ravel()
    counts = np.bincount(experts, minlength=num_experts + 1)[:num_experts]
    order, starts, tiles = (
        found.cpu().numpy() for found in sorted_pairs(torch.from_numpy(chosen).to(device), num_experts, block_rows)
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
    for op in (mix_experts, reference.mix_experts):
        found, expected = fewer.run(op, weights), problem.run(op, weights)
        assert torch.equal(found[~is_none], expected[~is_none])
        assert (found[is_none] == 0).all()
