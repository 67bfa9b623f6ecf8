"""The matrices of a model but routers, from its configuration alone: their shapes, and the modules they are made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..models import ModelConfig
from ..models.recurrent_kinds import recurrent_matrices

EMBEDDING, PROJECTION = ("model.embed_tokens",), ("lm_head",)  # in few bits in GGUF files alone
PLAIN = (EMBEDDING, PROJECTION)


class Matrix(NamedTuple):
    """One matrix.

    Attributes:
        modules: that it is made of; none of an absorbed one.
        is_summand: of several ranks each has a part of its inputs, and the results are added up.
        is_widened: it is kept in plain numbers, however it is published.
    """

    outputs: int
    inputs: int
    modules: tuple[str, ...]
    is_summand: bool = False
    is_widened: bool = False

    @property
    def size(self) -> int:
        """Numbers in it."""
        return self.outputs * self.inputs


def own_matrices(config: ModelConfig) -> Iterator[Matrix]:
    """Those beside the layers, a tied embedding once."""
    for modules in PLAIN[: 1 if config.tie_word_embeddings else 2]:
        yield Matrix(config.vocab_size, config.hidden_size, modules)
    yield from added_matrices(config)


def added_matrices(config: ModelConfig) -> Iterator[Matrix]:
    """Those beside layers and vocabulary: of layers' own inputs, and of streams."""
    for added in (config.layer_inputs, config.altup):
        for outputs, inputs, module in () if added is None else added.shapes(config.hidden_size):
            yield Matrix(outputs, inputs, (f"model.{module}",))


def layer_matrices(config: ModelConfig, index: int, num_experts: int) -> Iterator[Matrix]:
    """Those of one layer, with `num_experts` of its experts."""
    hidden, inner, names = config.hidden_size, config.inner_size(index), config.options.names
    base, latent, experts = f"model.layers.{index}.", config.latent, config.experts_of(index)

    def below(*found: str) -> tuple[str, ...]:
        return tuple(f"{base}{name}" for name in found)

    layer = config.layers[index]
    if config.recurrent is not None and config.is_recurrent(index):
        options, found = config.recurrent.options, recurrent_matrices(config.recurrent, hidden)
        for outputs, inputs, parts in found:
            is_summand = parts in ((options.out,), ("x_proj",))
            modules = below(*(f"{options.base}{name}" for name in parts))
            is_widened = parts in (("in_proj_qkvz",), ("in_proj_ba",))  # key head by key head
            yield Matrix(outputs, inputs, modules, is_summand, is_widened)
    if not layer.attends:
        pass
    elif latent is None:
        qkv, num_rows = config.projected(index)
        yield Matrix(num_rows, hidden, below(*qkv))
    else:
        rank, query_size = latent.query_rank, config.num_heads * latent.query_dim
        first = "self_attn.q_a_proj" if rank else "self_attn.q_proj"
        yield Matrix((rank or query_size) + latent.width, hidden, below(first, "self_attn.kv_a_proj_with_mqa"))
        if rank:
            yield Matrix(query_size, rank, below("self_attn.q_b_proj"))
        yield Matrix(config.num_heads * latent.rank, latent.plain_dim, ())
        yield Matrix(config.num_heads * latent.value_dim, latent.rank, ())
    if layer.attends:
        yield Matrix(hidden, config.attended_size(index), below(names.o), is_summand=True)
    for added in (config.layer_inputs, config.altup):
        for outputs, inputs, module in () if added is None else added.layer_shapes(hidden):
            yield Matrix(outputs, inputs, below(module))
    if not layer.has_mlp:
        return
    if config.has_dense(index):
        yield Matrix(config.gate_up_size(index), hidden, below(*names.gate_up))
        yield Matrix(hidden, inner, below(names.down), is_summand=True)
    if experts is None:
        return
    of = experts.options.names
    each = (of, experts.inner_size, experts.latent_size or hidden)
    mlps = [(of.expert.format(number), *each) for number in range(num_experts)]
    if experts.shared_size:
        mlps.append((of.shared, of.of_shared, experts.shared_size, hidden))
    for place, named, width, outer in mlps:
        yield Matrix(experts.num_firsts * width, outer, below(*named.gate_up(f"{place}.")))
        yield Matrix(outer, width, below(f"{place}.{named.down}"), is_summand=place == of.shared)
    if experts.latent_size:
        yield Matrix(experts.latent_size, hidden, below(*of.latents[:1]))
        yield Matrix(hidden, experts.latent_size, below(*of.latents[1:]))
