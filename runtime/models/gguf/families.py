"""GGUF's architectures: which of ours each is, and where its tensors are. One entry of the table each.

Tensors have the same names in all of them; which ones there are, our own entry of options says. Names there are made of
parts of ours, so that the reader asks for what it knows and finds it here (`tensor_names`).
"""

from __future__ import annotations

from dataclasses import dataclass

from ..architecture import Architecture
from ..architectures import ARCHITECTURES
from ..experts_config import ExpertNames
from .file import GgufFile
from .tensor_types import Forms


@dataclass(frozen=True, slots=True)
class Family:
    """One `general.architecture`.

    Attributes:
        architecture: of ours, a key of `ARCHITECTURES`; mixture: of those that have experts, "": none may.
        is_permuted: rows of queries and keys are stored in pairs that turn together, next to each other.
        window_pattern: every n-th layer has no window (0: all have one); None: a window is refused.
        normalises: the shares of a token's experts are divided by their sum.
        unturned_every: every n-th layer has no rope; 0: all have one.
        wide_layers: in models of this number of layers queries are scaled by the hidden size over the heads, not by
            their own.
    """

    architecture: str
    mixture: str = ""
    is_permuted: bool = False
    window_pattern: int | None = None
    normalises: bool = True
    wide_layers: int = 0
    unturned_every: int = 0


FAMILIES: dict[str, Family] = {
    # Llama 1 to 3, Mistral, Mixtral, SmolLM and SmolLM2, TinyLlama, Yi …
    "llama": Family("LlamaForCausalLM", "MixtralForCausalLM", is_permuted=True),
    "qwen2": Family("Qwen2ForCausalLM"),
    "qwen2moe": Family("", "Qwen2MoeForCausalLM", normalises=False),
    "qwen3": Family("Qwen3ForCausalLM"),
    "qwen3moe": Family("", "Qwen3MoeForCausalLM"),
    "smollm3": Family("SmolLM3ForCausalLM", is_permuted=True, unturned_every=4),
    "phi3": Family("Phi3ForCausalLM", window_pattern=0),
    "gemma": Family("GemmaForCausalLM"),
    "gemma2": Family("Gemma2ForCausalLM", window_pattern=2, wide_layers=46),  # the one of 27 billion
    "gemma3": Family("Gemma3ForCausalLM", window_pattern=6, wide_layers=62),
}


def tensor_names(architecture: str, num_layers: int, num_experts: int) -> dict[str, tuple[str, int | None]]:
    """Our name of every module -> its name in the file, and which matrix of that tensor it is (None: all of it)."""
    options = ARCHITECTURES[architecture]
    names: dict[str, tuple[str, int | None]] = {
        "model.embed_tokens": ("token_embd", None),
        "model.norm": ("output_norm", None),
        "lm_head": ("output", None),
    }
    below = _layer_names(options)
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
    return names


def module_forms(file: GgufFile, architecture: str, num_layers: int, num_experts: int) -> Forms:
    """What the file's matrices of few bits are kept as."""
    found, wide = {}, set()
    for module, (there, _) in tensor_names(architecture, num_layers, num_experts).items():
        info = file.tensors.get(f"{there}.weight")
        if info is not None and info.type.form is not None:
            found[module] = info.type.form
        elif info is not None and info.type.name != "BF16":
            wide.add(module)
    return Forms(found, frozenset(wide))


def _layer_names(options: Architecture) -> dict[str, str]:
    names = options.names
    found = {names.input_norm: "attn_norm", names.o: "attn_output", names.down: "ffn_down"}
    found |= {names.q_norm: "attn_q_norm", names.k_norm: "attn_k_norm"}
    separate = ("attn_q", "attn_k", "attn_v")
    found |= dict(zip(names.qkv, separate if len(names.qkv) == 3 else ("attn_qkv",), strict=True))
    found |= dict(zip(names.gate_up, ("ffn_gate", "ffn_up") if len(names.gate_up) == 2 else ("ffn_up",), strict=True))
    if options.sandwich_norms:
        found |= {names.post_attention_norm: "post_attention_norm", names.post_mlp_norm: "post_ffw_norm"}
    return found | {names.mlp_norm: "ffn_norm"}


def _mixture(names: ExpertNames) -> dict[str, str]:
    found = {names.router: "ffn_gate_inp"}
    if names.shared_gate:
        found[names.shared_gate] = "ffn_gate_inp_shexp"
        found |= {f"{names.shared}.{ours}": f"{theirs}_shexp" for ours, theirs in _parts(names).items()}
    return found


def _parts(names: ExpertNames) -> dict[str, str]:
    return {names.gate: "ffn_gate", names.up: "ffn_up", names.down: "ffn_down"}
