"""The rule by which a router chooses the experts of a token (mixture of experts). It is data, and knows no tensors.

::

    logits ── softmax or sigmoid ── scores ──(+ bias, for the choice alone)── best groups ── best experts
                                       └───────────────────────────────────────────── shares of these ──(÷ sum) · scale

Sources: Switch Transformers arXiv 2101.03961; Mixtral 2401.04088; DeepSeek-V2 2405.04434 (groups), DeepSeek-V3
2412.19437 (sigmoid scores, a bias that balances the choice and is no part of the shares).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Scoring = Literal["softmax", "sigmoid"]


@dataclass(frozen=True, slots=True)
class ExpertChoice:
    """The rule of one model.

    Attributes:
        num_chosen: experts of a token.
        scoring: of the router's logits.
        normalises: shares are divided by their sum.
        scale: factor on the shares.
        num_groups: equal groups that the experts form; num_chosen_groups: how many of them experts are chosen from.
        counts_top: how many of a group's best experts are summed to the group's score.
    """

    num_chosen: int
    scoring: Scoring = "softmax"
    normalises: bool = False
    scale: float = 1.0
    num_groups: int = 1
    num_chosen_groups: int = 1
    counts_top: int = 1
