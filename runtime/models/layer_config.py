"""What differs from layer to layer: windows and positions, from `config.json`. Knows no tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .architecture import Architecture, turned_layers
from .json_file import MOST_WIDTH, Fields
from .kv_shape import KVShape
from .rope_config import RopeConfig

LAYER_TABLE = "embed_tokens_per_layer"


@dataclass(frozen=True, slots=True)
class LayerConfig:
    """What differs from layer to layer.

    Attributes:
        window: a query sees this many keys, itself included; 0: all.
        rope: index into `ModelConfig.ropes`; -1: the layer has no positions (NoPE).
        in_chunks: the window is a chunk, from whose beginning on a query sees, instead of the last keys.
        grows: queries are multiplied as `ModelConfig.query_growth` says.
        attends: queries meet keys and values.
        has_mlp: an MLP, or experts.
        kv_of: the layer before it whose keys and values it reads; -1: it keeps its own.
        sparsity: which share of its MLP's gates is cut (`sparse_gate.py`); 0: none.
        kv: what it keeps of a token, where that is not as in `ModelConfig`; None: it is.
        reuses_keys: values are what the key projection makes, before norm and RoPE.
        width_factor: how many times as wide as `ModelConfig.intermediate_size` its MLP is.
    """

    window: int
    rope: int
    in_chunks: bool = False
    grows: bool = False
    attends: bool = True
    has_mlp: bool = True
    kv_of: int = -1
    sparsity: float = 0.0
    kv: KVShape | None = None
    reuses_keys: bool = False
    width_factor: int = 1

    @property
    def keeps_kv(self) -> bool:
        """Whether it has keys and values of its own."""
        return self.attends and self.kv_of < 0


@dataclass(frozen=True, slots=True)
class LayerInputConfig:
    """Inputs of each layer that come from the token itself (`layer_inputs.py`).

    Attributes:
        vocab_size: tokens that have some.
        size: numbers of a layer.
        num_layers: layers whose inputs are made here; of several ranks each makes those of some layers.
    """

    vocab_size: int
    size: int
    num_layers: int

    @staticmethod
    def from_fields(fields: Fields, num_layers: int) -> LayerInputConfig | None:
        """None: layers have none. Raises ModelError: a size is odd."""
        size = fields.integer("hidden_size_per_layer_input", 256, at_least=0, at_most=MOST_WIDTH)
        vocab_size = fields.integer("vocab_size_per_layer_input", 262_144)
        return LayerInputConfig(vocab_size, size, num_layers) if size else None

    def layer_shapes(self, hidden: int) -> Iterator[tuple[int, int, str]]:
        """(Outputs, inputs, module) of a layer's matrices."""
        yield self.size, hidden, "per_layer_input_gate"
        yield hidden, self.size, "per_layer_projection"

    @property
    def width(self) -> int:
        """Numbers that are made here of a token."""
        return self.num_layers * self.size

    def shapes(self, hidden: int) -> Iterator[tuple[int, int, str]]:
        """(Outputs, inputs, module) of those of all layers: what is projected, and the table."""
        yield self.width, hidden, "per_layer_model_projection"
        yield self.vocab_size, self.width, LAYER_TABLE


@dataclass(frozen=True, slots=True)
class QueryGrowth:
    """A query at position p is multiplied by `1 + share · log(1 + ⌊(p + offset) / step⌋)`."""

    share: float
    step: int
    offset: int = 0


def kv_places(layers: Sequence[LayerConfig]) -> list[int]:
    """By layer, where the keys and values that it meets are among those of all layers that keep some."""
    keeps = [layer.keeps_kv for layer in layers]
    return [sum(keeps[: index if layer.kv_of < 0 else layer.kv_of]) for index, layer in enumerate(layers)]


def last_kept(layers: Sequence[LayerConfig], has_state: Sequence[bool] | None) -> int:
    """The last layer that keeps keys and values, or a state; -1: there is none. has_state: None: no layer has one."""
    states = has_state or [False] * len(layers)
    keeps = [index for index, layer in enumerate(layers) if layer.keeps_kv or states[index]]
    return max(keeps, default=-1)


def read_windows(fields: Fields, options: Architecture, num_layers: int) -> list[int]:
    window = fields.integer("attention_chunk_size" if options.in_chunks else "sliding_window", 0, at_least=0)
    seen = "chunked_attention" if options.in_chunks else "sliding_attention"
    if options.sliding is None or not window:
        return [0] * num_layers
    kinds = fields.values.get("layer_types")
    if kinds is None:
        slides = options.sliding(fields, num_layers)
    elif (
        isinstance(kinds, list) and len(kinds) == num_layers and all(kind in (seen, "full_attention") for kind in kinds)
    ):
        slides = [kind == seen for kind in kinds]
    else:
        raise fields.odd("layer_types", f'{num_layers} entries of "full_attention" or "{seen}"')
    return [window if layer_slides else 0 for layer_slides in slides]


def read_shapes(
    fields: Fields, options: Architecture, windows: list[int], kept: KVShape, num_heads: int
) -> list[KVShape | None]:
    """Of each layer what it keeps, where that is not `kept`; None: it is."""
    if options.full_shape is None:
        return [None] * len(windows)
    full = options.full_shape(fields, [window > 0 for window in windows], kept, num_heads)
    return [None if window or full == kept else full for window in windows]


def read_ropes(
    fields: Fields, options: Architecture, windows: list[int], head_dims: tuple[int, int], max_positions: int
) -> tuple[tuple[RopeConfig, ...], list[int]]:
    """The distinct ropes, and for every layer which one it uses (-1: none).

    head_dims: of layers without a window, and of those with one where they have a rope of their own.
    """
    if not options.has_positions:
        return (), [-1] * len(windows)
    parameters = rope_section(fields)
    per_type = any(isinstance(value, dict) for value in parameters.values.values())

    def read(section: Fields, theta: float, head_dim: int) -> RopeConfig:
        return RopeConfig.from_fields(
            section,
            theta=theta,
            head_dim=head_dim,
            partial_rotary=_partial_rotary(fields, options, head_dim),
            max_positions=max_positions,
            original=fields.integer("original_max_position_embeddings", 0, at_least=0),
        )

    theta = fields.number("rope_theta", fields.number("rotary_emb_base", 10_000.0))
    ropes = [read(parameters.section("full_attention") if per_type else parameters, theta, head_dims[0])]
    has_local = bool(options.local_theta) or options.unscaled_windows
    if has_local:
        local = parameters.section("sliding_attention") if per_type else Fields({}, fields.place)
        local_theta = fields.number("rope_local_base_freq", options.local_theta or theta)
        ropes.append(read(local, local_theta, head_dims[1]))
    used = [1 if window and has_local else 0 for window in windows]
    if options.positions_key:
        positions = fields.values.get(options.positions_key)
        if positions not in (None, "rope", "nope"):
            raise fields.odd(options.positions_key, '"rope" or "nope"')
        used = used if positions == "rope" else [-1] * len(used)
    if options.unturned and "sliding_window" in fields:
        used = [rope if window else -1 for rope, window in zip(used, windows, strict=True)]
    turned = turned_layers(fields, len(windows), options.unturned_every)
    return tuple(ropes), [rope if turns else -1 for rope, turns in zip(used, turned, strict=True)]


def read_kv_sources(fields: Fields, options: Architecture, windows: list[int], rope_of_layer: list[int]) -> list[int]:
    """For every layer the one whose keys and values it reads, the last of its kind that has some; -1: its own."""
    num_own, kinds = len(windows), list(zip(windows, rope_of_layer, strict=True))
    if options.shares_kv:
        num_own -= fields.integer("num_kv_shared_layers", 0, at_least=0, at_most=len(windows))
    last = {kind: index for index, kind in enumerate(kinds[:num_own])}
    if set(kinds) - last.keys():
        raise fields.odd("num_kv_shared_layers", f"fewer of {len(windows)} layers: one of each kind keeps its own")
    return [-1] * num_own + [last[kind] for kind in kinds[num_own:]]


def make_layers(
    options: Architecture,
    parts: list[tuple[bool, bool]],
    windows: list[int],
    ropes: list[int],
    grow: list[bool],
    sources: list[int],
    sparsity: Sequence[float],
    shapes: list[KVShape | None],
) -> tuple[LayerConfig, ...]:
    """By layer what was read of it; parts: whether it attends, and whether it has an MLP."""
    return tuple(
        LayerConfig(
            window=window,
            rope=ropes[index],
            in_chunks=options.in_chunks,
            grows=grow[index],
            attends=parts[index][0],
            has_mlp=parts[index][1],
            kv_of=sources[index],
            sparsity=sparsity[index],
            kv=shapes[index],
            reuses_keys=options.reuses_keys and not window,
            width_factor=2 if options.widens_shared and sources[index] >= 0 else 1,
        )
        for index, window in enumerate(windows)
    )


def read_growth(
    fields: Fields, options: Architecture, ropes: tuple[RopeConfig, ...], rope_of_layer: list[int]
) -> tuple[QueryGrowth | None, list[bool]]:
    """How queries grow with the position, and in which layers; None: in none."""
    num_layers = len(rope_of_layer)
    if not options.scales_queries:
        return None, [False] * num_layers
    if options.in_chunks:
        if not fields.values.get("attn_temperature_tuning", True):  # published as 4, too
            return None, [False] * num_layers
        growth = QueryGrowth(fields.number("attn_scale", 0.1), fields.integer("floor_scale", 8192), 1)
        return growth, [rope < 0 for rope in rope_of_layer]
    share = rope_section(fields).number("llama_4_scaling_beta", 0.0, above=-1.0)
    return (QueryGrowth(share, ropes[0].original_max_positions) if share else None), [share != 0.0] * num_layers


def _partial_rotary(fields: Fields, options: Architecture, head_dim: int) -> float:
    if "rotary_dim" in fields:  # MiniMax M2
        return fields.integer("rotary_dim", at_most=head_dim) / head_dim
    default = fields.number("rotary_pct", options.partial_rotary)  # GPT-NeoX
    return fields.number("partial_rotary_factor", default)


def rope_section(fields: Fields) -> Fields:
    return fields.section("rope_parameters" if "rope_parameters" in fields else "rope_scaling")
