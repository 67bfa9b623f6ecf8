"""How many numbers a model has, and how many of them a token meets, from its configuration alone."""

from __future__ import annotations

from collections.abc import Iterator

from ..models import ModelConfig


def count_parameters(config: ModelConfig) -> tuple[int, int, int]:
    """(Numbers in norms and the like, kept as fp32; in routers, which are rounded to nothing less; in the rest)."""
    hidden, experts = config.hidden_size, config.experts
    numbers_each = 2 * hidden if config.options.norm == "layer" else hidden
    around = numbers_each * config.options.num_norms + 4 * (config.curve == "xielu")
    norms = config.num_heads * config.options.has_sinks
    if config.options.qk_norm and not config.options.weightless_norms:
        has_weights_each = config.options.whole_norms or config.options.own_norms
        num_normed_heads = config.num_heads + config.num_kv_heads if has_weights_each else 2
        norms += num_normed_heads * config.head_dim
    if config.latent is not None:
        norms += config.latent.num_norms
    num_norms, num_routed = config.num_layers * around + config.num_kv_layers * norms + numbers_each, 0
    if config.options.qk_norm and config.options.weightless_norms:
        num_norms += config.head_dim * sum(layer.rope >= 0 for layer in config.layers)
    if config.recurrent is not None:
        num_norms += sum(config.recurrent.layers) * config.recurrent.num_fp32
    if experts is not None:
        num_routed = sum(experts.has_experts) * experts.num_scored
        num_norms += num_routed * (experts.options.has_bias or experts.options.linear_biases)
    matrices = sum(outputs * inputs for outputs, inputs in _matrices(config))
    return num_norms, num_routed * hidden, matrices + count_outputs(config)[1]


def count_outputs(config: ModelConfig) -> tuple[int, int]:
    """(Rows of all matrices but routers, which have a scale each where weights are int8; numbers in biases, and of
    learned positions)."""
    hidden = config.hidden_size
    num_head_biases = config.qkv_size * config.qkv_bias
    if config.latent is not None:
        num_head_biases = config.latent.num_biases(config.num_heads)
    num_mlps, experts = sum(layer.has_mlp for layer in config.layers), config.experts
    biases = config.num_kv_layers * (num_head_biases + hidden * config.o_bias)
    biases += config.vocab_size * bool(config.options.projection_bias)
    biases += config.max_position_embeddings * hidden * bool(config.options.positions)
    if config.recurrent is not None:
        biases += sum(config.recurrent.layers) * config.recurrent.num_biases(hidden)
    if experts is not None:
        num_mlps -= sum(experts.has_experts)
        num_biases = experts.num_experts * (2 * experts.inner_size + hidden) * experts.options.linear_biases
        biases += sum(experts.has_experts) * num_biases
    return sum(outputs for outputs, _ in _matrices(config)), biases + num_mlps * (
        config.gate_up_size + hidden
    ) * config.mlp_bias


def count_mxfp4(config: ModelConfig) -> int:
    """Numbers that are published in four bits, with a scale for 32 of them."""
    experts = config.experts
    if experts is None or not experts.is_mxfp4:
        return 0
    shapes = [(2 * experts.inner_size, config.hidden_size), (config.hidden_size, experts.inner_size)]
    each = sum(outputs * inputs for outputs, inputs in shapes)
    return each * experts.num_experts * sum(experts.has_experts)


def count_multiplications(config: ModelConfig) -> int:
    """Multiplications, each with an addition, of one token with the matrices of all layers; it meets few experts."""
    total = 0
    for index in range(config.num_layers):
        experts = config.experts_of(index)
        if experts is not None:
            total += experts.num_scored * config.hidden_size
        num_experts = experts.num_chosen if experts is not None else 0
        total += sum(outputs * inputs for outputs, inputs in layer_matrices(config, index, num_experts))
    return total


def _matrices(config: ModelConfig) -> Iterator[tuple[int, int]]:
    """(Outputs, inputs) of all matrices but routers, a tied embedding once."""
    for index in range(config.num_layers):
        yield from layer_matrices(config, index, config.experts.num_experts if config.experts is not None else 0)
    for _ in range(1 if config.tie_word_embeddings else 2):
        yield config.vocab_size, config.hidden_size


def layer_matrices(config: ModelConfig, index: int, num_experts: int) -> list[tuple[int, int]]:
    """(Outputs, inputs) of the matrices of one layer but its router, with `num_experts` of its experts."""
    hidden, inner, experts = config.hidden_size, config.intermediate_size, config.experts_of(index)
    found, layer = [], config.layers[index]
    if layer.attends:
        latent = config.latent
        found = [(config.qkv_size, hidden)] if latent is None else latent.shapes(hidden, config.num_heads)
        found.append((hidden, config.attended_size))
    if config.recurrent is not None and config.is_recurrent(index):
        found += config.recurrent.shapes(hidden)
    if layer.has_mlp:
        mlp = [(config.gate_up_size, hidden), (hidden, inner)]
        found += mlp if experts is None else experts.shapes(hidden, num_experts)
    return found
