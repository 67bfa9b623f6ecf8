"""Which experts a token chooses and in what shares: a matter of its own scores, to the last bit."""

from __future__ import annotations

import torch

from phloem.kernels import Gate
from phloem.runtime.models.experts import choose_experts
from phloem.runtime.models.experts_config import ExpertOptions, ExpertsConfig


def experts(options: ExpertOptions, num_experts: int, num_chosen: int) -> ExpertsConfig:
    return ExpertsConfig(
        options, num_experts, num_chosen, 8, 0, (True,), options.normalises, 1.0, 1, 1, Gate(), is_mxfp4=False
    )


def test_a_tokens_shares_have_the_same_bits_alone_and_in_a_batch() -> None:
    """torch.sigmoid does not: the last numbers of a tensor come out otherwise than those before."""
    for scoring in ("sigmoid", "softmax"):
        config = experts(ExpertOptions(scoring=scoring, normalises=True), 7, 3)  # type: ignore[arg-type]
        logits = torch.randn(200, 7) * 3
        chosen, shares = choose_experts(logits, None, config)
        for row in range(200):
            alone = choose_experts(logits[row : row + 1], None, config)
            assert torch.equal(alone[0][0], chosen[row])
            assert torch.equal(alone[1][0], shares[row])


def test_shares_of_the_best_are_a_softmax_over_them_alone() -> None:
    """As gpt-oss says it; far apart they neither vanish nor overflow."""
    logits = torch.tensor([[300.0, -5.0, 299.0, 0.0], [-300.0, -301.0, -400.0, -299.5]])
    chosen, shares = choose_experts(logits, None, experts(ExpertOptions(normalises=True), 4, 2))
    assert chosen.tolist() == [[0, 2], [3, 0]]
    torch.testing.assert_close(shares, torch.softmax(logits.gather(1, chosen), -1))
