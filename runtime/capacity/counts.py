"""How many numbers a model has, and how many of them a token meets, from its configuration alone."""

from __future__ import annotations

from collections.abc import Iterator

from ..models import ModelConfig, recurrent_kinds
from ..models.added_parts import added_shapes, count_fp32, count_multiplied


def count_parameters(config: ModelConfig) -> tuple[int, int, int]:
    """(Numbers in norms and the like, kept as fp32; in routers, which are rounded to nothing less; in the rest)."""
    hidden, experts = config.hidden_size, config.experts
    numbers_each = 2 * hidden if config.options.norm == "layer" else hidden
    around = numbers_each * config.options.num_norms + 4 * (config.curve == "xielu")
    norms, norms_of_heads = config.num_heads * config.options.has_sinks, 0
    around += config.intermediate_size * bool(config.options.names.down_norm)
    norms += config.num_heads * config.head_dim * bool(config.options.names.o_norm)
    if config.options.qk_norm and not config.options.weightless_norms:
        has_weights_each = config.options.whole_norms or config.options.own_norms
        num_normed_heads = config.num_heads + config.num_kv_heads if has_weights_each else 2
        norms_of_heads = num_normed_heads * sum(kept.head_dim for kept in config.kv_shapes())
    if config.latent is not None:
        norms += config.latent.num_norms
    num_norms, num_routed = config.num_layers * around + config.num_kv_layers * norms + numbers_each, 0
    num_norms += norms_of_heads
    if config.options.qk_norm and config.options.weightless_norms:
        num_norms += config.head_dim * sum(layer.rope >= 0 for layer in config.layers)
    elif config.options.qk_norm and config.latent is None:
        shared = [index for index, layer in enumerate(config.layers) if layer.kv_of >= 0]
        num_norms += sum(config.kv_shape(index).head_dim for index in shared)  # of queries alone
    if config.recurrent is not None:
        num_norms += sum(config.recurrent.layers) * recurrent_kinds.num_fp32(config.recurrent)
    num_norms += count_fp32(config)
    if config.altup is not None:
        num_routed = config.num_layers * config.altup.num_streams
    if experts is not None:
        num_routed = sum(experts.has_experts) * experts.num_scored
        num_norms += num_routed * (experts.options.has_bias or experts.options.linear_biases)
    matrices = sum(outputs * inputs for outputs, inputs in _matrices(config))
    return num_norms, num_routed * hidden, matrices + count_outputs(config)[1]


def count_outputs(config: ModelConfig) -> tuple[int, int]:
    """(Rows of all matrices but routers, which have a scale each where weights are int8; numbers in biases, and of
    learned positions)."""
    hidden = config.hidden_size
    attending = [index for index, layer in enumerate(config.layers) if layer.attends]
    biases = len(attending) * hidden * config.o_bias
    if config.latent is not None:
        biases += len(attending) * config.latent.num_biases(config.num_heads)
    else:
        biases += sum(config.projected(index)[1] for index in attending) * config.qkv_bias
    dense, experts = filter(config.has_dense, range(config.num_layers)), config.experts
    biases += sum(config.gate_up_size(index) + hidden for index in dense) * config.mlp_bias
    biases += config.vocab_size * bool(config.options.projection_bias)
    biases += config.max_position_embeddings * hidden * bool(config.options.positions)
    if config.recurrent is not None:
        biases += sum(config.recurrent.layers) * recurrent_kinds.num_biases(config.recurrent, hidden)
    if experts is not None:
        num_biases = experts.num_experts * (2 * experts.inner_size + hidden) * experts.options.linear_biases
        biases += sum(experts.has_experts) * num_biases
    return sum(outputs for outputs, _ in _matrices(config)), biases


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
    total = count_multiplied(config)
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
    yield from ((outputs, inputs) for outputs, inputs, _ in added_shapes(config, None))


def layer_matrices(config: ModelConfig, index: int, num_experts: int) -> list[tuple[int, int]]:
    """(Outputs, inputs) of the matrices of one layer but its router, with `num_experts` of its experts."""
    hidden, inner, experts = config.hidden_size, config.inner_size(index), config.experts_of(index)
    found, layer = [], config.layers[index]
    if layer.attends:
        latent = config.latent
        found = [(config.projected(index)[1], hidden)] if latent is None else latent.shapes(hidden, config.num_heads)
        found.append((hidden, config.attended_size(index)))
    if config.recurrent is not None and config.is_recurrent(index):
        found += [matrix[:2] for matrix in recurrent_kinds.recurrent_matrices(config.recurrent, hidden)]
    if layer.has_mlp:
        mlp = [(config.gate_up_size(index), hidden), (hidden, inner)]
        found += mlp if config.has_dense(index) else []
        found += experts.shapes(hidden, num_experts) if experts is not None else []
    return found + [(outputs, inputs) for outputs, inputs, _ in added_shapes(config, index)]
