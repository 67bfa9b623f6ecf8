"""How many numbers a model has, and how many of them a token meets, from its configuration alone."""

from __future__ import annotations

from ..models import ModelConfig, recurrent_kinds
from ..models.layer_config import LAYER_TABLE
from .matrices import added_matrices, layer_matrices, own_matrices


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
    num_norms += _count_added(config)
    if config.altup is not None:
        num_routed = config.num_layers * config.altup.num_streams
    if experts is not None:
        num_routed = sum(experts.has_experts) * experts.num_scored
        num_norms += num_routed * (experts.options.has_bias or experts.options.linear_biases)
    num_experts = 0 if experts is None else experts.num_experts
    matrices = sum(count_layer(config, index, num_experts) for index in range(config.num_layers))
    matrices += sum(matrix.size for matrix in own_matrices(config))
    return num_norms, num_routed * hidden, matrices + count_biases(config)


def _count_added(config: ModelConfig) -> int:
    """Numbers of what a model has besides attention, MLPs and vocabulary that are kept in fp32, routers apart."""
    hidden, altup, total = config.hidden_size, config.altup, 0
    if config.options.norms_values:
        total += sum(kept.head_dim for kept in config.kv_shapes())
    if config.layer_inputs is not None:
        total += config.num_layers * hidden + config.layer_inputs.size
    if config.experts is not None and config.experts.options.is_beside:  # norms, and factors on shares
        total += sum(config.experts.has_experts) * (4 * hidden + config.experts.num_experts)
    if altup is not None:
        total += config.num_layers * (hidden * (2 + altup.scales) + altup.num_mixed)
    return total


def count_biases(config: ModelConfig) -> int:
    """Numbers in biases, and of learned positions."""
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
    return biases


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
        total += count_layer(config, index, 0 if experts is None else experts.num_chosen)
    return total


def count_multiplied(config: ModelConfig) -> int:
    """Numbers of the model's own matrices that a token is multiplied with: all but a table of rows."""
    return sum(matrix.size for matrix in added_matrices(config) if matrix.modules != (f"model.{LAYER_TABLE}",))


def count_layer(config: ModelConfig, index: int, num_experts: int) -> int:
    """Numbers in the matrices of one layer but its router, with `num_experts` of its experts, which are of one size."""
    none, one = (sum(matrix.size for matrix in layer_matrices(config, index, number)) for number in (0, 1))
    return none + num_experts * (one - none)
