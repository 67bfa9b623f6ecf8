"""Which rows of `CASES` are run over ranks, and why the others need not be.

A row is left out where all that makes its layers is in rows that are run, or is in `SHARED`: what no rank has a part
of.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

BY_TWO = [
    "llama-biases",
    "gemma2",
    "olmo2-biases",  # norms over the heads of all ranks
    "bitnet",  # norms over the inputs of the last projections, on all ranks
    "glm",
    "phi",  # a projection to the vocabulary with a bias
    "gpt-neox",  # query, key and value of one head after another
    "gpt2",  # matrices that are stored transposed, learned positions
    "falcon-40b",  # the queries of a KV head, its key and its value together
    "stablelm-side-by-side-norms-of-heads",
    "phi3-partial-window",
    "apertus",
    "youtu-whole-queries",
    "deepseek-v3",
    "qwen2-moe",  # seven experts, and a shared one
    "gpt-oss",
    "llama4-dense-layers",
    "granite-moe-shared",
    "lfm2-biases-attention-last",
    "qwen3-next",
    "falcon-h1",  # attention beside a state space
    "nemotron-h",
    "mamba2-tied-biases",  # no attention
    "kimi-linear",
    "minimax",
    "jamba",  # what is chosen from the channels of all ranks
    "granite-hybrid",  # one group of keys, and a norm over it, of all ranks
    "gemma3n",  # streams, inputs of each layer, gates cut by what all ranks have of them, keys of earlier layers
]
EIGHT_HEADS = {"num_attention_heads": 8, "hidden_size": 64}
BY_FOUR: dict[str, dict[str, Any]] = {
    "llama-gqa": EIGHT_HEADS,  # each KV head is on two ranks
    "minimax-m2": EIGHT_HEADS,  # and its norm counts it once; six experts
    "youtu": {**EIGHT_HEADS, "num_key_value_heads": 8},
    "gemma4-moe": {**EIGHT_HEADS, "num_global_key_value_heads": 4},  # KV heads by layer: on two ranks, or on one
}

# options of `Architecture` that change nothing of what is cut, by the reason
SHARED = {
    "of hidden states, which all ranks have": (
        "norm",
        "norm_offset",
        "pre_norms",
        "sandwich_norms",
        "scale_embedding",
        "depth_scale",
        "width_scale",
        "multipliers",
    ),
    "of logits, which rank 0 has": ("logit_scale", "tied"),
    "of positions, which each head has": (
        "sliding",
        "unturned",
        "partial_rotary",
        "local_theta",
        "unscaled_windows",
        "norms_after_rope",
        "scales_queries",
        "first_row",
    ),
    "of the choice of experts, which each rank makes for all": (
        "experts.bias_in_row",
        "experts.counts_top",
        "experts.mixes_near",
    ),
    "names, and what is refused": ("refused", "aliases", "experts.aliases", "recurrent.names", "recurrent.others"),
    "of what a selective scan chooses, of which all ranks have the sum": ("recurrent.norms",),
}


def kinds(options: Any, base: str = "") -> Iterator[tuple[str, Any]]:
    """(Name, value) of all options, of names whether there are any, or how many."""
    for field in fields(options):
        value, name = getattr(options, field.name), f"{base}{field.name}"
        if is_dataclass(value):
            yield name, True
            yield from kinds(value, f"{name}.")
        elif isinstance(value, tuple):
            yield name, len(value)
        else:
            yield name, bool(value) if isinstance(value, str) and field.type in ("str", "bool | str") else value


def cut_kinds(options: Any) -> set[tuple[str, Any]]:
    """Those that may change what a rank has a part of."""
    shared = {name for names in SHARED.values() for name in names}
    return {kind for kind in kinds(options) if kind[0] not in shared}
