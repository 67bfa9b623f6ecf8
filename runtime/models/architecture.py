"""What an architecture is: options that say how it differs from Llama, and the names of its tensors.

The architectures themselves are in `architectures.py`. Knows no tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from ...errors import ModelError
from .experts_config import ExpertOptions
from .json_file import Fields
from .kv_shape import KVShape
from .recurrent_config import RecurrentOptions

NormKind = Literal["rms", "layer", "unbiased_layer"]
Curve = Literal["relu", "relu2", "silu", "gelu", "gelu_tanh", "xielu"]
WindowRule = Callable[[Fields, int], list[bool]]


@dataclass(frozen=True, slots=True)
class LayerNames:
    """Tensor names below `model.layers.<i>.`; several names are stacked, row upon row, in this order.

    o_norm, down_norm: of RMSNorms of the inputs of `o` and `down`; "": there is none.
    """

    input_norm: str = "input_layernorm"
    qkv: tuple[str, ...] = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    q_norm: str = "self_attn.q_norm"
    k_norm: str = "self_attn.k_norm"
    sinks: str = "self_attn.sinks"
    o_norm: str = ""
    o: str = "self_attn.o_proj"
    post_attention_norm: str = ""
    mlp_norm: str = "post_attention_layernorm"
    gate_up: tuple[str, ...] = ("mlp.gate_proj", "mlp.up_proj")
    down_norm: str = ""
    down: str = "mlp.down_proj"
    post_mlp_norm: str = ""


@dataclass(frozen=True, slots=True)
class MtpNames:
    """Where the layer for multi-token prediction is (`mtp.py`), and what stands around it.

    Attributes:
        base: below which all of it is, the layer as `layers.0`; "": below the layer after the model's last.
        count_key: key of `config.json` for the number of such layers.
        count: what its absence means.
    """

    base: str = ""
    token_norm: str = "enorm"
    state_norm: str = "hnorm"
    joint: str = "eh_proj"
    final_norm: str = "shared_head.norm"
    count_key: str = "num_nextn_predict_layers"
    count: int = 0


@dataclass(frozen=True, slots=True)
class Architecture:
    """Options of one architecture.

    Attributes:
        names: where the tensors of a layer are.
        qkv_bias, o_bias: True, False, or the key of `config.json` that says.
        biased: what an absence of that key means.
        mlp_bias: as these, of the MLP.
        qk_norm: an RMSNorm on every query and key head before RoPE; or the key that says.
        whole_norms: that norm is one over all query heads together, and one over all key heads.
        has_sinks: every head has one more logit, learned, that takes part in the softmax and carries no value.
        norms_after_rope: that norm comes after RoPE (Hunyuan).
        own_norms: that norm is a LayerNorm of each head with weights of its own.
        reuses_keys: layers without a window take values from the key projection, before norm and RoPE (Gemma 4).
        full_shape: what layers without a window keep, where that is not what those with one do (Gemma 4).
        layer_scalars: what leaves a layer is multiplied by a stored number (Gemma 4).
        weightless_norms: that norm has no weights, and layers without positions have none (Llama 4).
        refused: keys of `config.json` whose features are missing here, and what these are.
        norm: of hidden states: RMSNorm, or LayerNorm with a bias or without one.
        parallel: attention and MLP take the same input, or its own norm each, and are added together; or the key that
            says.
        shares_norm: where attention and MLP are side by side, both take what one norm makes (StableLM).
        pre_norms: a norm before attention and before the MLP (OLMo 2 has none).
        sandwich_norms: a norm after attention and after the MLP, before the residual sum.
        norm_offset: added to every norm weight (Gemma stores w - 1).
        scale_embedding: token embeddings are multiplied by sqrt(hidden_size), or by this key of `config.json`.
        depth_scale: what a layer adds is multiplied by `scale_depth / sqrt(num_hidden_layers)`.
        width_scale: the last hidden state is divided by `hidden_size / dim_model_base`.
        multipliers: `attention_multiplier`, `residual_multiplier` and `logits_scaling` are read (Granite).
        gelu: the gate is GELU (tanh form) whatever `hidden_act` says; otherwise it must say silu.
        logit_scale: key of a factor on logits (Cohere); "": there is none.
        gateless: the MLP is `down(activation(up(x)))`, with the activation that `hidden_act` names (`gateless.py`).
        tied: what an absent `tie_word_embeddings` means.
        sliding: which layers have a window when the configuration names one but lists no `layer_types`.
        in_chunks: a window is a chunk of `attention_chunk_size` tokens, from whose beginning on a token sees (Llama 4).
        unturned_every: every n-th layer has no positions where `no_rope_layers` does not list them; 0: all have.
        unturned: where `sliding_window` is named, layers without a window have no positions either.
        is_latent: multi-head latent attention.
        interleaved: the two elements of a rotary pair stand side by side; with latents, if `rope_interleave` is absent.
        partial_rotary: what an absent `partial_rotary_factor` means.
        local_theta: layers with a window have a rope of their own, with this default base (0: they do not).
        unscaled_windows: they have one of the same base, without its scaling.
        experts: MLPs are mixtures of experts; None: they are not.
        recurrent: some layers keep a state instead of keys and values; None: none does.
        gated_attention: queries come with a gate, by whose sigmoid what attention makes is multiplied (Qwen3-Next).
        eps_key: key of `config.json` for the norms' epsilon.
        backbone: what its class calls all but the projection to the vocabulary, as adapters name modules.
        embedding: name of the embedding, next to the layers.
        positions: name of a table of learned positions, added to the embedding, next to it; "": there is none.
        first_row: of that table, for position 0.
        transposed: matrices of the layers are stored as inputs by outputs (GPT-2).
        projection: name of the projection to the vocabulary.
        projection_bias: True, False, or the key that says whether it has a bias.
        scales_queries: queries at far positions are scaled up, by `llama_4_scaling_beta` (Ministral 3), or by
            `attn_scale` in layers without positions (Llama 4).
        rows_by_head: a fused projection makes the queries of a KV head, its key and its value, and then those of the
            next (GPT-NeoX, Falcon).
        layers: name of the list of layers.
        adapts: puts a configuration into the words of the others, and chooses options by it.
        final_norm: name of the last norm, next to the layers.
        width_key: key of `config.json` for the MLP's width.
        positions_key: key that says "rope" where there is one; "": there is.
        experts_key: key of the number of experts, where that may be 0 and there are MLPs then; "": there are always.
        mlp_moved: where MLPs may be instead of below "mlp."; "": nowhere (Kimi Linear, as transformers saves it).
        keeps_normed: what attention and MLP add to is their normed input, times a factor of `Factors` (MiniMax).
        aliases: keys of `config.json` that stand for others here.
        one_part: each layer is attention, a recurrent layer, an MLP or experts, with one norm (Nemotron-H, Mamba).
        factors: activations are multiplied by what `Factors` reads (Falcon-H1).
        has_positions: attention has positions.
        shares_kv: the last `num_kv_shared_layers` layers read the keys and values of earlier ones (Gemma 3n).
        norms_values: values are normed, by no weights.
        widens_shared: MLPs of layers that read the keys and values of others are twice as wide (Gemma 4).
        has_layer_inputs: layers have inputs of their own (`layer_inputs.py`).
        has_altup: there are several streams of hidden states (`altup.py`).
        mtp: names of the layer for multi-token prediction, where a checkpoint has one.
        adjusts_width: the MLP's width is what an MLP without a gate would have (LFM2).
    """

    names: LayerNames = LayerNames()
    qkv_bias: bool | str = "attention_bias"
    o_bias: bool | str = "attention_bias"
    biased: bool = False
    mlp_bias: bool | str = "mlp_bias"
    qk_norm: bool | str = False
    whole_norms: bool = False
    has_sinks: bool = False
    norms_after_rope: bool = False
    own_norms: bool = False
    weightless_norms: bool = False
    reuses_keys: bool = False
    full_shape: Callable[[Fields, list[bool], KVShape, int], KVShape] | None = None
    layer_scalars: bool = False
    refused: tuple[tuple[str, str], ...] = ()
    norm: NormKind = "rms"
    parallel: bool | str = False
    shares_norm: bool = False
    pre_norms: bool = True
    sandwich_norms: bool = False
    norm_offset: float = 0.0
    scale_embedding: bool | str = False
    depth_scale: bool = False
    width_scale: bool = False
    multipliers: bool = False
    gelu: bool = False
    logit_scale: str = ""
    gateless: bool = False
    tied: bool = False
    sliding: WindowRule | None = None
    in_chunks: bool = False
    unturned_every: int = 0
    unturned: bool = False
    is_latent: bool = False
    interleaved: bool = False
    partial_rotary: float = 1.0
    local_theta: float = 0.0
    unscaled_windows: bool = False
    experts: ExpertOptions | None = None
    recurrent: RecurrentOptions | None = None
    gated_attention: bool = False
    eps_key: str = "rms_norm_eps"
    backbone: str = "model"
    embedding: str = "embed_tokens"
    positions: str = ""
    first_row: int = 0
    transposed: bool = False
    projection: str = "lm_head"
    projection_bias: bool | str = False
    scales_queries: bool = False
    rows_by_head: bool = False
    layers: str = "layers"
    adapts: Callable[[Fields, Architecture], tuple[Fields, Architecture]] | None = None
    final_norm: str = "norm"
    width_key: str = "intermediate_size"
    positions_key: str = ""
    experts_key: str = ""
    adjusts_width: bool = False
    aliases: tuple[tuple[str, str], ...] = ()
    mlp_moved: str = ""
    keeps_normed: bool = False
    one_part: bool = False
    factors: bool = False
    has_positions: bool = True
    shares_kv: bool = False
    norms_values: bool = False
    widens_shared: bool = False
    has_layer_inputs: bool = False
    has_altup: bool = False
    mtp: MtpNames = MtpNames()

    @property
    def num_norms(self) -> int:
        """Norms of hidden states in one layer."""
        return (1 + bool(self.names.mlp_norm)) * self.pre_norms + 2 * self.sandwich_norms

    def of(self, fields: Fields) -> Architecture:
        """The options as a checkpoint has them: without keys of `config.json`, but for biases.

        Raises:
            ModelError: it asks for what is refused, by the key.
        """
        for key, what in self.refused:
            if fields.values.get(key) not in (None, False, 0):
                raise ModelError(f"{fields.place}: {key}: {what}")

        def said(option: bool | str) -> bool:
            return fields.boolean(option, self.biased) if isinstance(option, str) else option

        parallel = said(self.parallel)
        return replace(
            self,
            names=replace(self.names, mlp_norm="") if parallel and self.shares_norm else self.names,
            qk_norm=said(self.qk_norm),
            parallel=parallel,
            projection_bias=said(self.projection_bias),
        )


def all_layers(fields: Fields, num_layers: int) -> list[bool]:
    return [True] * num_layers


def turned_layers(fields: Fields, num_layers: int, every: int = 4) -> list[bool]:
    """Layers with positions: those that are listed, or all but every n-th (0: all). SmolLM3, Llama 4."""
    keeps = fields.values.get("no_rope_layers")
    if not keeps:
        every = fields.integer("no_rope_layer_interval", every) if every else 0
        return [not every or (index + 1) % every != 0 for index in range(num_layers)]
    if not isinstance(keeps, list) or len(keeps) != num_layers or any(keep not in (0, 1) for keep in keeps):
        raise fields.odd("no_rope_layers", f"{num_layers} entries, each 1 (positions) or 0 (none)")
    return [bool(keep) for keep in keeps]


def from_max_window_layers(fields: Fields, num_layers: int) -> list[bool]:
    """dots.llm1."""
    first = fields.integer("max_window_layers", num_layers, at_least=0)
    return [index >= first for index in range(num_layers)]


def if_enabled(fields: Fields, num_layers: int) -> list[bool]:
    """Qwen: switched on by `use_sliding_window`, and only from layer `max_window_layers` on."""
    enabled = fields.boolean("use_sliding_window", False)
    return [enabled and has_window for has_window in from_max_window_layers(fields, num_layers)]


def every_other_if_enabled(fields: Fields, num_layers: int) -> list[bool]:
    """Qwen2-MoE: switched on by `use_sliding_window`, and only below layer `max_window_layers`."""
    enabled = fields.boolean("use_sliding_window", False)
    end = fields.integer("max_window_layers", 28, at_least=0)
    return [enabled and index % 2 == 0 and index < end for index in range(num_layers)]


def all_but_first_of_four(fields: Fields, num_layers: int) -> list[bool]:
    """CWM."""
    return [index % 4 != 0 for index in range(num_layers)]


def all_but_every(number: int, *keys: str) -> WindowRule:
    """Windows in all layers but every n-th; keys: which may name another n, the first of them that is there."""

    def rule(fields: Fields, num_layers: int) -> list[bool]:
        every = number
        for key in reversed(keys):
            every = fields.integer(key, every)
        return [(index + 1) % every != 0 for index in range(num_layers)]

    return rule
