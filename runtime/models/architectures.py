"""The architectures phloem runs: one entry of options each. All of them are the same decoder.

An entry says what differs from Llama, and under which names a checkpoint keeps its tensors. Everything numeric comes
from the checkpoint's own `config.json` (see `config.py`); this module reads no files and knows no tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from .experts_config import ExpertNames, ExpertOptions
from .json_file import Fields
from .recurrent_config import RecurrentOptions

WindowRule = Callable[[Fields, int], list[bool]]


@dataclass(frozen=True, slots=True)
class LayerNames:
    """Tensor names below `model.layers.<i>.`; several names are stacked, row upon row, in this order."""

    input_norm: str = "input_layernorm"
    qkv: tuple[str, ...] = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    q_norm: str = "self_attn.q_norm"
    k_norm: str = "self_attn.k_norm"
    sinks: str = "self_attn.sinks"
    o: str = "self_attn.o_proj"
    post_attention_norm: str = ""
    mlp_norm: str = "post_attention_layernorm"
    gate_up: tuple[str, ...] = ("mlp.gate_proj", "mlp.up_proj")
    down: str = "mlp.down_proj"
    post_mlp_norm: str = ""


@dataclass(frozen=True, slots=True)
class Architecture:
    """Options of one architecture.

    Attributes:
        names: where the tensors of a layer are.
        qkv_bias, o_bias: True, False, or the key of `config.json` that says.
        biased: what an absence of that key means.
        qk_norm: an RMSNorm on every query and key head before RoPE.
        whole_norms: that norm is one over all query heads together, and one over all key heads.
        has_sinks: every head has one more logit, learned, that takes part in the softmax and carries no value.
        clip_key: key of `config.json` that asks for clipped queries, keys and values, which are refused; "": none.
        pre_norms: a norm before attention and before the MLP (OLMo 2 has none).
        sandwich_norms: a norm after attention and after the MLP, before the residual sum.
        norm_offset: added to every norm weight (Gemma stores w - 1).
        scale_embedding: token embeddings are multiplied by sqrt(hidden_size), or by this key of `config.json`.
        depth_scale: what a layer adds is multiplied by `scale_depth / sqrt(num_hidden_layers)`.
        width_scale: the last hidden state is divided by `hidden_size / dim_model_base`.
        multipliers: `attention_multiplier`, `residual_multiplier` and `logits_scaling` are read (Granite).
        gelu: the gate is GELU (tanh form) whatever `hidden_act` says; otherwise it must say silu.
        tied: what an absent `tie_word_embeddings` means.
        sliding: which layers have a window when the configuration names one but lists no `layer_types`.
        is_latent: multi-head latent attention.
        interleaved: the two elements of a rotary pair stand side by side; with latents, if `rope_interleave` is absent.
        partial_rotary: what an absent `partial_rotary_factor` means.
        local_theta: layers with a window have a rope of their own, with this default base (0: they do not).
        unscaled_windows: they have one of the same base, without its scaling.
        experts: MLPs are mixtures of experts; None: they are not.
        recurrent: some layers keep a state instead of keys and values; None: none does.
        gated_attention: queries come with a gate, by whose sigmoid what attention makes is multiplied (Qwen3-Next).
        eps_key: key of `config.json` for the norms' epsilon.
        final_norm: name of the last norm, next to the layers.
        width_key: key of `config.json` for the MLP's width.
        positions_key: key that says "rope" where there is one; "": there is.
        no_experts_key: key of a number of experts that must be 0; "": none.
        adjusts_width: the MLP's width is what an MLP without a gate would have (LFM2).
    """

    names: LayerNames = LayerNames()
    qkv_bias: bool | str = "attention_bias"
    o_bias: bool | str = "attention_bias"
    biased: bool = False
    qk_norm: bool = False
    whole_norms: bool = False
    has_sinks: bool = False
    clip_key: str = ""
    pre_norms: bool = True
    sandwich_norms: bool = False
    norm_offset: float = 0.0
    scale_embedding: bool | str = False
    depth_scale: bool = False
    width_scale: bool = False
    multipliers: bool = False
    gelu: bool = False
    tied: bool = False
    sliding: WindowRule | None = None
    is_latent: bool = False
    interleaved: bool = False
    partial_rotary: float = 1.0
    local_theta: float = 0.0
    unscaled_windows: bool = False
    experts: ExpertOptions | None = None
    recurrent: RecurrentOptions | None = None
    gated_attention: bool = False
    eps_key: str = "rms_norm_eps"
    final_norm: str = "norm"
    width_key: str = "intermediate_size"
    positions_key: str = ""
    no_experts_key: str = ""
    adjusts_width: bool = False


def _all_layers(fields: Fields, num_layers: int) -> list[bool]:
    return [True] * num_layers


def _if_enabled(fields: Fields, num_layers: int) -> list[bool]:
    """Qwen: switched on by `use_sliding_window`, and only from layer `max_window_layers` on."""
    enabled = fields.boolean("use_sliding_window", False)
    first = fields.integer("max_window_layers", num_layers, at_least=0)
    return [enabled and index >= first for index in range(num_layers)]


def _every_other_if_enabled(fields: Fields, num_layers: int) -> list[bool]:
    """Qwen2-MoE: switched on by `use_sliding_window`, and only below layer `max_window_layers`."""
    enabled = fields.boolean("use_sliding_window", False)
    end = fields.integer("max_window_layers", 28, at_least=0)
    return [enabled and index % 2 == 0 and index < end for index in range(num_layers)]


def _every_other(fields: Fields, num_layers: int) -> list[bool]:
    return [index % 2 == 0 for index in range(num_layers)]


def _all_but_every_fourth(fields: Fields, num_layers: int) -> list[bool]:
    """OLMo 3."""
    return [(index + 1) % 4 != 0 for index in range(num_layers)]


def _all_but_every_nth(fields: Fields, num_layers: int) -> list[bool]:
    """Gemma 3: five layers with a window, then one without."""
    pattern = fields.integer("sliding_window_pattern", fields.integer("_sliding_window_pattern", 6))
    return [(index + 1) % pattern != 0 for index in range(num_layers)]


_LLAMA = Architecture()
_PHI3 = Architecture(
    names=LayerNames(qkv=("self_attn.qkv_proj",), gate_up=("mlp.gate_up_proj",)),
    qkv_bias=False,
    o_bias=False,
    sliding=_all_layers,
)
_GEMMA = Architecture(norm_offset=1.0, scale_embedding=True, gelu=True, tied=True)
_GEMMA2 = replace(
    _GEMMA,
    names=LayerNames(
        post_attention_norm="post_attention_layernorm",
        mlp_norm="pre_feedforward_layernorm",
        post_mlp_norm="post_feedforward_layernorm",
    ),
    sandwich_norms=True,
    sliding=_every_other,
)

_OLMO2 = replace(
    _LLAMA,
    names=LayerNames(
        post_attention_norm="post_attention_layernorm", mlp_norm="", post_mlp_norm="post_feedforward_layernorm"
    ),
    qk_norm=True,
    whole_norms=True,
    pre_norms=False,
    sandwich_norms=True,
)
_GLM = replace(
    _LLAMA,
    names=LayerNames(gate_up=("mlp.gate_up_proj",)),
    biased=True,
    o_bias=False,
    interleaved=True,
    partial_rotary=0.5,
)
_GLM4 = replace(
    _GLM,
    names=replace(_GLM.names, post_attention_norm="post_self_attn_layernorm", post_mlp_norm="post_mlp_layernorm"),
    sandwich_norms=True,
)

_MIXTRAL = ExpertNames(
    router="block_sparse_moe.gate", expert="block_sparse_moe.experts.{}", gate="w1", up="w3", down="w2"
)

_LFM2 = replace(
    _LLAMA,
    names=LayerNames(
        input_norm="operator_norm",
        q_norm="self_attn.q_layernorm",
        k_norm="self_attn.k_layernorm",
        o="self_attn.out_proj",
        mlp_norm="ffn_norm",
        gate_up=("feed_forward.w1", "feed_forward.w3"),
        down="feed_forward.w2",
    ),
    qkv_bias=False,
    o_bias=False,
    qk_norm=True,
    tied=True,
    recurrent=RecurrentOptions("short_conv", "conv.", ("conv",)),
    eps_key="norm_eps",
    final_norm="embedding_norm",
    adjusts_width=True,
)
_QWEN35_RECURRENT = RecurrentOptions("delta", "linear_attn.", ("linear_attention",))
_QWEN35 = replace(
    _LLAMA,
    qk_norm=True,
    norm_offset=1.0,
    partial_rotary=0.25,
    recurrent=_QWEN35_RECURRENT,
    gated_attention=True,
)

_GRANITE = replace(_LLAMA, scale_embedding="embedding_multiplier", multipliers=True)
_GRANITE_HYBRID = replace(
    _GRANITE,
    names=LayerNames(gate_up=("shared_mlp.input_linear",), down="shared_mlp.output_linear"),
    recurrent=RecurrentOptions("state_space", "mamba.", ("mamba", "linear_attention")),
    width_key="shared_intermediate_size",
    positions_key="position_embedding_type",
    no_experts_key="num_local_experts",
)

_QWEN2_MOE = ExpertNames(shared="mlp.shared_expert", shared_gate="mlp.shared_expert_gate")
_GPT_OSS = ExpertOptions(
    ExpertNames(router="mlp.router", stacked="mlp.experts"), normalises=True, linear_biases=True, clamps=(1.702, 7.0)
)

ARCHITECTURES: dict[str, Architecture] = {
    "LlamaForCausalLM": _LLAMA,  # Llama 2 and 3, SmolLM and SmolLM2, TinyLlama, Yi …
    "MistralForCausalLM": replace(_LLAMA, qkv_bias=False, o_bias=False, sliding=_all_layers),
    "Qwen2ForCausalLM": replace(_LLAMA, qkv_bias=True, o_bias=False, sliding=_if_enabled),
    "Qwen3ForCausalLM": replace(_LLAMA, qk_norm=True, sliding=_if_enabled),
    "SmolLM3ForCausalLM": replace(_LLAMA, tied=True, sliding=_if_enabled),
    "Phi3ForCausalLM": _PHI3,  # Phi-3, Phi-4, Phi-4-mini
    "GemmaForCausalLM": _GEMMA,
    "Gemma2ForCausalLM": _GEMMA2,
    "GraniteForCausalLM": _GRANITE,
    "GraniteMoeHybridForCausalLM": _GRANITE_HYBRID,  # Granite 4.0, those without experts
    "Olmo2ForCausalLM": _OLMO2,
    "Olmo3ForCausalLM": replace(_OLMO2, sliding=_all_but_every_fourth, unscaled_windows=True),
    "GlmForCausalLM": _GLM,
    "Glm4ForCausalLM": _GLM4,
    "YoutuForCausalLM": replace(_LLAMA, tied=True, is_latent=True, interleaved=True),
    "MiniCPM3ForCausalLM": replace(
        _LLAMA, tied=True, is_latent=True, scale_embedding="scale_emb", depth_scale=True, width_scale=True
    ),
    "MixtralForCausalLM": replace(
        _LLAMA, qkv_bias=False, o_bias=False, sliding=_all_layers, experts=ExpertOptions(_MIXTRAL, normalises=True)
    ),
    "Qwen3MoeForCausalLM": replace(_LLAMA, qk_norm=True, sliding=_if_enabled, experts=ExpertOptions()),
    "DeepseekV2ForCausalLM": replace(_LLAMA, is_latent=True, interleaved=True, experts=ExpertOptions()),
    "DeepseekV3ForCausalLM": replace(
        _LLAMA,
        is_latent=True,
        interleaved=True,
        experts=ExpertOptions(scoring="sigmoid", normalises=True, has_bias=True, counts_top=2),
    ),
    "Qwen2MoeForCausalLM": replace(
        _LLAMA,
        qkv_bias="qkv_bias",
        o_bias=False,
        biased=True,
        sliding=_every_other_if_enabled,
        experts=ExpertOptions(_QWEN2_MOE),
    ),
    "Lfm2ForCausalLM": _LFM2,
    "Qwen3NextForCausalLM": replace(
        _QWEN35,
        recurrent=replace(_QWEN35_RECURRENT, is_fused=True),
        experts=ExpertOptions(_QWEN2_MOE, normalises=True),
    ),
    "Qwen3_5ForCausalLM": _QWEN35,
    "OlmoeForCausalLM": replace(_LLAMA, qk_norm=True, whole_norms=True, clip_key="clip_qkv", experts=ExpertOptions()),
    "GptOssForCausalLM": replace(_LLAMA, biased=True, has_sinks=True, sliding=_every_other, experts=_GPT_OSS),
    "Gemma3ForCausalLM": replace(_GEMMA2, qk_norm=True, sliding=_all_but_every_nth, local_theta=10_000.0),
}

# configurations of bare models, and old ones, name only the type
BY_MODEL_TYPE: dict[str, str] = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "granite": "GraniteForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
    "olmo3": "Olmo3ForCausalLM",
    "glm": "GlmForCausalLM",
    "granitemoehybrid": "GraniteMoeHybridForCausalLM",
    "lfm2": "Lfm2ForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM",
    "qwen3_5_text": "Qwen3_5ForCausalLM",
    "glm4": "Glm4ForCausalLM",
    "youtu": "YoutuForCausalLM",
    "minicpm3": "MiniCPM3ForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM",
    "olmoe": "OlmoeForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
}
