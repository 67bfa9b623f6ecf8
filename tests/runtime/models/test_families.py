"""Which of transformers' causal language models load, and that all others are refused with a reason and a neighbour.

`pytest -s` prints the table.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

from phloem.errors import ModelError
from phloem.runtime.models.architectures import ARCHITECTURES
from phloem.runtime.models.json_file import Fields
from phloem.runtime.models.model_types import BY_MODEL_TYPE
from phloem.runtime.models.named_architecture import WITH_IMAGES, named_architecture

from .decoder_cases import CASES
from .test_language_parts import CASES as LANGUAGE_PARTS


def _mapping() -> dict[str, str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    return {kind: name for kind, name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items() if isinstance(name, str)}


def _refusal(architecture: str, model_type: str = "") -> str:
    """Why it is not run; "": it is."""
    values = {"architectures": [architecture], "model_type": model_type, "text_config": {"model_type": model_type}}
    try:
        named_architecture(Fields(values, "config.json"))
    except ModelError as error:
        return str(error)
    return ""


def test_every_causal_language_model_loads_or_is_refused_with_its_neighbour() -> None:
    loaded, refused = [], {}
    for kind, name in _mapping().items():
        message = _refusal(name, kind)
        if not message:
            loaded.append(name)
            continue
        near = r"(?:; the nearest that loads is (\w+))?"
        match = re.match(rf"config\.json: architecture (\w+) is not supported( \(.+\))?{near}; docs", message)
        assert match is not None, message
        assert match[1] == name
        assert match[3] in ARCHITECTURES or (match[3] is None and match[2]), message
        refused[name] = match[2] or " (no entry, nor a block for it)"
    print(f"\n{len(loaded)} load: {', '.join(sorted(loaded))}")
    for reason in sorted(set(refused.values())):
        print(f"refused{reason}: {', '.join(sorted(name for name in refused if refused[name] == reason))}")
    assert len(loaded) >= 50


def test_every_architecture_is_compared_with_transformers() -> None:
    compared = {name for name, _ in CASES.values()} | {name for name, *_ in LANGUAGE_PARTS.values()}
    assert compared >= set(ARCHITECTURES) | set(WITH_IMAGES)
    assert set(BY_MODEL_TYPE.values()) <= set(ARCHITECTURES)


@pytest.mark.parametrize(
    ("architecture", "model_type", "nearest"),
    [
        ("LlamaForSequenceClassification", "llama", "LlamaForCausalLM"),
        ("Qwen3ForTokenClassification", "qwen3", "Qwen3ForCausalLM"),
        ("Qwen2ForRewardModel", "qwen2", "Qwen2ForCausalLM"),
        ("LlamaForCausalLMEagle3", "llama", "LlamaForCausalLM"),
        ("EagleLlamaForCausalLM", "llama", "LlamaForCausalLM"),
        ("BertForMaskedLM", "bert", None),
        ("MllamaForConditionalGeneration", "mllama", "Llama4ForCausalLM"),
        ("T5ForConditionalGeneration", "t5", None),
    ],
)
def test_other_tasks_are_refused(architecture: str, model_type: str, nearest: str | None) -> None:
    message = _refusal(architecture, model_type)
    assert f"architecture {architecture} is not supported (" in message
    assert ("the nearest that loads is" in message) == (nearest is not None)
    assert nearest is None or f"the nearest that loads is {nearest};" in message


@pytest.mark.parametrize("architecture", ["LlamaModel", "MyLlamaForCausalLM"])
def test_a_bare_model_and_one_of_another_name_are_run_by_their_type(architecture: str) -> None:
    assert _refusal(architecture, "llama") == ""


@pytest.mark.parametrize(
    ("architecture", "nearest"),
    [
        ("Gemma5ForCausalLM", "Gemma4ForCausalLM"),
        ("DeepseekV32ForCausalLM", "DeepseekV3ForCausalLM"),
        ("Qwen2ForTokenClassification", "Qwen2ForCausalLM"),
    ],
)
def test_the_nearest_is_the_newest_of_its_family(architecture: str, nearest: str) -> None:
    assert f"the nearest that loads is {nearest};" in _refusal(architecture, "")


def test_the_readme_counts_the_architectures() -> None:
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    assert f"{len(ARCHITECTURES)} architectures in all" in readme
    assert f"the {len(ARCHITECTURES)} that phloem runs" in _refusal("Gemma5ForCausalLM", "")
