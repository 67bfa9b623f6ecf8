"""Bytes of a model's matrices as a decoder will hold them, from its configuration alone; routers and biases apart.

A matrix in few bits is counted with its scales and zeros where a kernel keeps it so, and else as the widened numbers
that the reader makes of it. Which modules are published plainly is taken from the configuration's lists; projections to
the vocabulary are counted as plain. A GGUF file says it of every matrix.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

from ..config import Quantisation
from ..models import ModelConfig
from ..models.gguf.tensor_types import Form, Forms
from ..models.weight_format import WORD, WeightFormat
from ..number_types import BYTES, NumberType
from .matrices import PLAIN, Matrix, layer_matrices, own_matrices

if TYPE_CHECKING:
    from ...kernels.grouped import Element

# how the kernels keep groups of few bits, said again here because `kernels` brings torch; tests weigh what is loaded
BITS: dict[Element, int] = {"int4": 4, "int8": 8, "e4m3": 8, "uint4": 4}
FACTOR_BYTES, OFFSET_BYTES = 5, 8  # on a CPU, of a group of one output: scale and zero, or scale and offset
DEVICE_FACTOR_BYTES = 4  # on a GPU, and where inputs are rounded with their weights
INT4_SIZE = 32  # inputs of a group that is rounded to four bits while loading
MOST_ROUNDED, LEAST_ROUNDED = 128, 32  # inputs of a group of which inputs are rounded together
LEAST_SPAN = 32  # inputs of a step of a GPU's kernel
ROOM = 32  # columns beside a rank's part of the inputs where these are rounded by the step of the whole row


def matrix_bytes(
    config: ModelConfig,
    dtype: NumberType,
    held: NumberType,
    *,
    on_cpu: bool,
    quantise: Quantisation = "none",
    num_ranks: int = 1,
) -> int:
    """Of all matrices but routers and experts in MXFP4.

    dtype: of activations and of what is widened; held: of numbers that are published plainly. num_ranks: of which
    `config` describes one's part.
    """
    experts = config.experts
    num_experts = 0 if experts is None or experts.is_mxfp4 else experts.num_experts
    layers = (layer_matrices(config, index, num_experts) for index in range(config.num_layers))
    matrices = chain(own_matrices(config), *layers)
    return sum(_one_bytes(config, one, dtype, held, on_cpu, quantise, num_ranks) for one in matrices)


def joint_bytes(
    config: ModelConfig, dtype: NumberType, held: NumberType, *, on_cpu: bool, quantise: Quantisation
) -> int:
    """Of the matrix by which an MTP layer takes token and state (`models/mtp.py`)."""
    names = config.options.mtp
    joint = Matrix(config.hidden_size, 2 * config.hidden_size, (f"{names.base or 'model.layers.0.'}{names.joint}",))
    return _one_bytes(config, joint, dtype, held, on_cpu, quantise, 1)


def _one_bytes(
    config: ModelConfig,
    matrix: Matrix,
    dtype: NumberType,
    held: NumberType,
    on_cpu: bool,
    quantise: Quantisation,
    num_ranks: int,
) -> int:
    outputs, inputs, modules, stored = matrix.outputs, matrix.inputs, matrix.modules, config.weight_format
    is_part = matrix.is_summand and num_ranks > 1
    has_order = isinstance(stored, WeightFormat) and stored.has_order
    form = None
    if not matrix.is_widened and not (is_part and has_order):  # the inputs of a group are on several ranks there
        form = _kept_form(config, inputs, modules, dtype, on_cpu=on_cpu, is_part=is_part)
    is_published = _is_published(config, modules)
    if form is not None:
        size = form.size
        if on_cpu and quantise != "none" and form.element != "e4m3" and not form.rounds_inputs:
            size = _size_for_rounding(size)
        factors = FACTOR_BYTES if on_cpu and not form.rounds_inputs else DEVICE_FACTOR_BYTES
        if form.has_offsets:
            factors = OFFSET_BYTES
        num_factors = inputs // size
        if is_part and isinstance(stored, WeightFormat) and stored.inputs == "own steps":
            inputs += ROOM
        return outputs * (inputs * BITS[form.element] // 8 + num_factors * factors) + 8 * inputs * has_order
    if quantise == "int4" and inputs % 8 == 0:
        groups = inputs // math.gcd(inputs, INT4_SIZE)
        return outputs * (inputs // 2 + groups * FACTOR_BYTES)
    if quantise != "none":
        return outputs * (inputs + 4)
    return outputs * inputs * BYTES[dtype if is_published or _is_wide(config, modules) else held]


def _kept_form(
    config: ModelConfig, inputs: int, modules: tuple[str, ...], dtype: NumberType, *, on_cpu: bool, is_part: bool
) -> Form | None:
    """What a matrix is kept as, if it is kept in few bits."""
    form = _form(config, inputs, modules, is_part=is_part)
    if form is None:
        return None
    if on_cpu:
        fits = form.rounds_inputs or form.size * BITS[form.element] % 32 == 0
        return form if dtype == "float32" and fits else None
    return form if BYTES[dtype] == 2 and form.size % LEAST_SPAN == 0 else None


def _form(config: ModelConfig, inputs: int, modules: tuple[str, ...], *, is_part: bool) -> Form | None:
    """What the parts of a matrix are as one (`grouped.stack`), if all of them are in few bits.

    is_part: these are not all inputs; groups are smaller where they do not end where the part does.
    """
    stored = config.weight_format
    if stored is None or not modules:
        return None
    if isinstance(stored, Forms):
        forms = [stored.of_modules[module] for module in modules if module in stored.of_modules]
        element = _common_element([form.element for form in forms]) if len(forms) == len(modules) else None
        if element is None:
            return None
        size = math.gcd(*(form.size for form in forms))
        has_offsets = any(form.has_offsets for form in forms)
        return Form(element, math.gcd(size, inputs) if is_part else size, has_offsets)
    if modules in PLAIN or any(stored.excludes(module) for module in modules):
        return None
    size = math.gcd(inputs, stored.size or inputs)
    if is_part and not stored.size and stored.inputs == "plain" and inputs % WORD:
        size = math.gcd(inputs, WORD)  # a word of the inputs is on two ranks
    return Form(stored.element, size, rounds_inputs=stored.inputs != "plain")


def _common_element(elements: Sequence[Element]) -> Element | None:
    """What parts of these elements are as one; None: they cannot be."""
    found = set(elements)
    if len(found) == 1:
        return elements[0]
    return None if "e4m3" in found else "int8"


def _size_for_rounding(size: int) -> int:
    """Inputs of a group where inputs are rounded by groups: wide ones are cut."""
    part = math.gcd(size, MOST_ROUNDED)
    return part if size > MOST_ROUNDED and part >= LEAST_ROUNDED else size


def _is_published(config: ModelConfig, modules: tuple[str, ...]) -> bool:
    """Whether the numbers are made from few bits; those of an absorbed projection, which no module names, are."""
    stored = config.weight_format
    if isinstance(stored, Forms):
        absorbed = [f"model.layers.0.self_attn.{name}" for name in ("k_b_proj", "kv_b_proj")]
        return any(module in stored.of_modules for module in modules or absorbed)
    return stored is not None and modules not in PLAIN and not all(stored.excludes(module) for module in modules)


def _is_wide(config: ModelConfig, modules: tuple[str, ...]) -> bool:
    """Whether a plain matrix is known to be in numbers that two bytes may not hold."""
    stored = config.weight_format
    return isinstance(stored, Forms) and any(module in stored.wide for module in modules)
