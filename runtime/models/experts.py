"""A mixture of experts in place of a layer's MLP: every token goes through the few experts that its router chooses.

::

    hidden ─┬─ router ─ scores ─ choice ─ shares ─┐
            ├─ chosen experts, gated MLPs ────────┴─ sum ─┐
            └─ shared expert (DeepSeek, Qwen2) ───────────┴─ +

The router is kept and computed in fp32, whatever the weights' type, rounded to int8 or not: a choice that tips over is
another expert, not a small error. Which tokens meet in an expert is `ops.mix_experts`' matter, and changes no token's
numbers on the CPU. On a GPU nothing here waits for it, so that a step can be captured.

Cost: the arithmetic of `num_chosen` experts a token; for the weights, reading those of every expert that some token
chose.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...kernels import ExpertChoice, Gate, LinearWeight, LinearWeights, ops
from ..parallel.ranks import Ranks
from .config import ModelConfig
from .experts_config import ExpertsConfig
from .part import Part, joined
from .partial_linear import partial_linear
from .reader import Reader
from .stacked_experts import read_stacked


@dataclass(frozen=True, slots=True)
class ExpertRules:
    """What all layers with experts have in common, as the kernels take it; own: the experts of this rank."""

    config: ExpertsConfig
    choice: ExpertChoice
    gate: Gate
    own: Part

    @staticmethod
    def of(config: ModelConfig, own: Part) -> ExpertRules | None:
        """None: the model has no experts."""
        experts = config.experts
        if experts is None:
            return None
        choice = ExpertChoice(
            experts.num_chosen,
            experts.options.scoring,
            experts.normalises,
            experts.scale,
            experts.num_groups,
            experts.num_chosen_groups,
            experts.options.counts_top,
        )
        gate = Gate("clamped", *experts.clamps) if experts.clamps is not None else Gate(config.activation)
        gate = Gate("relu2") if experts.options.gateless else gate
        return ExpertRules(experts, choice, gate, own)


@dataclass(frozen=True, slots=True)
class ExpertsWeights:
    """One layer's mixture; router and bias are fp32."""

    router: LinearWeight  # hidden_size -> num_experts, and one more for the shared expert where it is weighed
    bias: Tensor | None  # [num_experts], added to scores for the choice alone
    gate_up: LinearWeights  # per expert, hidden_size -> 2 · inner_size
    down: LinearWeights  # per expert, inner_size -> hidden_size
    shared_gate_up: LinearWeight | None  # hidden_size -> 2 · shared_size
    shared_down: LinearWeight | None
    to_latent: LinearWeight | None = None  # hidden_size -> latent_size, what the experts take; None: hidden states
    from_latent: LinearWeight | None = None
    scales: Tensor | None = None  # [num_experts] fp32, factors on shares


def read_experts(reader: Reader, base: str, experts: ExpertsConfig) -> ExpertsWeights:
    """The tensors below `base` (`model.layers.<i>.`).

    Raises:
        ModelError: a tensor is missing or odd.
    """
    names, hidden = experts.options.names, reader.config.hidden_size
    latent = experts.latent_size
    read = read_stacked if names.stacked else _read_fused if names.fused else _read_each
    gate_up, down = read(reader, base, experts)
    routers, rows = [names.router], [experts.num_experts]
    if experts.num_scored > experts.num_experts:
        routers, rows = [names.router, names.shared_gate], [experts.num_experts, 1]
    shared, shared_base = reader.cut.shared, f"{base}{names.shared}."
    has_bias, together = experts.options.has_bias, names.of_shared.gate_up("")
    bias_shape = [1, experts.num_experts] if experts.options.bias_in_row else [experts.num_experts]
    return ExpertsWeights(
        router=reader.exact(base, routers, rows, hidden, experts.options.linear_biases),
        bias=reader.tensor([f"{base}{names.bias}"], bias_shape[:1], bias_shape[1:]).flatten().float()
        if has_bias
        else None,
        gate_up=gate_up,
        down=down,
        shared_gate_up=reader.linear(
            shared_base,
            together,
            [joined([shared] * (experts.num_firsts // len(together)))] * len(together),
            hidden,
            False,
        )
        if shared.size
        else None,
        shared_down=reader.summand(shared_base, names.of_shared.down, shared, False) if shared.size else None,
        to_latent=reader.linear(base, names.latents[:1], [latent], hidden, False) if latent else None,
        from_latent=reader.linear(base, names.latents[1:], [hidden], latent, False) if latent else None,
        scales=reader.tensor([f"{base}{names.scales}"], [experts.num_experts], []).float() if names.scales else None,
    )


def _read_fused(reader: Reader, base: str, experts: ExpertsConfig) -> tuple[LinearWeights, LinearWeights]:
    """Gate and up, and down, of experts whose weights are single tensors, `[E, outputs, inputs]`."""
    hidden, inner, number = reader.config.hidden_size, experts.inner_size, reader.cut.experts
    base = f"{base}{experts.options.names.fused}"
    return (
        reader.packing.each(reader.numbers([f"{base}.input_linear.weight"], [number], [2 * inner, hidden])),
        reader.packing.each(reader.numbers([f"{base}.output_linear.weight"], [number], [hidden, inner])),
    )


def _read_each(reader: Reader, base: str, experts: ExpertsConfig) -> tuple[LinearWeights, LinearWeights]:
    """Gate and up, and down, of experts that have tensors of their own."""
    names, inner = experts.options.names, experts.inner_size
    hidden = experts.latent_size or reader.config.hidden_size
    own, prefixes = reader.cut.experts, [f"{base}{names.expert.format(index)}." for index in range(experts.num_experts)]
    ((begin, end),) = own.ranges
    for prefix in prefixes[:begin] + prefixes[end:]:
        reader.checkpoint.leave(prefix)
    prefixes = prefixes[begin:end]
    gate_up = [name for prefix in prefixes for name in names.gate_up(prefix)]
    down = [f"{prefix}{names.down}" for prefix in prefixes]
    has_bias = experts.options.linear_biases
    return (
        reader.weights(gate_up, [inner] * len(gate_up), hidden, own.count, has_bias),
        reader.weights(down, [hidden] * len(down), inner, own.count, has_bias),
    )


def mixture(
    normed: Tensor,
    weights: ExpertsWeights,
    rules: ExpertRules,
    slots: Tensor | None,
    ranks: Ranks,
    scored: Tensor | None = None,
) -> Tensor:
    """What a rank's part of the mixture makes of hidden states `[T, C]`.

    slots: `[T]` int64; rows below 0 only fill a step up. scored: what the router takes, `[T, C]` fp32; None: the same.
    """
    experts = rules.config
    logits = ops.linear(normed.float() if scored is None else scored, weights.router)
    chosen, shares = ops.choose_experts(logits[:, : experts.num_experts], weights.bias, rules.choice, slots)
    if experts.nearness:
        shares = _shares_of_near(logits, chosen, experts.nearness)
    if weights.scales is not None:
        shares = shares * weights.scales[_known(chosen, experts.num_experts)]
    if rules.own.count < experts.num_experts:
        chosen, shares = _own(chosen, shares, rules.own)
    given = normed if weights.to_latent is None else ops.linear(normed, weights.to_latent)
    if experts.options.scales_inputs:  # a row for each choice
        given = (given[:, None] * shares[..., None].to(given.dtype)).flatten(0, 1)
        chosen, shares = chosen.flatten()[:, None], torch.ones_like(shares).flatten()[:, None]
    mixed = ops.mix_experts(given, chosen, shares, weights.gate_up, weights.down, gate=rules.gate)
    if experts.options.scales_inputs:
        mixed = mixed.view(len(normed), experts.num_chosen, -1).sum(1)
    if weights.from_latent is not None:
        mixed = ops.linear(mixed, weights.from_latent)
    if weights.shared_gate_up is None or weights.shared_down is None:
        return mixed
    gated = ops.gated(ops.linear(normed, weights.shared_gate_up), rules.gate)
    shared = partial_linear(gated, weights.shared_down, ranks)
    if experts.num_scored > experts.num_experts:
        shared = shared * ops.sigmoid(logits[:, experts.num_experts :]).to(shared.dtype)
    return mixed + shared


def _shares_of_near(logits: Tensor, chosen: Tensor, nearness: float) -> Tensor:
    """SparseMixer (arXiv 2409.12136) at inference: the share of each choice in a softmax over the logits near it, but
    for those that were chosen before."""
    shares, left = [], logits
    for expert in torch.split(_known(chosen, logits.shape[1]), 1, dim=1):
        most = left.gather(1, expert)
        is_far = (most - logits) / torch.maximum(logits.abs(), most) > nearness
        shares.append(torch.softmax(left.masked_fill(is_far, float("-inf")), -1).gather(1, expert))
        left = left.scatter(1, expert, float("-inf"))
    return torch.cat(shares, 1)


def _known(chosen: Tensor, num_experts: int) -> Tensor:
    """The choice as an index: rows that fill a step up choose none."""
    return chosen.clamp(max=num_experts - 1).long()


def _own(chosen: Tensor, shares: Tensor, own: Part) -> tuple[Tensor, Tensor]:
    """The choice as a rank sees it that has these experts alone: others' are none, of no share."""
    is_own = (chosen >= own.first) & (chosen < own.first + own.count)
    return (chosen - own.first).masked_fill(~is_own, own.count), shares.masked_fill(~is_own, 0.0)
