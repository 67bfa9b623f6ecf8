"""Matrices and norms that a model has besides attention, MLPs and vocabulary: of layers' own inputs, of streams, and of
values and mixtures beside MLPs.

Counts from a configuration alone, for plans. Knows no tensors.
"""

from __future__ import annotations

from .config import ModelConfig
from .layer_config import LAYER_TABLE


def added_shapes(config: ModelConfig, index: int | None) -> list[tuple[int, int, str]]:
    """(Outputs, inputs, module) of a layer's matrices but routers; None: of the model's own."""
    hidden, found, of_inputs, altup = (
        config.hidden_size,
        list[tuple[int, int, str]](),
        config.layer_inputs,
        config.altup,
    )
    if of_inputs is not None:
        found += of_inputs.shapes(hidden) if index is None else of_inputs.layer_shapes(hidden)
    if altup is not None:
        found += altup.shapes(hidden) if index is None else altup.layer_shapes(hidden)
    return found


def count_multiplied(config: ModelConfig) -> int:
    """Numbers of the model's own matrices that a token is multiplied with: all but a table of rows."""
    return sum(outputs * inputs for outputs, inputs, name in added_shapes(config, None) if name != LAYER_TABLE)


def count_fp32(config: ModelConfig) -> int:
    """Numbers that are kept in fp32, of all layers and of the model, routers apart."""
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
