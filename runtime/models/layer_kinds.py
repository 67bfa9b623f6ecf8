"""Which parts each layer has: attention, a state, an MLP or experts. Knows no tensors.

Most layers are a mixer and an MLP. In models whose layers have one part each (Nemotron-H, Mamba), and in those whose
layers keep keys and values beside a state (Falcon-H1), `config.json` says so in words of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import ModelError
from .architecture import Architecture
from .experts_config import ExpertsConfig
from .json_file import MOST_WIDTH, Fields
from .recurrent_config import ATTENTION, RecurrentConfig
from .recurrent_kinds import read_shape

MOST_LAYERS = 1 << 12
_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}  # of Nemotron-H


def spelled_out(fields: Fields, options: Architecture) -> Fields:
    """The same in the keys that most configurations have. Raises ModelError: a pattern of other letters."""
    values = dict(fields.renamed(options.aliases).values)
    if options.one_part:
        pattern = values.get("hybrid_override_pattern")
        if pattern is not None and values.get("layer_types") is None:
            if not isinstance(pattern, str) or not pattern or set(pattern) - _LETTERS.keys():
                raise fields.odd("hybrid_override_pattern", f"one of {' '.join(_LETTERS)} for each layer")
            values["layer_types"] = [_LETTERS[letter] for letter in pattern]
        kinds = values.get("layer_types")
        if isinstance(kinds, list) and kinds:
            values["num_hidden_layers"] = len(kinds)
            values["mlp_layer_types"] = ["sparse" if kind == "moe" else "dense" for kind in kinds]
    if "linear_attn_config" in fields:
        values |= _kimi(fields.section("linear_attn_config"), fields.integer("num_hidden_layers", at_most=MOST_LAYERS))
    for name, key, kinds in (
        ("attn", "layer_types", ("attention", "mamba")),
        ("expert", "mlp_layer_types", ("dense" if values.get("num_experts") == 1 else "sparse", "dense")),
    ):
        if f"{name}_layer_period" in fields and values.get(key) is None:  # Jamba
            period = fields.integer(f"{name}_layer_period")
            offset = fields.integer(f"{name}_layer_offset", 0, at_least=0)
            count = fields.integer("num_hidden_layers", at_most=MOST_LAYERS)
            values[key] = [kinds[index % period != offset] for index in range(count)]
    return Fields(values, fields.place)


def _kimi(section: Fields, num_layers: int) -> dict[str, object]:
    """Kimi Linear's list of layers, counted from 1, and the sizes next to it."""
    attends = section.ids("full_attn_layers")
    kinds = ["full_attention" if index + 1 in attends else "linear_attention" for index in range(num_layers)]
    names = {"head_dim": "linear_head_dim", "num_heads": "linear_num_heads"}
    names["short_conv_kernel_size"] = "linear_conv_kernel_dim"
    return {"layer_types": kinds} | {
        ours: section.values[theirs] for theirs, ours in names.items() if theirs in section
    }


def parts_of_layers(
    fields: Fields, options: Architecture, recurrent: RecurrentConfig | None, num_layers: int
) -> list[tuple[bool, bool]]:
    """Of each layer, whether it attends, and whether it has an MLP or experts. fields: as `spelled_out`."""
    if recurrent is None:
        return [(True, True)] * num_layers
    if recurrent.options.is_beside:
        return [(True, True)] * num_layers
    if not options.one_part:
        return [(not keeps, True) for keeps in recurrent.layers]
    kinds: Sequence[str] = fields.values.get("layer_types") or [""] * num_layers
    return [(kind in ATTENTION, kind in ("mlp", "moe")) for kind in kinds]


def read_recurrent(fields: Fields, options: Architecture, num_layers: int, hidden_size: int) -> RecurrentConfig | None:
    """None: no layer keeps a state. Raises ModelError: all do, of an architecture whose other layers attend."""
    if options.recurrent is None:
        return None
    found = read_shape(fields, options.recurrent, num_layers, hidden_size)
    if all(found.layers) and not options.recurrent.is_beside and not options.one_part:
        raise fields.odd("layer_types", "at least one layer that attends")
    return found if any(found.layers) else None


def check_kept(fields: Fields, recurrent: RecurrentConfig | None, windows: Sequence[int]) -> None:
    """Raises ModelError: some layers keep states and others windows, of which `SlotBooks` has one."""
    if recurrent is not None and any(windows):
        raise ModelError(
            f"{fields.place}: sliding_window: {max(windows)}, beside layers that keep a state: models that have both "
            "are not run; take one whose other layers see the whole context"
        )


def mlp_width(
    fields: Fields, options: Architecture, experts: ExpertsConfig | None, parts: list[tuple[bool, bool]]
) -> int:
    """0 where no layer has an MLP, or all have experts, and none is named."""
    key = "block_ff_dim" if "block_ff_dim" in fields else options.width_key
    has_experts = experts.has_experts if experts is not None else (False,) * len(parts)
    if key not in fields and all(sparse for sparse, (_, has_mlp) in zip(has_experts, parts, strict=True) if has_mlp):
        return 0
    size = fields.integer(key, at_most=MOST_WIDTH)
    if not options.adjusts_width or not fields.boolean("block_auto_adjust_ff_dim", True):
        return size
    multiple = fields.integer("block_multiple_of", 256, at_most=MOST_WIDTH)
    factor = fields.number("block_ffn_dim_multiplier", 1.0)
    width = -(-int(factor * int(2 * size / 3)) // multiple) * multiple
    if not 0 < width <= MOST_WIDTH:
        raise fields.odd(key, f"a width that makes an MLP of 1 to {MOST_WIDTH} numbers, not {width:.3g}")
    return width
