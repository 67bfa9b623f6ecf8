"""Bytes of a model's matrices as a decoder will hold them, from its configuration alone; routers and biases apart.

A matrix in few bits is counted with its scales and zeros where a kernel keeps it so, and else as the widened numbers
that the reader makes of it. Which modules are published plainly is taken from the configuration's lists; projections to
the vocabulary are counted as plain.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from ...kernels import cpu_grouped, device_grouped
from ...kernels.grouped import BITS
from ...kernels.linear_weight import INT4_SIZE, Quantise
from ..models import ModelConfig

PLAIN = ("",)  # the name of what is never in few bits


def matrix_bytes(
    config: ModelConfig, dtype: torch.dtype, held: torch.dtype, *, on_cpu: bool, quantise: Quantise = "none"
) -> int:
    """Of all matrices but routers and experts in MXFP4.

    dtype: of activations and of what is widened; held: of numbers that are published plainly.
    """
    total = 0
    for outputs, inputs, modules in _matrices(config):
        size = _kept_size(config, inputs, modules, dtype, on_cpu=on_cpu)
        is_published = _is_published(config, modules)
        if size and config.weight_format is not None:
            stored = config.weight_format
            if on_cpu and quantise != "none" and stored.element != "e4m3":
                size = cpu_grouped.size_for_rounding(size)
            factors = cpu_grouped.FACTOR_BYTES if on_cpu else 4
            total += outputs * (inputs * BITS[stored.element] // 8 + inputs // size * factors)
            total += 8 * inputs * stored.has_order
        elif quantise == "int4" and inputs % 8 == 0:
            groups = inputs // math.gcd(inputs, INT4_SIZE)
            total += outputs * (inputs // 2 + groups * cpu_grouped.FACTOR_BYTES)
        elif quantise != "none":
            total += outputs * (inputs + 4)
        else:
            total += outputs * inputs * (dtype if is_published else held).itemsize
    return total


def _kept_size(config: ModelConfig, inputs: int, modules: tuple[str, ...], dtype: torch.dtype, *, on_cpu: bool) -> int:
    """Inputs of a group of a matrix that is kept in few bits; 0: it is not."""
    stored = config.weight_format
    if stored is None or modules in (PLAIN, ()) or any(stored.excludes(module) for module in modules):
        return 0
    size = math.gcd(inputs, stored.size or inputs)
    if on_cpu:
        return size if dtype is torch.float32 and size % cpu_grouped.words_of(stored.element) == 0 else 0
    return size if dtype.itemsize == 2 and device_grouped.span_of(size) >= device_grouped.LEAST_SPAN else 0


def _is_published(config: ModelConfig, modules: tuple[str, ...]) -> bool:
    """Whether the numbers are made from few bits; those of an absorbed projection, which no module names, are."""
    stored = config.weight_format
    return stored is not None and modules != PLAIN and not all(stored.excludes(module) for module in modules)


def _matrices(config: ModelConfig) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """(Outputs, inputs, modules that it is made of), a tied embedding once; no modules: absorbed."""
    for index in range(config.num_layers):
        yield from _layer_matrices(config, index)
    for _ in range(1 if config.tie_word_embeddings else 2):
        yield config.vocab_size, config.hidden_size, PLAIN


def _layer_matrices(config: ModelConfig, index: int) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    hidden, inner, names = config.hidden_size, config.intermediate_size, config.options.names
    base, latent, experts = f"model.layers.{index}.", config.latent, config.experts_of(index)

    def below(*found: str) -> tuple[str, ...]:
        return tuple(f"{base}{name}" for name in found)

    if latent is None:
        yield config.qkv_size, hidden, below(*names.qkv)
    else:
        rank, query_size = latent.query_rank, config.num_heads * latent.query_dim
        first = "self_attn.q_a_proj" if rank else "self_attn.q_proj"
        yield (rank or query_size) + latent.width, hidden, below(first, "self_attn.kv_a_proj_with_mqa")
        if rank:
            yield query_size, rank, below("self_attn.q_b_proj")
        yield config.num_heads * latent.rank, latent.plain_dim, ()
        yield config.num_heads * latent.value_dim, latent.rank, ()
    yield hidden, config.attended_size, below(names.o)
    if experts is None:
        yield 2 * inner, hidden, below(*names.gate_up)
        yield hidden, inner, below(names.down)
        return
    of = experts.options.names
    places = [of.expert.format(number) for number in range(experts.num_experts)]
    widths = [experts.inner_size] * experts.num_experts
    if experts.is_mxfp4:
        places, widths = [], []
    if experts.shared_size:
        places, widths = [*places, of.shared], [*widths, experts.shared_size]
    for place, width in zip(places, widths, strict=True):
        yield 2 * width, hidden, below(f"{place}.{of.gate}", f"{place}.{of.up}")
        yield hidden, width, below(f"{place}.{of.down}")
