"""What one of several ranks holds of a model, as the configuration of a smaller one, for counting."""

from __future__ import annotations

from dataclasses import replace

from ...errors import ConfigError
from ..config import MOST_RANKS
from ..models import ModelConfig
from ..models.cut import Cut
from ..parallel.ranks import Ranks


def largest_part(config: ModelConfig, num_ranks: int) -> ModelConfig:
    """Of the rank that holds most: tokens, experts and layers whose inputs it makes are not always even. Its vocabulary
    and its number of experts are those that it holds, unlike in `Cut.config`, which a decoder computes by.

    Raises:
        ConfigError: this number of ranks cannot share the model.
    """
    if num_ranks == 1:
        return config
    if not 1 < num_ranks <= MOST_RANKS:
        raise ConfigError(f"tensor_parallel_size: {num_ranks} is out of range; it is 1 to {MOST_RANKS}")
    cuts = [Cut(config, Ranks(rank, num_ranks)) for rank in range(num_ranks)]
    found = replace(cuts[0].config, vocab_size=max(cut.vocab.count for cut in cuts))
    if found.experts is not None:
        found = replace(found, experts=replace(found.experts, num_experts=max(cut.experts.count for cut in cuts)))
    if found.layer_inputs is not None:
        made = max(cut.input_layers.count for cut in cuts)
        found = replace(found, layer_inputs=replace(found.layer_inputs, num_layers=made))
    return found
