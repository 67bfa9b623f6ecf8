"""How long a sequence may become, as it is set and as the model has it. Knows configurations alone."""

from __future__ import annotations

from ...errors import ConfigError
from ..models import ModelConfig


def longest_of(model: ModelConfig, max_model_len: int | None) -> int:
    """Tokens of prompt and output together, at most; None: what the model was made for.

    Raises:
        ConfigError: it was made for fewer.
    """
    longest = model.max_position_embeddings
    if max_model_len is not None and max_model_len > longest:
        raise ConfigError(
            f"max_model_len: {max_model_len} is more than the {longest} tokens that the model was made for; lower it, "
            "or leave it out"
        )
    return max_model_len or longest
