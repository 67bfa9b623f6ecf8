"""How a model is cut for several ranks: which heads, inner widths, experts and tokens of the vocabulary each has.

::

    qkv, gate·up      rows, by heads and by width      Megatron-LM (arXiv 1909.08053): no sum between the two products
    o, down           columns, the same ones           of a pair, one sum of all ranks' results after it
    experts           whole ones, n to m of all
    embedding, head   rows, by tokens
    layers' inputs    what makes those of a layer is on one rank; all gather them
    latents, norms, routers, and KV heads of which a layer has fewer than there are ranks: on several ranks, or on all

A rank computes a smaller model of the same kind, `Cut.config`, whose parts `Cut` names in the axes that are stored. All
KV heads that a rank's queries meet are on that rank. Knows configurations and no tensors.
"""

from __future__ import annotations

from dataclasses import replace

from ...errors import ConfigError
from ..parallel.ranks import Ranks
from .config import ModelConfig
from .layer_config import LayerConfig
from .part import Part, joined, whole_ones
from .recurrent_config import RecurrentConfig
from .recurrent_kinds import kind_of


class Cut:
    """One rank's part of a model.

    Attributes:
        ranks: this rank, among the others.
        whole, config: the model, and the smaller one that the rank computes. `vocab_size`, and the experts that its
            router knows, are those of the whole.
        vocab: tokens, as many on each rank but on the last ones.
        heads: of attention.
        shared: width of the shared expert.
        experts: by their numbers.
        input_layers: those whose inputs this rank makes from the tokens (`layer_inputs.py`).
    """

    def __init__(self, whole: ModelConfig, ranks: Ranks) -> None:
        """Raises ConfigError: the model cannot be cut into a part for each rank; it names the number and the remedy."""
        self.ranks = ranks
        self.whole = whole
        _refuse(whole, ranks.size)
        each = -(-whole.vocab_size // ranks.size)
        begin = min(each * ranks.rank, whole.vocab_size)
        self.vocab = Part(whole.vocab_size, ((begin, min(begin + each, whole.vocab_size)),))
        attends = whole.num_kv_layers > 0
        self.heads = self._even(whole.num_heads) if attends else Part(1, ((0, 1),))
        experts, recurrent, inputs = whole.experts, whole.recurrent, whole.layer_inputs
        self.shared = self._even(0 if experts is None else experts.shared_size)
        self.experts = whole_ones(0 if experts is None else experts.num_experts, ranks.rank, ranks.size)
        self.input_layers = whole_ones(0 if inputs is None else whole.num_layers, ranks.rank, ranks.size)
        self.config = whole
        if ranks.size > 1:
            self.config = replace(
                whole,
                num_heads=self.heads.count,
                num_kv_heads=self._own_heads(whole.num_kv_heads).count,
                layers=tuple(map(self._layer, whole.layers)),
                intermediate_size=whole.intermediate_size // ranks.size,
                experts=None if experts is None else replace(experts, shared_size=self.shared.count),
                recurrent=None if recurrent is None else self._recurrent(recurrent),
                layer_inputs=None if inputs is None else replace(inputs, num_layers=self.input_layers.count),
            )

    @property
    def whole_recurrent(self) -> RecurrentConfig:
        """Recurrent layers of the whole model, which has some."""
        assert self.whole.recurrent is not None
        return self.whole.recurrent

    # -- axes that are stored ----------------------------------------------------------------------------------

    def by_head(self, dim: int) -> Part:
        """An axis with `dim` entries for each query head."""
        return _times(self.heads, dim)

    def kv_heads(self, index: int) -> Part:
        """A layer's KV heads, or those of the layer whose keys and values it reads."""
        return self._own_heads(self.whole.kv_shape(index).num_heads)

    def qkv(self, index: int) -> list[Part]:
        """Rows of a layer's queries (each with its gate, where there are gates), keys and values."""
        config, shape = self.whole, self.whole.kv_shape(index)
        kv_heads = self.kv_heads(index)
        kv = _times(kv_heads, shape.head_dim)
        if config.options.rows_by_head:
            return [self._rows_by_head(kv_heads, config.num_heads // shape.num_heads, shape.head_dim)]
        queries = self.by_head(shape.head_dim * (1 + config.options.gated_attention))
        parts = [queries, kv, kv][: len(config.qkv_rows(index))]
        return parts if len(config.options.names.qkv) == 3 else [joined(parts)]

    def inner(self, index: int) -> Part:
        """Width of a layer's MLP."""
        return self._even(self.whole.inner_size(index))

    def gate_up(self, index: int) -> list[Part]:
        """Rows of the first projection of a layer's MLP, by the names of its tensors."""
        num_names = len(self.whole.options.names.gate_up)
        times = 1 if self.whole.curve is not None else 2
        return [joined([self.inner(index)] * (times // num_names))] * num_names

    def attended(self, index: int) -> Part:
        """Columns of a layer's output projection."""
        return self.by_head(self.whole.attended_size(index) // self.whole.num_heads)

    @property
    def layer_inputs(self) -> Part:
        """The inputs of all layers, side by side."""
        assert self.whole.layer_inputs is not None
        return _times(self.input_layers, self.whole.layer_inputs.size)

    @property
    def projected(self) -> dict[str, Part]:
        """Rows of a recurrent layer's first projections, by the names of their tensors."""
        projected = kind_of(self.whole_recurrent).projected
        assert projected is not None
        return {
            name: joined([self.groups(one.size) if one.is_by_group else self._even(one.size) for one in sections])
            for name, sections in projected(self.whole_recurrent).items()
        }

    def sections(self, *sizes: int) -> list[Part]:
        """Sections of an axis of a recurrent layer, each by its heads or channels, of which all ranks have as many."""
        return [self._even(size) for size in sizes]

    def groups(self, size: int) -> Part:
        """The section of a state space's keys or queries, of `size` in all groups: one group is on every rank."""
        return Part(size, ((0, size),)) if self.whole_recurrent.key_heads == 1 else self._even(size)

    # -- parts -------------------------------------------------------------------------------------------------

    def _even(self, size: int) -> Part:
        each = size // self.ranks.size
        return Part(size, ((each * self.ranks.rank, each * (self.ranks.rank + 1)),))

    def _layer(self, layer: LayerConfig) -> LayerConfig:
        if layer.kv is None:
            return layer
        return replace(layer, kv=layer.kv._replace(num_heads=self._own_heads(layer.kv.num_heads).count))

    def _own_heads(self, number: int) -> Part:
        """Of n KV heads."""
        rank, size = self.ranks.rank, self.ranks.size
        if number >= size:
            return self._even(number)
        own = rank * number // size
        return Part(number, ((own, own + 1),))

    def _rows_by_head(self, kv_heads: Part, group: int, dim: int) -> Part:
        """Of each of these KV heads, after each other: its queries that are on this rank, its key, its value."""
        heads, ((first, end),) = [], self.heads.ranges
        for begin, stop in kv_heads.ranges:
            for kv_head in range(begin, stop):
                start, own = kv_head * (group + 2), kv_head * group
                heads.append((start + max(first, own) - own, start + min(end, own + group) - own))
                heads.append((start + group, start + group + 2))
        return _times(Part((group + 2) * kv_heads.size, tuple(heads)), dim)

    def _recurrent(self, whole: RecurrentConfig) -> RecurrentConfig:
        size = self.ranks.size
        if kind_of(whole).is_cut_by_channels:
            return replace(whole, channels=whole.channels // size, value_dim=whole.value_dim // size)
        heads, key_heads = whole.heads // size, max(1, whole.key_heads // size)
        num_keys = 2 * key_heads * whole.key_dim
        return replace(whole, channels=num_keys + heads * whole.value_dim, heads=heads, key_heads=key_heads)


def _times(part: Part, dim: int) -> Part:
    return Part(part.size * dim, tuple((begin * dim, end * dim) for begin, end in part.ranges))


def _refuse(model: ModelConfig, size: int) -> None:
    """Raises ConfigError: this number of ranks cannot share the model."""
    if size == 1:
        return

    def refuse(why: str) -> None:
        raise ConfigError(f"tensor_parallel_size: {size} {why}; choose another number, or take 1")

    def must_divide(number: int, what: str) -> None:
        if number % size:
            refuse(f"does not divide the model's {what} ({number})")

    def must_not_exceed(number: int, what: str) -> None:
        if number < size:
            refuse(f"is more than the model's {number} {what}")

    if model.num_kv_layers:
        must_divide(model.num_heads, "attention heads")
    for number in dict.fromkeys(shape.num_heads for shape in model.kv_shapes()):
        if number % size and size % number:
            refuse(f"neither divides the model's KV heads ({number}) nor is a multiple of them")
    if any(map(model.has_dense, range(model.num_layers))):
        must_divide(model.intermediate_size, "intermediate size")
    if -(-model.vocab_size // size) * (size - 1) >= model.vocab_size:  # the last one would have none
        refuse(f"leaves ranks without a token of {model.vocab_size}")
    if model.experts is not None:
        must_divide(model.experts.shared_size, "width of the shared expert")
        must_not_exceed(model.experts.num_experts, "experts")
    if model.layer_inputs is not None:
        must_not_exceed(model.num_layers, "layers, each with inputs of its own")
    recurrent = model.recurrent
    if recurrent is not None and kind_of(recurrent).is_cut_by_channels:
        must_divide(recurrent.channels, "channels of recurrent layers")
    elif recurrent is not None:
        must_divide(recurrent.heads, "heads of recurrent layers")
        if recurrent.key_heads != 1 or not kind_of(recurrent).shares_group:
            must_divide(recurrent.key_heads, "key heads (or groups) of recurrent layers")
