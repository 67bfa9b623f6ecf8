"""How a checkpoint stores the matrices of linear maps, from `quantization_config` in its `config.json`.

::

    quant_method         kind       tensors of a linear map, instead of `weight` alone
    gptq                 gptq       qweight, qzeros, scales, g_idx                       4 or 8 bits
    awq                  awq        qweight, qzeros, scales                              4 bits, version gemm
    compressed-tensors   packed     weight_packed, weight_scale, weight_zero_point       4 or 8 bits
    compressed-tensors   bytes      weight (int8, e4m3), weight_scale, weight_zero_point
    fp8                  bytes      weight (e4m3), weight_scale_inv or weight_scale
    bitnet               ternary    weight (-1, 0, 1 in two bits each), weight_scale
                         master     weight alone, a plain one, which is rounded to -1, 0, 1 while loading

Activations are rounded by BitNet, and where compressed-tensors asks for int8 by int8: `_inputs`. Others are left alone.
Whatever else is named is refused here, before a tensor is opened. Knows no tensors; `published` reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ...errors import ModelError
from .json_file import Fields
from .name_pattern import NamePattern, Work

if TYPE_CHECKING:
    from ...kernels.grouped import Element
    from .architecture import Architecture

Kind = Literal["gptq", "awq", "packed", "bytes", "ternary", "master"]
Inputs = Literal["plain", "own steps", "one step"]
WORD = 8  # numbers of four bits that a word holds; of eight, two words
PLAIN = ("embed_tokens", "lm_head")  # what is no linear map of a layer
REMEDY = "use the original weights, or a checkpoint in GPTQ, AWQ, compressed-tensors (4 or 8 bits), fp8 or BitNet"


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """The form of all linear maps but those that are excluded or stored plainly all the same.

    Attributes:
        element: what a number becomes (`kernels.grouped`).
        size: inputs that share a scale; 0: all of an output's.
        block_rows: outputs that share a scale; 0: each has its own, or all have one.
        has_order: the inputs of a group need not be neighbours.
        counts_from_one: zeros are stored less one (GPTQ's first format).
        has_zeros: zeros are stored (compressed-tensors only; GPTQ and AWQ always have them).
        scale: name of the scales' tensor.
        scales: whether each output, or group of its inputs, has its own, or one goes for the whole matrix.
        inputs: whether they are rounded to int8: each row by its own step, or all by one that is stored.
        input_limit: how many steps of its own a row's largest input has.
        divides: numbers are divided by their scale.
        excluded: modules that are stored plainly: names or parts of them, or patterns ("re:…" in the file).
    """

    method: str
    kind: Kind
    element: Element
    size: int
    block_rows: int = 0
    has_order: bool = False
    counts_from_one: bool = False
    has_zeros: bool = True
    scale: str = "scales"
    scales: Literal["each", "one", "either"] = "each"
    inputs: Inputs = "plain"
    input_limit: float = 127.5
    divides: bool = False
    excluded: tuple[str | NamePattern, ...] = ()

    def excludes(self, module: str) -> bool:
        """Whether the linear map of this name is stored plainly.

        An entry is a regular expression for the beginning of the name, or whole parts of it.

        Raises:
            ModelError: a pattern takes too long to match.
        """
        return any(
            bool(entry.ends(module)) if isinstance(entry, NamePattern) else f".{entry}." in f".{module}."
            for entry in self.excluded
        )


def read_weight_format(fields: Fields) -> WeightFormat | None:
    """What `config.json` says; None: all weights are plain numbers, or MXFP4.

    Raises:
        ModelError: a method or a setting that no reader here knows, named, with the remedy.
    """
    if "quantization_config" not in fields:
        return None
    section = fields.section("quantization_config")
    method = section.values.get("quant_method", "unknown method")
    if method == "mxfp4":
        return None
    reader = _READERS.get(method) if isinstance(method, str) else None
    if reader is None:
        raise ModelError(f"{fields.place}: quantization_config ({method}) is not supported; {REMEDY}")
    return reader(section)


def check_fit(form: WeightFormat | None, options: Architecture, place: str) -> None:
    """Raises ModelError where a form is not read of an architecture's linear maps."""
    single = "" if options.experts is None else options.experts.names.stacked or options.experts.names.fused
    if form is not None and single:
        raise ModelError(
            f"{place}: quantization_config ({form.method}): experts that are single tensors ({single}) are read in "
            "MXFP4 and in plain numbers; use the original weights"
        )
    others = (options.experts, options.recurrent, options.is_latent, options.transposed)
    is_usual = not any(others) and (options.embedding, options.projection) == PLAIN
    if form is not None and form.method == "bitnet" and not is_usual:
        raise ModelError(
            f"{place}: quantization_config (bitnet) is read of layers of attention and an MLP alone, with embed_tokens "
            "before and lm_head after them; use the original weights"
        )


def _gptq(section: Fields) -> WeightFormat:
    form = section.text("checkpoint_format", section.text("format", "gptq"))
    if form not in ("gptq", "gptq_v2") or section.boolean("is_marlin_format", False):
        raise _unsupported(section, "checkpoint_format", form, "a kernel's own layout; gptq and gptq_v2 are read")
    changed = section.section("dynamic").values
    if any(not name.startswith("-:") for name in changed):
        raise _unsupported(section, "dynamic", ", ".join(changed), "settings of single modules")
    if section.text("pack_dtype", "int32") != "int32":
        raise _unsupported(section, "pack_dtype", section.text("pack_dtype"), "numbers are packed in int32 here")
    return WeightFormat(
        "gptq",
        "gptq",
        _element(section, "bits"),
        _size(section, "group_size"),
        has_order=section.boolean("desc_act", False),
        counts_from_one=form == "gptq",
        excluded=_names(section, "modules_to_not_convert"),
    )


def _awq(section: Fields) -> WeightFormat:
    bits, size = ("bits", "group_size") if "bits" in section else ("w_bit", "q_group_size")
    version = section.text("version", section.text("format", "gemm")).lower()
    if version != "gemm":
        raise _unsupported(section, "version", version, "its order of numbers; gemm is read")
    if _element(section, bits) != "int4":
        raise _unsupported(section, bits, section.values[bits], "AWQ has 4")
    excluded = _names(section, "modules_to_not_convert")
    return WeightFormat("awq", "awq", "int4", _size(section, size), excluded=excluded)


def _fp8(section: Fields) -> WeightFormat:
    form = section.text("fmt", "e4m3")
    if form != "e4m3":
        raise _unsupported(section, "fmt", form, "e4m3 is read")
    if section.text("expert_dtype", "fp8") != "fp8":
        raise _unsupported(section, "expert_dtype", section.text("expert_dtype"), "experts in fp8 are read")
    key = "modules_to_not_convert" if "modules_to_not_convert" in section else "ignored_layers"
    excluded = _names(section, key)
    if "weight_block_size" not in section:
        return WeightFormat(
            "fp8", "bytes", "e4m3", 0, has_zeros=False, scale="weight_scale", scales="either", excluded=excluded
        )
    rows, columns = _block(section, "weight_block_size")
    return WeightFormat(
        "fp8", "bytes", "e4m3", columns, rows, has_zeros=False, scale="weight_scale_inv", excluded=excluded
    )


def _compressed(section: Fields) -> WeightFormat:
    groups = section.section("config_groups")
    schemes = [groups.section(name) for name in groups.values]
    if not schemes:
        raise section.odd("config_groups", "at least one group")
    for key in ("sparsity_config", "transform_config"):
        given = section.section(key).values
        if given and given.get("format") != "dense":
            raise _unsupported(section, key, "given", "weights are dense here, and nothing is rotated")
    found = {repr((sorted(_compressed_weights(scheme).items()), _inputs(scheme))) for scheme in schemes}
    if len(found) > 1:
        raise _unsupported(section, "config_groups", f"{len(schemes)} groups", "one form of weights for all is read")
    form = schemes[0].text("format", section.text("format"))
    kinds: dict[str, Kind] = {"pack-quantized": "packed"}
    kinds |= dict.fromkeys(("naive-quantized", "int-quantized", "float-quantized"), "bytes")
    if form not in kinds:
        raise _unsupported(section, "format", form, f"{', '.join(kinds)} are read")
    weights = schemes[0].section("weights")
    element: Element = "e4m3"
    if weights.text("type", "int") != "float":
        element = _element(weights, "num_bits")
    elif weights.integer("num_bits") != 8:
        raise _unsupported(weights, "num_bits", weights.values["num_bits"], "floats have 8")
    strategy, size, block_rows = weights.text("strategy"), 0, 0
    if strategy == "group":
        size = _size(weights, "group_size")
    elif strategy == "block":
        block_rows, size = _block(weights, "block_structure")
    elif strategy not in ("channel", "tensor"):
        raise _unsupported(weights, "strategy", strategy, "tensor, channel, group and block are read")
    has_order = weights.values.get("actorder") in (True, "group")
    has_zeros = not weights.boolean("symmetric", True)
    excluded = _names(section, "ignore")
    return WeightFormat(
        "compressed-tensors",
        kinds[form],
        element,
        size,
        block_rows,
        has_order,
        False,
        has_zeros,
        "weight_scale",
        "one" if strategy == "tensor" else "each",
        "plain" if size or block_rows or has_zeros or element != "int8" else _inputs(schemes[0]),
        excluded=excluded,
    )


def _bitnet(section: Fields) -> WeightFormat:
    linear_class = section.text("linear_class", "bitlinear")
    if linear_class not in ("bitlinear", "autobitlinear"):
        raise _unsupported(section, "linear_class", linear_class, "bitlinear and autobitlinear are read")
    mode = section.text("quantization_mode", "offline")
    if mode not in ("offline", "online"):
        raise _unsupported(section, "quantization_mode", mode, "offline and online are read")
    if section.boolean("use_rms_norm", False):
        raise _unsupported(section, "use_rms_norm", True, "norms of the inputs of each linear map are missing here")
    is_rounded_here = linear_class == "autobitlinear" and mode == "online"
    return WeightFormat(
        "bitnet",
        "master" if is_rounded_here else "ternary",
        "int8",
        0,
        has_zeros=False,
        scale="weight_scale",
        scales="one",
        inputs="own steps",
        input_limit=127.0,
        divides=linear_class == "bitlinear",
        excluded=(*PLAIN, *_names(section, "modules_to_not_convert")),
    )


def _inputs(scheme: Fields) -> Inputs:
    """What becomes of the inputs of int8 weights.

    Asymmetric ones, and floats, are left as they are: so nothing is lost that the format would have rounded off.
    """
    given = scheme.values.get("input_activations")
    if not isinstance(given, dict) or given.get("num_bits") != 8 or given.get("type", "int") != "int":
        return "plain"
    how = (given.get("dynamic", False), given.get("strategy"))
    if given.get("symmetric", True) is not True:
        return "plain"
    return (
        "own steps" if how in ((True, "token"), (True, None)) else "one step" if how == (False, "tensor") else "plain"
    )


def _compressed_weights(scheme: Fields) -> dict[str, Any]:
    """What matters of how a group's weights are stored."""
    weights = scheme.section("weights").values
    if not weights:
        raise scheme.odd("weights", "an object")
    keys = ("num_bits", "type", "symmetric", "group_size", "strategy", "block_structure", "actorder")
    return {key: weights.get(key) for key in keys} | {"format": scheme.values.get("format")}


_READERS = {"gptq": _gptq, "awq": _awq, "fp8": _fp8, "compressed-tensors": _compressed, "bitnet": _bitnet}


def _element(section: Fields, key: str) -> Element:
    elements: dict[int, Element] = {4: "int4", 8: "int8"}
    bits = section.integer(key)
    if bits not in elements:
        raise _unsupported(section, key, bits, "4 and 8 are read")
    return elements[bits]


def _size(section: Fields, key: str) -> int:
    """Inputs of a group; -1, which stands for all, as 0."""
    size = section.integer(key, -1, at_least=-1)
    if size == -1:
        return 0
    if size == 0 or size % 8:
        raise section.odd(key, "-1 or a multiple of 8")
    return size


def _block(section: Fields, key: str) -> tuple[int, int]:
    value = section.values.get(key)
    if not isinstance(value, list) or len(value) != 2 or not all(type(n) is int and n > 0 for n in value):
        raise section.odd(key, "[rows, columns]")
    rows, columns = value
    return rows, columns


def _names(section: Fields, key: str) -> tuple[str | NamePattern, ...]:
    value = section.values.get(key) or []
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise section.odd(key, "a list of names")
    place, work = f"{section.place}: {key}", Work()
    return tuple(NamePattern(name[3:], place, work) if name.startswith("re:") else name for name in value)


def _unsupported(section: Fields, key: str, found: object, why: str) -> ModelError:
    return ModelError(f"{section.place}: {key}: {found} is not supported ({why}); {REMEDY}")
