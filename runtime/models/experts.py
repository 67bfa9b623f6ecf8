"""A mixture of experts in place of a layer's MLP: every token goes through the few experts that its router chooses.

::

    hidden ─┬─ router ─ scores ─ choice ─ shares ─┐
            ├─ chosen experts, gated MLPs ────────┴─ sum ─┐
            └─ shared expert (DeepSeek) ──────────────────┴─ +

The router is kept and computed in fp32, whatever the weights' type, rounded to int8 or not: a choice that tips over is
another expert, not a small error. Which tokens meet in an expert is `ops.mix_experts`' matter, and changes no token's
numbers on the CPU. On a GPU nothing here waits for it, so that a step can be captured.

Cost: the arithmetic of `num_chosen` experts a token; for the weights, reading those of every expert that some token
chose.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from ...kernels import LinearWeight, LinearWeights, ops
from .experts_config import ExpertsConfig
from .reader import Reader


@dataclass(frozen=True, slots=True)
class ExpertsWeights:
    """One layer's mixture; router and bias are fp32."""

    router: LinearWeight  # hidden_size -> num_experts
    bias: Tensor | None  # [num_experts], added to scores for the choice alone
    gate_up: LinearWeights  # per expert, hidden_size -> 2 · inner_size
    down: LinearWeights  # per expert, inner_size -> hidden_size
    shared_gate_up: LinearWeight | None  # hidden_size -> 2 · shared_size
    shared_down: LinearWeight | None


def read_experts(reader: Reader, base: str, experts: ExpertsConfig) -> ExpertsWeights:
    """The tensors below `base` (`model.layers.<i>.`).

    Raises:
        ModelError: a tensor is missing or odd.
    """
    names, hidden, inner = experts.options.names, reader.config.hidden_size, experts.inner_size
    prefixes = [f"{base}{names.expert.format(index)}." for index in range(experts.num_experts)]
    gate_up = [f"{prefix}{name}.weight" for prefix in prefixes for name in (names.gate, names.up)]
    down = [f"{prefix}{names.down}.weight" for prefix in prefixes]
    shared, shared_base = experts.shared_size, f"{base}{names.shared}."
    stacked = reader.tensor(gate_up, [inner] * len(gate_up), [hidden])
    gathered = reader.tensor(down, [hidden] * len(down), [inner])
    has_bias = experts.options.has_bias
    return ExpertsWeights(
        router=reader.exact(f"{base}{names.router}.weight", experts.num_experts, hidden),
        bias=reader.tensor([f"{base}{names.bias}"], [experts.num_experts], []).float() if has_bias else None,
        gate_up=reader.packed_each(stacked.view(experts.num_experts, 2 * inner, hidden)),
        down=reader.packed_each(gathered.view(experts.num_experts, hidden, inner)),
        shared_gate_up=reader.linear(shared_base, (names.gate, names.up), [shared] * 2, hidden, False)
        if shared
        else None,
        shared_down=reader.linear(shared_base, (names.down,), [hidden], shared, False) if shared else None,
    )


def choose_experts(logits: Tensor, bias: Tensor | None, experts: ExpertsConfig) -> tuple[Tensor, Tensor]:
    """The experts of each row, best first, and their shares: logits `[T, E]` fp32 -> `[T, k]` int64, `[T, k]` fp32."""
    is_softmax = experts.options.scoring == "softmax"
    scores = torch.softmax(logits, -1) if is_softmax else torch.sigmoid(logits)
    wanted = scores if bias is None else scores + bias
    if experts.num_chosen_groups < experts.num_groups:
        groups = wanted.view(len(logits), experts.num_groups, -1)
        best = groups.topk(experts.options.counts_top, dim=-1).values.sum(-1)
        is_out = torch.ones_like(best, dtype=torch.bool)
        is_out.scatter_(1, best.topk(experts.num_chosen_groups, dim=-1).indices, False)
        wanted = groups.masked_fill(is_out[:, :, None], float("-inf")).flatten(1)
    chosen = wanted.topk(experts.num_chosen, dim=-1).indices
    shares = scores.gather(1, chosen)
    if experts.normalises:  # a sum in one order, whatever the number of rows
        total = reduce(torch.add, shares.unbind(1))
        shares = shares / (total if is_softmax else total + 1e-20)[:, None]
    return chosen, shares * experts.scale if experts.scale != 1.0 else shares


def mixture(normed: Tensor, weights: ExpertsWeights, experts: ExpertsConfig, *, is_gelu: bool) -> Tensor:
    """What the mixture makes of hidden states `[T, C]`."""
    logits = ops.linear(normed.float(), weights.router)
    chosen, shares = choose_experts(logits, weights.bias, experts)
    mixed = ops.mix_experts(normed, chosen, shares, weights.gate_up, weights.down, is_gelu=is_gelu)
    if weights.shared_gate_up is None or weights.shared_down is None:
        return mixed
    gated = ops.gelu_tanh_mul if is_gelu else ops.silu_mul
    return mixed + ops.linear(gated(ops.linear(normed, weights.shared_gate_up)), weights.shared_down)
