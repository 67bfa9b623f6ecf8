"""Scores of keys against sums written out one by one, and which keys are best against a sort of pairs."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.kernels import best_keys, score_keys

from .rounding import assert_within, gamma


@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(4, 2), (3, 3), (6, 1)])
@pytest.mark.parametrize("soft_cap", [0.0, 5.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scores_are_sums_of_attention_weights(
    num_heads: int, num_kv_heads: int, soft_cap: float, dtype: torch.dtype
) -> None:
    torch.manual_seed(3)
    num_rows, num_keys, head_dim, scale = 5, 19, 16, 0.7
    q = torch.randn(num_rows, num_heads, head_dim).to(dtype)
    keys = torch.randn(num_keys, num_kv_heads, head_dim).to(dtype)
    expected = torch.zeros(num_kv_heads, num_keys, dtype=torch.float64)
    for row in range(num_rows):
        seen = num_keys - num_rows + row + 1
        for head in range(num_heads):
            kv_head = head // (num_heads // num_kv_heads)
            products = [float(q[row, head].double() @ keys[key, kv_head].double()) * scale for key in range(seen)]
            if soft_cap:
                products = [soft_cap * math.tanh(product / soft_cap) for product in products]
            weights = [math.exp(product) for product in products]
            for key, weight in enumerate(weights):
                expected[kv_head, key] += weight / sum(weights)
    # an error of a product is a relative one of its weight, above and below the fraction
    most = float(q.double().norm(dim=-1).max() * keys.double().norm(dim=-1).max()) * scale
    off = math.expm1(2 * (gamma(head_dim + 16) * most + gamma(16) * soft_cap + gamma(num_keys + num_rows * num_heads)))
    assert_within(score_keys(q, keys, scale=scale, soft_cap=soft_cap), expected, off * expected)


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), min_size=6, max_size=40), st.integers(1, 5), st.data(), st.sampled_from([1, 3, 7]))
def test_best_keys_are_the_last_and_those_around_the_highest(
    scores: list[int], num_last: int, data: st.DataObject, width: int
) -> None:
    num_kept = data.draw(st.integers(num_last, len(scores)))
    num_others = len(scores) - num_last
    around = [max(scores[max(0, at - width // 2) : min(num_others, at + width // 2 + 1)]) for at in range(num_others)]
    order = sorted(range(num_others), key=lambda at: (-around[at], at))[: num_kept - num_last]
    expected = [*sorted(order), *range(num_others, len(scores))]
    rows = torch.tensor([[scores, scores[::-1]]], dtype=torch.float32)
    kept = best_keys(rows, num_kept, num_last, width)
    assert kept.shape == (1, 2, num_kept)
    assert kept[0, 0].tolist() == expected
