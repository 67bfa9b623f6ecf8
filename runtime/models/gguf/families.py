"""GGUF's architectures: which of ours each is, and where its tensors are. One entry of the table each.

Tensors have the same names in all of them; which ones there are, our own entry of options says. Names there are made of
parts of ours, so that the reader asks for what it knows and finds it here (`tensor_names`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..altup_config import MOST_STREAMS
from ..architecture import Architecture, LayerNames
from ..experts_config import ExpertNames
from ..layer_config import LAYER_TABLE
from .file import GgufFile
from .recurrent import DELTA, INTERVALS, KIMI, RECURRENT_NAMES, SCAN, SHORT_CONV, STATES
from .tensor_types import Forms


@dataclass(frozen=True, slots=True)
class Family:
    """One `general.architecture`.

    Attributes:
        architecture: of ours, a key of `ARCHITECTURES`; mixture: of those that have experts, "": none may;
            balanced: of those whose choice of experts has a bias, "": the same.
        windowed: of those that have windows, "": the same.
        normed: of those whose steps, B and C have norms, "": the same.
        unscaled: of those whose files say no factors on activations, "": the same.
        is_permuted: rows of queries and keys are stored in pairs that turn together, next to each other.
        window_pattern: every n-th layer has no window (0: all have one); None: a window is refused.
        normalises: the shares of a token's experts are divided by their sum.
        unturned_every: every n-th layer has no rope; 0: all have one.
        wide_layers: in models of this number of layers queries are scaled by the hidden size over the heads, not by
            their own.
        final_norm: name of the last norm.
        values_in_turn: value heads stand in another order (`value_order.py`).
        cuts_yarn: the pairs between which YaRN mixes are whole ones.
        activation: of an MLP without a gate, as `hidden_act` would name it.
        soft_cap: of logits, where the file names none; 0: there is none.
        keys: that are read for it, besides those of all.
        names: of modules, or in full of tensors that are none of a module's, below a layer; besides those of all.
        has_rms_eps: the epsilon of LayerNorms is under the key of RMSNorms' (PhiMoE).
        by_kind: layers without a window have shapes and a rope of their own (`layers_by_kind`).
    """

    architecture: str
    mixture: str = ""
    balanced: str = ""
    windowed: str = ""
    normed: str = ""
    unscaled: str = ""
    is_permuted: bool = False
    window_pattern: int | None = None
    normalises: bool = True
    wide_layers: int = 0
    unturned_every: int = 0
    values_in_turn: bool = False
    final_norm: str = "output_norm"
    cuts_yarn: bool = True
    activation: str = ""
    soft_cap: float = 0.0
    keys: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    has_rms_eps: bool = False
    by_kind: bool = False


MULTIPLIERS = ("attention.scale", "embedding_scale", "residual_scale", "logit_scale")
_LATENT = (
    "attention.q_lora_rank", "attention.kv_lora_rank", "attention.key_length_mla", "attention.value_length_mla",
    "rope.scaling.yarn_log_multiplier",
)  # fmt: skip
JOINED = "ffn_gate_up_exps"
_LATER_NORM = {"post_attention_layernorm": "post_attention_norm"}  # before the MLP
_STREAMS = (
    "altup.num_inputs", "altup.active_idx", "embedding_length_per_layer_input", "attention.shared_kv_layers",
    "activation_sparsity_scale",
)  # fmt: skip
_OF_INPUTS = {
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
}
_OF_ALL_INPUTS = {
    LAYER_TABLE: "per_layer_token_embd",
    "per_layer_model_projection": "per_layer_model_proj",
    "per_layer_projection_norm": "per_layer_proj_norm",
}
_OF_STREAMS = {
    "altup.modality_router": "altup_router",
    "altup.router_norm": "altup_router_norm",
    "altup.prediction_coefs": "altup_predict_coef",
    "altup.correction_coefs": "altup_correct_coef",
    "altup.correct_output_scale": "altup_correct_scale.weight",
    "laurel.linear_left": "laurel_l",
    "laurel.linear_right": "laurel_r",
    "laurel.post_laurel_norm": "laurel_post_norm",
}
_SHAPES = (
    "attention.key_length_swa", "attention.value_length_swa", "attention.shared_kv_layers", "rope.dimension_count_swa",
    "embedding_length_per_layer_input",
)  # fmt: skip
_SECTIONS = ("rope.dimension_sections", "n_deepstack_layers")
_BESIDE = {
    "layer_scalar": "layer_output_scale.weight",
    "router.scale": "ffn_gate_inp.scale",
    "router.per_expert_scale": "ffn_down_exps.scale",
    "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
    "post_feedforward_layernorm_1": "post_ffw_norm_1",
    "post_feedforward_layernorm_2": "post_ffw_norm_2",
}
_INNER_NORMS = {"self_attn.attn_sub_norm": "attn_sub_norm", "mlp.ffn_sub_norm": "ffn_sub_norm"}

FAMILIES: dict[str, Family] = {
    # Llama 1 to 3, Mistral, Mixtral, SmolLM and SmolLM2, TinyLlama, Yi …
    "llama": Family("LlamaForCausalLM", "MixtralForCausalLM", is_permuted=True),
    "qwen2": Family("Qwen2ForCausalLM"),
    "qwen2moe": Family("", "Qwen2MoeForCausalLM", normalises=False),
    "qwen3": Family("Qwen3ForCausalLM"),
    "qwen3moe": Family("", "Qwen3MoeForCausalLM"),
    # the language models of those that see: a token of text has one position in all of the rope's sections
    "qwen2vl": Family("Qwen2ForCausalLM", keys=_SECTIONS),
    "qwen3vl": Family("Qwen3ForCausalLM", keys=_SECTIONS),
    "qwen3vlmoe": Family("", "Qwen3MoeForCausalLM", keys=_SECTIONS),
    # Ministral 3, Mistral Small 3
    "mistral3": Family(
        "Ministral3ForCausalLM",
        is_permuted=True,
        keys=("attention.temperature_scale", "rope.scaling.yarn_log_multiplier"),
    ),
    "smollm3": Family("SmolLM3ForCausalLM", is_permuted=True, unturned_every=4),
    "phi2": Family("PhiForCausalLM", activation="gelu_new"),
    "phi3": Family("Phi3ForCausalLM", window_pattern=0),
    "phimoe": Family("", "PhimoeForCausalLM", window_pattern=0, normalises=False, has_rms_eps=True),
    "bitnet": Family("BitNetForCausalLM", keys=("hidden_activation",), names=_INNER_NORMS),
    "gemma": Family("GemmaForCausalLM"),
    "gemma2": Family("Gemma2ForCausalLM", window_pattern=2, wide_layers=46),  # the one of 27 billion
    "gemma3": Family("Gemma3ForCausalLM", window_pattern=6, wide_layers=62),
    "gemma3n": Family("Gemma3nForCausalLM", window_pattern=5, soft_cap=30.0, keys=_STREAMS),
    "gemma4": Family(
        "Gemma4ForCausalLM",
        "Gemma4ForCausalLM",
        window_pattern=6,
        keys=_SHAPES,
        names=_BESIDE,
        by_kind=True,
    ),
    "granite": Family("GraniteForCausalLM", is_permuted=True, keys=MULTIPLIERS),
    "granitemoe": Family("", "GraniteMoeSharedForCausalLM", is_permuted=True, keys=MULTIPLIERS),
    # Granite 4.0 H, and Bamba
    "granitehybrid": Family(
        "GraniteMoeHybridForCausalLM",
        "GraniteMoeHybridForCausalLM",
        unscaled="BambaForCausalLM",
        is_permuted=True,
        keys=(*MULTIPLIERS, *STATES),
    ),
    "olmo2": Family("Olmo2ForCausalLM", windowed="Olmo3ForCausalLM", window_pattern=4),
    "olmoe": Family("", "OlmoeForCausalLM", normalises=False),
    "gpt2": Family("GPT2LMHeadModel", activation="gelu_new"),
    "gptneox": Family("GPTNeoXForCausalLM", activation="gelu", keys=("use_parallel_residual",)),
    # of two norms side by side that of the MLP has the name of the only one of others
    "falcon": Family("FalconForCausalLM", activation="gelu", names={"ln_attn": "attn_norm_2", "ln_mlp": "attn_norm"}),
    "apertus": Family("ApertusForCausalLM", activation="xielu"),
    "chatglm": Family("GlmForCausalLM"),  # GLM-4 of 2024
    "glm4": Family("Glm4ForCausalLM"),
    "glm4moe": Family("", "Glm4MoeForCausalLM", normalises=False, names=_LATER_NORM),
    "command-r": Family("CohereForCausalLM", keys=("logit_scale",)),
    "cohere2": Family("Cohere2ForCausalLM", window_pattern=4, keys=("logit_scale",)),
    "starcoder2": Family("Starcoder2ForCausalLM", activation="gelu_new"),
    "exaone4": Family("Exaone4ForCausalLM", window_pattern=4),
    "seed_oss": Family("SeedOssForCausalLM", names=_LATER_NORM),
    "ernie4_5": Family("Ernie4_5ForCausalLM"),
    "ernie4_5-moe": Family("", "Ernie4_5_MoeForCausalLM"),
    "hunyuan-dense": Family("HunYuanDenseV1ForCausalLM"),
    "hunyuan-moe": Family("", "HunYuanMoEV1ForCausalLM"),
    "arcee": Family("ArceeForCausalLM", is_permuted=True, activation="relu2"),
    "jais2": Family("Jais2ForCausalLM", activation="relu2"),
    "nemotron": Family("NemotronForCausalLM", activation="relu2"),
    "stablelm": Family("StableLmForCausalLM"),
    # the first name was a mistake of llama.cpp's, and stayed
    "lfm2": Family("Lfm2ForCausalLM", final_norm="token_embd_norm", keys=SHORT_CONV),
    "lfm2moe": Family("", "Lfm2MoeForCausalLM", final_norm="token_embd_norm", keys=SHORT_CONV),
    "mamba": Family("MambaForCausalLM", normed="FalconMambaForCausalLM", keys=SCAN),
    "mamba2": Family("Mamba2ForCausalLM", keys=STATES),
    "jamba": Family("JambaForCausalLM", "JambaForCausalLM", normalises=False, keys=STATES),
    "falcon-h1": Family("FalconH1ForCausalLM", names={"pre_ff_layernorm.weight": "ffn_norm"}, keys=STATES),
    "nemotron_h": Family("NemotronHForCausalLM", activation="relu2", keys=STATES),
    "nemotron_h_moe": Family("", "NemotronHForCausalLM", activation="relu2", keys=(*STATES, "moe_latent_size")),
    "qwen3next": Family("", "Qwen3NextForCausalLM", names=_LATER_NORM, keys=DELTA),
    "qwen35": Family("Qwen3_5ForCausalLM", names=_LATER_NORM, values_in_turn=True, keys=DELTA),
    "qwen35moe": Family("", "Qwen3_5MoeForCausalLM", names=_LATER_NORM, values_in_turn=True, keys=DELTA),
    "kimi-linear": Family("", "KimiLinearForCausalLM", keys=(*_LATENT, *KIMI)),
    # DeepSeek-V2 and V3, Moonlight, GLM-4.7-Flash; Youtu-LLM
    "deepseek2": Family(
        "YoutuForCausalLM", "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", normalises=False, keys=_LATENT
    ),
    "minicpm3": Family("MiniCPM3ForCausalLM", keys=("attention.q_lora_rank", "attention.kv_lora_rank")),
    "dots1": Family("", "Dots1ForCausalLM", normalises=False),
    "minimax-01": Family("", "MiniMaxForCausalLM", keys=("residual_scale", *INTERVALS)),
    "minimax-m2": Family("", "MiniMaxM2ForCausalLM"),
    "llama4": Family("", "Llama4ForCausalLM", normalises=False),
    "gpt-oss": Family("", "GptOssForCausalLM", window_pattern=2, names=_LATER_NORM, cuts_yarn=False),
}


def file_options(options: Architecture, *, is_fused: bool, joins_qkv: bool) -> Architecture:
    """The options as a file has them: norms with their offset added, experts side by side in three tensors, matrices as
    outputs by inputs, all queries before all keys.

    is_fused: of recurrent layers, as `RecurrentOptions` has it. joins_qkv: queries, keys and values are one tensor.
    """
    experts = options.experts
    if experts is not None:
        plain = ExpertNames()
        names = replace(
            experts.names, expert=plain.expert, up=plain.up, down=plain.down, shared_parts=None, stacked="", fused=""
        )
        names = names if experts.gateless else replace(names, gate=plain.gate)
        experts = replace(experts, names=names, aliases=(), alternates=False)
    of_layer, recurrent = options.names, options.recurrent
    if options.width_key == "shared_intermediate_size":  # gate and up are one tensor elsewhere
        of_layer = replace(of_layer, gate_up=LayerNames().gate_up, down=LayerNames().down)
    if joins_qkv:
        of_layer = replace(of_layer, qkv=("self_attn.qkv_proj",))
    if recurrent is not None:
        recurrent = replace(recurrent, has_rates=True, is_fused=is_fused)
    if options.factors:  # matrices are stored with them
        options = replace(options, factors=False, scale_embedding=False, logit_scale="")
    options = replace(options, names=of_layer, recurrent=recurrent, experts=experts, rows_by_head=False)
    options = replace(options, layers="layers", embedding="embed_tokens", projection="lm_head")
    return replace(options, norm_offset=0.0, transposed=False)


def tensor_names(
    file: GgufFile, family: Family, options: Architecture, num_layers: int, num_experts: int
) -> dict[str, tuple[str, int | None]]:
    """Our name of every module -> its name in the file, and which matrix of that tensor it is (None: all of it).

    Where a layer's experts have their gates and up projections in one tensor each half of it is a matrix. Tensors that
    are no weight or bias of a module are in it too, both names in full.
    """
    names: dict[str, tuple[str, int | None]] = {
        f"model.{options.embedding}": ("token_embd", None),
        f"model.{options.final_norm}": (family.final_norm, None),
        options.projection: ("output", None),
    }
    if options.positions:
        names[f"model.{options.positions}"] = "position_embd", None
    if options.has_layer_inputs:
        names |= {f"model.{ours}": (theirs, None) for ours, theirs in _OF_ALL_INPUTS.items()}
    if options.has_altup:
        for kind, its in (("altup_projections", "altup_proj"), ("altup_unembed_projections", "altup_unembd_proj")):
            names |= {f"model.{kind}.{index}": (its, index) for index in range(MOST_STREAMS - 1)}
    below = _layer_names(family, options)
    for index in range(num_layers):
        base, there = f"model.layers.{index}.", f"blk.{index}."
        names |= {f"{base}{ours}": (f"{there}{theirs}", None) for ours, theirs in below.items()}
        if options.experts is not None:
            expert_names = options.experts.names
            names |= {f"{base}{ours}": (f"{there}{theirs}", None) for ours, theirs in _mixture(expert_names).items()}
            for expert in range(num_experts):
                place = f"{base}{expert_names.expert.format(expert)}."
                for ours, theirs in _parts(expert_names).items():
                    names[f"{place}{ours}"] = f"{there}{theirs}_exps", expert
                if f"{there}{JOINED}.weight" in file.tensors:
                    for half, ours in enumerate((expert_names.gate, expert_names.up)):
                        names[f"{place}{ours}"] = f"{there}{JOINED}", 2 * expert + half
    return names


def module_forms(file: GgufFile, names: dict[str, tuple[str, int | None]]) -> Forms:
    """What the file's matrices of few bits are kept as, by the names that `tensor_names` has."""
    found, wide = {}, set()
    for module, (there, _) in names.items():
        info = file.tensors.get(f"{there}.weight")
        if info is not None and info.type.form is not None:
            found[module] = info.type.form
        elif info is not None and info.type.name != "BF16":
            wide.add(module)
    return Forms(found, frozenset(wide))


def _layer_names(family: Family, options: Architecture) -> dict[str, str]:
    names = options.names
    found = {names.o: "attn_output", names.down: "ffn_down", names.sinks: "attn_sinks.weight"}
    found |= {names.q_norm: "attn_q_norm", names.k_norm: "attn_k_norm"}
    separate = ("attn_q", "attn_k", "attn_v")
    found |= dict(zip(names.qkv, separate if len(names.qkv) == 3 else ("attn_qkv",), strict=True))
    found |= dict(zip(names.gate_up, ("ffn_gate", "ffn_up") if len(names.gate_up) == 2 else ("ffn_up",), strict=True))
    if options.is_latent:
        parts = {"q_proj": "q", "q_a_proj": "q_a", "q_a_layernorm": "q_a_norm", "q_b_proj": "q_b"}
        parts |= {"kv_a_proj_with_mqa": "kv_a_mqa", "kv_a_layernorm": "kv_a_norm", "kv_b_proj": "kv_b"}
        parts |= {"k_b_proj": "k_b", "v_b_proj": "v_b"}
        found |= {f"self_attn.{ours}": f"attn_{theirs}" for ours, theirs in parts.items()}
    if options.pre_norms:
        found |= {names.input_norm: "attn_norm", names.mlp_norm: "ffn_norm"}
    if options.recurrent is not None:
        base, parts = options.recurrent.base, dict(RECURRENT_NAMES[options.recurrent.kind])
        parts[options.recurrent.out] = parts.pop("out_proj")
        found |= {f"{base}{ours}": theirs for ours, theirs in parts.items()}
    if options.sandwich_norms:
        found |= {names.post_attention_norm: "post_attention_norm", names.post_mlp_norm: "post_ffw_norm"}
    found |= _OF_INPUTS if options.has_layer_inputs else {}
    found |= _OF_STREAMS if options.has_altup else {}
    found |= family.names
    return {ours: theirs for ours, theirs in found.items() if ours}


def _mixture(names: ExpertNames) -> dict[str, str]:
    found = {names.router: "ffn_gate_inp", names.bias: "exp_probs_b.bias"}
    found |= {f"{names.shared}.{ours}": f"{theirs}_shexp" for ours, theirs in _parts(names).items()}
    found |= {
        ours: theirs for ours, theirs in zip(names.latents, ("ffn_latent_down", "ffn_latent_up"), strict=True) if ours
    }
    return found | ({names.shared_gate: "ffn_gate_inp_shexp"} if names.shared_gate else {})


def _parts(names: ExpertNames) -> dict[str, str]:
    found = {names.gate: "ffn_gate", names.up: "ffn_up", names.down: "ffn_down"}
    return {ours: theirs for ours, theirs in found.items() if ours}
