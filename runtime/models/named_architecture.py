"""Which architecture a `config.json` names, and the part of it that describes the language model.

Models that read images too (`…ForConditionalGeneration`) are run as their language model alone: its description is in
`text_config`, and tensors of the other parts are left aside. Whatever is not run is refused by name, with what is
missing and the nearest architecture that loads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches

from ...errors import ModelError
from .architectures import ARCHITECTURES
from .json_file import Fields
from .model_types import BY_MODEL_TYPE

# the language model's architecture; "": the one that its `model_type` names
WITH_IMAGES: dict[str, str] = {
    "Gemma3ForConditionalGeneration": "Gemma3ForCausalLM",
    "Gemma3nForConditionalGeneration": "Gemma3nForCausalLM",
    "Gemma4ForConditionalGeneration": "Gemma4ForCausalLM",
    "Mistral3ForConditionalGeneration": "",
    "LlavaForConditionalGeneration": "",
    "Qwen2VLForConditionalGeneration": "Qwen2ForCausalLM",
    "Qwen2_5_VLForConditionalGeneration": "Qwen2ForCausalLM",
    "Qwen3VLForConditionalGeneration": "Qwen3ForCausalLM",
    "Qwen3VLMoeForConditionalGeneration": "Qwen3VLMoeForConditionalGeneration",
    "Qwen3_5ForConditionalGeneration": "Qwen3_5ForCausalLM",
    "Qwen3_5MoeForConditionalGeneration": "Qwen3_5MoeForCausalLM",
    "Glm4vMoeForConditionalGeneration": "Glm4MoeForCausalLM",
    "Llama4ForConditionalGeneration": "Llama4ForCausalLM",
}
# what `text_config` leaves out in published checkpoints: transformers' own defaults
DEFAULTS: dict[str, dict[str, int | float]] = {
    "Gemma3ForConditionalGeneration": {
        "vocab_size": 262_208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131_072,
        "rope_theta": 1_000_000.0,
        "query_pre_attn_scalar": 256,
    },
}
OTHER_PARTS = (
    "visual.",
    "vision_tower.",
    "vision_model.",
    "multi_modal_projector.",
    "audio_tower.",
    "embed_vision.",
    "embed_audio.",
)
_SHARED = ("quantization_config", "dtype", "torch_dtype", "eos_token_id", "bos_token_id")

# parts of names -> what is missing here
MISSING: dict[str, str] = {
    "Eagle": "a draft head is no model; it is no way of speculation here",
    "Zamba": "its recurrent layers (Mamba) are missing here",
    "RecurrentGemma": "its recurrent layers (RG-LRU) are missing here",
    "Rwkv": "its recurrent layers (RWKV) are missing here",
    "xLSTM": "its recurrent layers (xLSTM) are missing here",
    "OlmoHybrid": "its recurrent layers are missing here",
    "Bailing": "its recurrent layers (lightning attention) are missing here",
    "DeepseekV32": "sparse attention by an indexer is missing here",
    "DeepseekV4": "compressed sparse attention is missing here",
    "GPTBigCode": "its layout of queries, keys and values is missing here",
    "Bloom": "biases by distance (ALiBi) are missing here",
    "Mpt": "biases by distance (ALiBi) are missing here",
}


def named_architecture(fields: Fields) -> tuple[str, Fields]:
    """A key of `ARCHITECTURES`, and the fields of the language model.

    Raises:
        ModelError: nothing that is run is named.
    """
    named = fields.values.get("architectures") or []
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        raise fields.odd("architectures", "a list of names")
    model_type = fields.text("model_type", "")
    for name in named:
        if name in WITH_IMAGES:
            part = language_part(fields, DEFAULTS.get(name, {}))
            found = WITH_IMAGES[name] or BY_MODEL_TYPE.get(part.text("model_type", ""), "")
            if not found:
                raise _refusal(part, part.text("model_type", "nothing"), "")
            return found, part
        if name in ARCHITECTURES:
            return name, fields
    by_type = BY_MODEL_TYPE.get(model_type, "")
    if by_type and not any(_is_other_task(name) for name in named):
        return by_type, fields
    if not named and not model_type:
        raise ModelError(f"{fields.place}: neither architectures nor model_type says what it is; is it a model's?")
    raise _refusal(fields, ", ".join(named) or model_type, model_type)


def language_part(fields: Fields, defaults: Mapping[str, int | float]) -> Fields:
    """`text_config`, with what the configuration says of all parts; the configuration itself if there is none."""
    if "text_config" not in fields:
        return Fields(fields.values, fields.place)
    section = fields.section("text_config")
    values = {**defaults} | {key: fields.values[key] for key in _SHARED if key in fields} | dict(section.values)
    values |= {key: fields.values[key] for key in ("quantization_config", "tie_word_embeddings") if key in fields}
    return Fields(values, section.place)


def _is_other_task(name: str) -> bool:
    return bool(re.search(r"For(?!CausalLM$)[A-Z]|Eagle|Medusa|DualEncoder", name))


def _nearest(family: str, likeness: float) -> list[str]:
    """The architecture whose name is nearest but for its version, if there is one: the family's own, or the newest."""
    versions: dict[str, list[str]] = {}
    for name in ARCHITECTURES:
        versions.setdefault(_without_version(name.partition("For")[0]), []).append(name)
    return [
        max(versions[stem], key=lambda name: (name.partition("For")[0] == family, _version(name)))
        for stem in get_close_matches(_without_version(family), versions, 1, likeness)
    ]


def _without_version(name: str) -> str:
    return re.sub(r"[\d_]", "", name).lower()


def _version(name: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", name)]


def _refusal(fields: Fields, found: str, model_type: str) -> ModelError:
    why = next((f" ({what})" for part, what in MISSING.items() if part.lower() in found.lower()), "")
    if not why and _is_other_task(found):
        why = " (it is for another task; phloem continues texts)"
    family = re.sub(r"(For|Model|Eagle).*", "", found)
    likeness = 0.6 if _is_other_task(found) else 0.0  # no model that continues texts is near BERT
    near = _nearest(family, likeness)
    near = [BY_MODEL_TYPE[model_type]] if model_type in BY_MODEL_TYPE else near
    nearest = f"; the nearest that loads is {near[0]}" if near else ""
    return ModelError(
        f"{fields.place}: architecture {found} is not supported{why}{nearest}; docs/models.md lists the "
        f"{len(ARCHITECTURES)} that phloem runs"
    )
