"""A checkpoint's `config.json`, read once into one frozen value in our own words.

Everything that the decoder, the planner and the engine need to know about a model is here, checked; no tensor is
touched. Both spellings of RoPE are read: `rope_theta` + `rope_scaling`, and `rope_parameters` (transformers 5), for
the whole model or one per layer type.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import ConfigError, ModelError
from ..number_types import BYTES, ROUNDED_BITS, NumberType
from .activation_config import Activation, named_curve, read_activation, read_sparsity
from .altup_config import AltUpConfig
from .architecture import Architecture, Curve
from .architectures import ARCHITECTURES
from .experts_config import ExpertsConfig
from .factors import Factors, embedding_scale, residual_scale, width_scale
from .gguf.families import file_options, module_forms, tensor_names
from .gguf.file import GgufFile, is_gguf
from .gguf.settings import MOST_POSITIONS, config_values, family_of
from .gguf.special_ids import end_ids, token_id
from .gguf.tensor_types import Forms
from .json_file import MOST_WIDTH, Fields, read_json_object
from .kv_shape import KVShape
from .latent_config import LatentConfig, attention_scale
from .layer_config import (
    LayerConfig,
    LayerInputConfig,
    QueryGrowth,
    make_layers,
    read_growth,
    read_kv_sources,
    read_ropes,
    read_shapes,
    read_windows,
    rope_section,
)
from .layer_kinds import MOST_LAYERS, check_kept, mlp_width, parts_of_layers, read_recurrent, spelled_out
from .named_architecture import OTHER_PARTS, named_architecture
from .recurrent_config import RecurrentConfig
from .rope_config import RopeConfig
from .weight_format import WeightFormat, check_fit, read_weight_format

MOST_HEADS, MOST_TOKENS = 1 << 12, 1 << 24
ENDLESS = 1 << 20  # tokens that are served of a model without attention, whose files name no context


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder's shape and options.

    Attributes:
        architecture: class name in transformers, a key of `ARCHITECTURES`.
        options: the architecture's entry of options.
        num_kv_heads, head_dim: heads that the cache keeps of a token, and elements of one, of queries too; with latents
            one head, as wide as what is kept. Layers may have their own (`LayerConfig.kv`).
        intermediate_size: width of the MLP's gate (and of its up-projection), where it is no mixture of experts.
        layers: one entry per layer.
        latent: the widths of latent attention; None: every head has keys and values of its own.
        experts: the mixtures of experts in place of MLPs; None: there are none.
        ropes: the distinct rotary embeddings; most models have one.
        qkv_bias, o_bias, mlp_bias: whether these projections add a bias.
        activation: of the MLP's gate.
        embedding_scale: factor on token embeddings.
        residual_scale: factor on what attention and MLP add.
        width_scale: factor on the last hidden state.
        attention_scale: factor on q·k.
        attention_soft_cap, logits_soft_cap: `cap · tanh(x / cap)`; 0: off.
        max_position_embeddings: the context the model was made for, in tokens.
        eos_ids: tokens that end a generation, from `generation_config.json` or else `config.json`; may be empty.
        bos_id: -1: none is named.
        dtype: of the stored weights, where they are not in fewer bits.
        curve: the activation of an MLP without a gate; None: it has one.
        query_growth: how queries grow with the position, in the layers that say so; None: they do not.
        left_aside: parts of names of tensors that are no part of the decoder.
        recurrent: of layers that keep a state; None: all keep keys and values.
        factors: on activations.
        weight_format: of linear maps that are; None: they are in `dtype`, or experts in MXFP4.
        num_mtp_layers: layers beyond the model's own that predict more tokens (`mtp.py`).
        layer_inputs: inputs of each layer that come from the token itself; None: there are none.
        altup: several streams of hidden states; None: there is one.
    """

    architecture: str
    options: Architecture
    vocab_size: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    layers: tuple[LayerConfig, ...]
    latent: LatentConfig | None
    experts: ExpertsConfig | None
    ropes: tuple[RopeConfig, ...]
    rms_norm_eps: float
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    tie_word_embeddings: bool
    activation: Activation
    embedding_scale: float
    residual_scale: float
    width_scale: float
    attention_scale: float
    attention_soft_cap: float
    logits_soft_cap: float
    max_position_embeddings: int
    eos_ids: tuple[int, ...]
    bos_id: int
    dtype: NumberType
    curve: Curve | None = None
    query_growth: QueryGrowth | None = None
    left_aside: tuple[str, ...] = ()
    recurrent: RecurrentConfig | None = None
    factors: Factors = Factors()
    weight_format: WeightFormat | Forms | None = None
    num_mtp_layers: int = 0
    layer_inputs: LayerInputConfig | None = None
    altup: AltUpConfig | None = None

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    def is_recurrent(self, index: int) -> bool:
        """Whether a layer keeps a state."""
        return self.recurrent is not None and self.recurrent.layers[index]

    @property
    def num_kv_layers(self) -> int:
        """Layers that keep keys and values."""
        return sum(layer.keeps_kv for layer in self.layers)

    def experts_of(self, index: int) -> ExpertsConfig | None:
        """The mixture in place of a layer's MLP, or beside it; None: there is none."""
        return self.experts if self.experts is not None and self.experts.has_experts[index] else None

    def has_dense(self, index: int) -> bool:
        """Whether a layer has an MLP that is no mixture."""
        experts = self.experts_of(index)
        return self.layers[index].has_mlp and (experts is None or experts.options.is_beside)

    def kv_shape(self, index: int) -> KVShape:
        """What a layer that attends keeps of a token, or the one whose keys and values it reads."""
        return self.layers[index].kv or KVShape(self.num_kv_heads, self.head_dim, self.num_kv_parts)

    def kv_shapes(self, *, windowed: bool | None = None) -> tuple[KVShape, ...]:
        """Of each layer that keeps keys and values; windowed: only of those with a window, or only of those without."""
        kept = [index for index, layer in enumerate(self.layers) if layer.keeps_kv]
        return tuple(self.kv_shape(at) for at in kept if windowed in (None, self.layers[at].window > 0))

    def qkv_rows(self, index: int) -> tuple[int, ...]:
        """Rows of a layer's query (with gates), key and value projections, of heads with keys and values of their own;
        no third where values are made of the keys, and queries alone where it keeps none."""
        kv, layer = self.kv_shape(index), self.layers[index]
        heads = [self.num_heads * (1 + self.options.gated_attention)]
        heads += [kv.num_heads] * (2 - layer.reuses_keys) * layer.keeps_kv
        return tuple(number * kv.head_dim for number in heads)

    def projected(self, index: int) -> tuple[tuple[str, ...], int]:
        """Names of a layer's first projection, and all of its rows."""
        rows = self.qkv_rows(index)
        return self.options.names.qkv[: len(rows)], sum(rows)

    def inner_size(self, index: int) -> int:
        """Width of a layer's MLP, where it has one that is no mixture."""
        return self.intermediate_size * self.layers[index].width_factor

    def gate_up_size(self, index: int) -> int:
        """Rows of that MLP's first projection."""
        return self.inner_size(index) * (1 if self.curve is not None else 2)

    def attended_size(self, index: int) -> int:
        """Inputs of a layer's output projection: a value for every head."""
        return self.num_heads * (self.kv_shape(index).head_dim if self.latent is None else self.latent.value_dim)

    @property
    def num_kv_parts(self) -> int:
        """Tensors that the cache keeps per layer: keys and values, or latents."""
        return 2 if self.latent is None else 1

    def check_kv_type(self, name: str) -> None:
        """Raises ConfigError if the model's cache cannot be kept in the type of that name."""
        if self.latent is not None and name in ROUNDED_BITS:
            raise ConfigError(f'kv_dtype: {self.architecture} keeps latents, which are not rounded; leave it "auto"')

    @staticmethod
    def from_folder(path: str | Path) -> ModelConfig:
        """Reads `config.json` and, if there, `generation_config.json`; or a GGUF file, which says the same.

        Raises:
            ModelError: no folder, no file, broken JSON, an architecture or option that is not supported, a value
                that is missing or odd. The message names file, key and found value.
        """
        folder = Path(path)
        if is_gguf(folder) and folder.is_file():
            return _from_gguf(GgufFile(folder))
        if not folder.is_dir():
            what = "is a file" if folder.exists() else "does not exist"
            raise ModelError(f"{folder}: {what}; expected a checkpoint folder with config.json")
        if not (folder / "config.json").exists():
            what = "is empty" if not any(folder.iterdir()) else "has no config.json"
            raise ModelError(f"{folder} {what}; expected a checkpoint in Hugging Face layout")
        values = read_json_object(folder / "config.json")
        generation = folder / "generation_config.json"
        eos = Fields(read_json_object(generation), str(generation)).ids("eos_token_id") if generation.exists() else ()
        return _from_fields(Fields(values, str(folder / "config.json")), eos)


def _from_gguf(file: GgufFile) -> ModelConfig:
    """What a GGUF file says of its model.

    Raises:
        ModelError: as `ModelConfig.from_folder` does.
    """
    values = config_values(file)
    bos = token_id(file, "bos_token_id")
    fields = Fields(values | ({"bos_token_id": bos} if bos >= 0 else {}), f"{file.path}, as config.json")
    config = _from_fields(fields, end_ids(file), in_gguf=True)
    num_experts = 0 if config.experts is None else config.experts.num_experts
    names = tensor_names(file, family_of(file), config.options, config.num_layers, num_experts)
    return replace(config, weight_format=module_forms(file, names))


def _from_fields(fields: Fields, generation_eos: tuple[int, ...], *, in_gguf: bool = False) -> ModelConfig:
    outer = fields
    architecture, fields = named_architecture(outer)
    options = ARCHITECTURES[architecture].of(fields)
    if options.adapts is not None:
        fields, options = options.adapts(fields, options)
    if in_gguf:
        is_fused, joins_qkv = fields.boolean("is_fused", False), fields.boolean("joins_qkv", False)
        options = file_options(options, is_fused=is_fused, joins_qkv=joins_qkv)
    fields = spelled_out(fields, options)
    is_mxfp4, weight_format = _is_mxfp4(fields, options), read_weight_format(fields)
    check_fit(weight_format, options, fields.place)
    num_layers = fields.integer("num_hidden_layers", at_most=MOST_LAYERS)
    num_mtp_layers = fields.integer(options.mtp.count_key, options.mtp.count, at_least=0, at_most=MOST_LAYERS)
    hidden_size = fields.integer("hidden_size", at_most=MOST_WIDTH)
    recurrent = read_recurrent(fields, options, num_layers, hidden_size)
    parts = parts_of_layers(fields, options, recurrent, num_layers)
    attends = any(has for has, _ in parts)
    num_heads = fields.integer("num_attention_heads", None if attends else 1, at_most=MOST_HEADS)
    latent = _latent(fields, options, hidden_size // num_heads)
    num_kv_heads, head_dim = 1, 8 if latent is None else latent.width
    if latent is None and attends:
        num_kv_heads, head_dim = _heads(fields, hidden_size, num_heads)
    longest = None if attends else ENDLESS
    max_positions = fields.integer("max_position_embeddings", longest, at_most=MOST_POSITIONS)
    windows = read_windows(fields, options, num_layers)
    check_kept(fields, recurrent, windows)
    rotary_dim = head_dim if latent is None else latent.rotary_dim
    own = read_shapes(fields, options, windows, KVShape(num_kv_heads, head_dim), num_heads)
    full_dim = next((shape.head_dim for shape in own if shape is not None), rotary_dim)
    ropes, rope_of_layer = read_ropes(fields, options, windows, (full_dim, rotary_dim), max_positions)
    growth, grow = read_growth(fields, options, ropes, rope_of_layer)
    sources = read_kv_sources(fields, options, windows, rope_of_layer)
    sparsity = read_sparsity(fields, num_layers)
    vocab_size, activation = fields.integer("vocab_size", at_most=MOST_TOKENS), read_activation(fields, options)
    experts = _experts(fields, options, num_layers, is_mxfp4=is_mxfp4)
    factors = Factors.of_normed(fields) if options.keeps_normed else Factors()
    return ModelConfig(
        architecture=architecture,
        options=options,
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        intermediate_size=mlp_width(fields, options, experts, parts),
        layers=make_layers(options, parts, windows, rope_of_layer, grow, sources, sparsity, own),
        latent=latent,
        experts=experts,
        ropes=ropes,
        rms_norm_eps=fields.number(options.eps_key, 1e-6),
        qkv_bias=_bias(fields, options, options.qkv_bias),
        o_bias=_bias(fields, options, options.o_bias),
        mlp_bias=_mlp_bias(fields, options),
        tie_word_embeddings=fields.boolean(
            "tie_embedding" if "tie_embedding" in fields else "tie_word_embeddings", options.tied
        ),
        activation=activation,
        embedding_scale=embedding_scale(fields, options, hidden_size),
        residual_scale=residual_scale(fields, options, num_layers),
        width_scale=width_scale(fields, options, hidden_size),
        attention_scale=_scale(fields, options, latent, head_dim),
        attention_soft_cap=fields.number("attn_logit_softcapping", 0.0, above=-1.0),
        logits_soft_cap=fields.number("final_logit_softcapping", 0.0, above=-1.0),
        max_position_embeddings=max_positions,
        eos_ids=_eos_ids(fields, generation_eos, vocab_size),
        bos_id=next(iter(fields.ids("bos_token_id")), -1),
        dtype=_dtype(fields, "bfloat16" if is_mxfp4 or weight_format is not None else "float32"),
        curve=named_curve(fields) if options.gateless else None,
        query_growth=growth,
        left_aside=_left_aside(options, num_layers, num_mtp_layers) + (OTHER_PARTS if fields is not outer else ()),
        recurrent=recurrent,
        factors=Factors.from_fields(fields) if options.factors else factors,
        weight_format=weight_format,
        num_mtp_layers=num_mtp_layers,
        layer_inputs=LayerInputConfig.from_fields(fields, num_layers) if options.has_layer_inputs else None,
        altup=AltUpConfig.from_fields(fields) if options.has_altup else None,
    )


def _scale(fields: Fields, options: Architecture, latent: LatentConfig | None, head_dim: int) -> float:
    """What products of queries and keys are multiplied with."""
    if options.multipliers:
        scale = fields.number("attention_multiplier", 1.0)
    elif latent is None:
        scale = fields.number("query_pre_attn_scalar", float(head_dim)) ** -0.5
    else:
        scale = attention_scale(latent, rope_section(fields))
    return scale * fields.number("key_multiplier", 1.0) if options.factors else scale


def _experts(fields: Fields, options: Architecture, num_layers: int, *, is_mxfp4: bool) -> ExpertsConfig | None:
    """Of an architecture that may have a mixture; None: this checkpoint has none."""
    has_experts = not options.experts_key or fields.integer(options.experts_key, 0, at_least=0) > 0
    kinds = fields.values.get("mlp_layer_types")
    if options.experts is None or not has_experts or (isinstance(kinds, list) and "sparse" not in kinds):
        return None
    if options.experts.gateless and named_curve(fields) != "relu2":
        raise fields.odd("hidden_act", "relu2")
    return ExpertsConfig.from_fields(fields, options.experts, num_layers, is_mxfp4=is_mxfp4)


def _left_aside(options: Architecture, num_layers: int, num_mtp_layers: int) -> tuple[str, ...]:
    """Layers that predict tokens beyond the next (GLM-4.5, DeepSeek-V3; ERNIE 4.5), and masks (GPT-NeoX, GPT-2)."""
    masks: tuple[str, ...] = (".attention.bias", ".attention.masked_bias") if options.rows_by_head else ()
    masks = (".attn.bias", ".attn.masked_bias") if options.transposed else masks
    num_after = 0 if options.mtp.base else num_mtp_layers
    return (*(f"layers.{num_layers + index}." for index in range(num_after)), "mtp.", "mtp_", *masks)


def _heads(fields: Fields, hidden_size: int, num_heads: int) -> tuple[int, int]:
    """Number of KV heads, and elements of a head."""
    num_kv_heads = fields.integer("num_key_value_heads", num_heads)
    if num_heads % num_kv_heads:
        raise fields.odd("num_key_value_heads", f"a divisor of num_attention_heads ({num_heads})")
    if "head_dim" not in fields and hidden_size % num_heads:
        raise fields.odd("hidden_size", f"a multiple of num_attention_heads ({num_heads}), or an explicit head_dim")
    return num_kv_heads, fields.integer("head_dim", hidden_size // num_heads, at_most=MOST_WIDTH)


def _latent(fields: Fields, options: Architecture, value_dim: int) -> LatentConfig | None:
    if not options.is_latent:
        return None
    has_bias = _bias(fields, options, options.qkv_bias)
    return LatentConfig.from_fields(fields, value_dim=value_dim, is_interleaved=options.interleaved, has_bias=has_bias)


def _bias(fields: Fields, options: Architecture, option: bool | str) -> bool:
    return fields.boolean(option, options.biased) if isinstance(option, str) else option


def _mlp_bias(fields: Fields, options: Architecture) -> bool:
    """Absent, a key that is the MLP's alone means none."""
    return _bias(fields, options, options.mlp_bias) if options.mlp_bias != "mlp_bias" or "mlp_bias" in fields else False


def _is_mxfp4(fields: Fields, options: Architecture) -> bool:
    """Whether experts are stored in 4 bits a number, as gpt-oss' are, the only ones that are."""
    if "quantization_config" not in fields:
        return False
    method = fields.section("quantization_config").values.get("quant_method")
    if method == "mxfp4" and not (options.experts is not None and options.experts.names.stacked):
        raise ModelError(f"{fields.place}: quantization_config (mxfp4) is not supported; use the original weights")
    return method == "mxfp4"


def _eos_ids(fields: Fields, generation_eos: tuple[int, ...], vocab_size: int) -> tuple[int, ...]:
    ids = tuple(dict.fromkeys(generation_eos or fields.ids("eos_token_id")))
    if any(not 0 <= token_id < vocab_size for token_id in ids):
        raise ModelError(f"{fields.place}: eos_token_id {list(ids)} lies outside of vocab_size {vocab_size}")
    return ids


def _dtype(fields: Fields, default: NumberType) -> NumberType:
    name = fields.text("dtype", fields.text("torch_dtype", default)).removeprefix("torch.")
    for known in BYTES:
        if name == known:
            return known
    raise fields.odd("dtype", f"one of {', '.join(BYTES)}")
