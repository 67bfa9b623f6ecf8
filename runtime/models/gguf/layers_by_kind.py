"""What a GGUF file says of a model whose layers differ by whether they have a window (Gemma 4).

::

    attention.key_length, rope.dimension_count           of layers without a window
    attention.key_length_swa, rope.dimension_count_swa   of those with one
    attention.head_count_kv                              a number, or one for each layer
    feed_forward_length                                  a number, or one for each layer: twice that of the others
                                                         where a layer reads another's keys and values
    rope_freqs.weight                                    divisors for layers without a window: 1 for pairs that turn,
                                                         and one so large that the others stay where they are

A value projection that is not there is the key's. Knows no more of the file than its keys and the names of tensors.
"""

from __future__ import annotations

import math
from typing import Any

from ....errors import ModelError
from ..json_file import Fields
from .file import GgufFile

_STAYS = 1e29  # a divisor from there on leaves a pair where it is at any position


def by_kind(file: GgufFile, fields: Fields, num_layers: int) -> tuple[Fields, dict[str, Any]]:
    """Keys as of a model whose layers have one shape, that of those with a window, and what `config.json` says besides.

    Raises:
        ModelError: a key is missing or odd, or layers of one kind differ.
    """
    slides = fields.values.get("attention.sliding_window_pattern")
    if not isinstance(slides, list) or len(slides) != num_layers or not any(slides) or all(slides):
        raise fields.odd("attention.sliding_window_pattern", "true or false for each layer, some of both")
    of_kind: dict[bool, str] = {True: "_swa", False: ""}
    dims = {kind: fields.integer(f"attention.key_length{end}") for kind, end in of_kind.items()}
    for kind, end in of_kind.items():
        for key in (f"attention.value_length{end}", f"rope.dimension_count{end}"):
            if fields.integer(key, dims[kind]) != dims[kind]:
                raise fields.odd(key, f"attention.key_length{end} ({dims[kind]})")
    heads = {kind: _of_kind(fields, "attention.head_count_kv", slides, kind) for kind in of_kind}
    num_shared = fields.integer("attention.shared_kv_layers", 0, at_least=0, at_most=num_layers)
    width, is_wide = _widths(fields, num_layers, num_layers - num_shared)
    first_full = slides.index(False)
    reuses_keys = f"blk.{first_full}.attn_v.weight" not in file.tensors
    if heads[True] != heads[False] and not reuses_keys:
        raise fields.odd("attention.head_count_kv", f"{heads[True]} for all layers, whose values are not their keys")
    size = fields.integer("embedding_length_per_layer_input", 0, at_least=0)
    own: dict[str, Any] = {
        "global_head_dim": dims[False],
        "attention_k_eq_v": reuses_keys,
        "num_global_key_value_heads": heads[False],
        "num_kv_shared_layers": num_shared,
        "use_double_wide_mlp": is_wide,
        "hidden_size_per_layer_input": size,
        "enable_moe_block": fields.integer("expert_count", 0, at_least=0) > 0,
        "rope_parameters": {
            "full_attention": {
                "rope_type": "proportional",
                "rope_theta": fields.number("rope.freq_base"),
                "partial_rotary_factor": _turned_share(file, dims[False]),
            },
            "sliding_attention": {"rope_type": "default", "rope_theta": fields.number("rope.freq_base_swa")},
        },
    }
    if size:
        own["vocab_size_per_layer_input"] = file.rows("per_layer_token_embd")
    uniform = {
        "attention.key_length": dims[True],
        "attention.value_length": dims[True],
        "attention.head_count_kv": heads[True],
        "feed_forward_length": width,
    }
    return Fields({**fields.values, **uniform}, fields.place), own


def _of_kind(fields: Fields, key: str, slides: list[Any], has_window: bool) -> int:
    """A number that all layers of a kind share."""
    value = fields.values.get(key)
    if not isinstance(value, list):
        return fields.integer(key)
    found = {each for each, slide in zip(value, slides, strict=False) if bool(slide) is has_window}
    if len(value) != len(slides) or len(found) != 1:
        raise fields.odd(
            key, f"{len(slides)} numbers, the same for all layers {'with' if has_window else 'without'} a window"
        )
    return Fields({key: found.pop()}, fields.place).integer(key)


def _widths(fields: Fields, num_layers: int, num_own: int) -> tuple[int, bool]:
    """The MLP's width in the first n layers, and whether that of the others is twice as large."""
    key = "feed_forward_length"
    value = fields.values.get(key)
    if not isinstance(value, list):
        return fields.integer(key), False
    width = Fields({key: value[0] if value else 0}, fields.place).integer(key)
    for factor in (1, 2):
        if value == [width] * num_own + [factor * width] * (num_layers - num_own):
            return width, factor == 2
    raise fields.odd(key, f"{width} for {num_own} layers, and that or twice that for the others")


def _turned_share(file: GgufFile, head_dim: int) -> float:
    """Pairs that turn, as a share of all."""
    name = "rope_freqs.weight"
    divisors = file.factors(name, head_dim // 2)
    if not divisors:
        raise ModelError(f"{file.place(name)}: expected {head_dim // 2} numbers in F32, found nothing")
    num_turned = divisors.count(1.0)
    if any(each != 1.0 for each in divisors[:num_turned]) or any(each < _STAYS for each in divisors[num_turned:]):
        raise ModelError(
            f"{file.place(name)}: expected ones, and from some pair on divisors that stop it; found others"
        )
    return math.nextafter(num_turned / len(divisors), 1.0)  # a hair more, for the product is rounded down
