"""Adapters of every kind that is read, against transformers with the same numbers merged in; and what is refused."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from phloem.errors import ModelError
from phloem.kernels import LoraLayers, LoraSegment, narrow_segments, plan_lora
from phloem.runtime.models import AdaptedRows, Adapter, Decoder, ModelConfig, count_parameters, read_adapter, scoped

from .decoder_cases import CASES
from .edits import edit_tensors
from .oracle import Oracle, PagedRun, random_ids, save_random_model
from .published import FORMATS, publish
from .saved_adapters import ALL, FILE, merged, save_adapter

CPU = torch.device("cpu")
QV = r".*\.(q_proj|v_proj)"
STATEFUL = r".*(linear_attn|self_attn)\..*(_proj|_qkvz|_ba)"
OPT, OUTPUTS = r".*\.(q_proj|v_proj|fc1|fc2)", r".*(o_proj|0\.mlp\.down_proj)"
EVERY = r".*\.(" + "|".join(ALL) + ")"


@dataclass(frozen=True)
class Kind:
    """An adapter of a model: which modules have tensors, what its configuration says (all that the tests' own does, but
    for this), and ranks and scales by the end of a module's name, where they are not those of all."""

    model: str
    modules: str = EVERY
    config: dict[str, Any] = field(default_factory=lambda: {"target_modules": ALL})
    ranks: dict[str, int] = field(default_factory=dict)
    scales: dict[str, float] = field(default_factory=dict)


def named(model: str, *names: str, **config: Any) -> Kind:
    """With tensors of the modules of these names."""
    return Kind(model, rf".*\.({'|'.join(names)})", {"target_modules": [*names], **config})


LINEAR = {"target_modules": "all-linear"}
HEADS = ("q_proj", "k_proj", "v_proj", "o_proj")
KINDS = {
    "layers without keys": Kind("gemma3n"),
    "glm4": Kind("glm4"),
    "attention and MLP side by side": Kind("cohere"),
    "attention beside a recurrent mixer": named("falcon-h1", *HEADS),
    "short convolutions": Kind("lfm2", r".*(_proj|w1|w2|w3)", LINEAR),
    "fused delta rule, gated attention": Kind("qwen3-next", STATEFUL, {"target_modules": STATEFUL}),
    "delta rule": Kind("qwen3.5", r".*_(proj|qkv|z|b|a)", LINEAR),
    "state spaces": Kind("granite-hybrid-groups-rope-biases", r".*(_proj|linear)", LINEAR),
    "no gate": named("starcoder2", "q_proj", "v_proj", "c_fc", "c_proj"),
    "matrices stored transposed": named("gpt2", "c_attn", "c_fc", "c_proj", fan_in_fan_out=True),
    "learned positions": Kind("opt", OPT, {"target_modules": OPT}),
    "query, key and value of one head after another": named(
        "gpt-neox", "query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"
    ),
    "norms after rope": Kind("hunyuan-dense"),
    "olmo3": Kind("olmo3"),
    "queries and values": Kind("llama-gqa", QV, {}),
    "all, biases below": Kind("llama-biases", EVERY, {**LINEAR, "r": 9}),
    "rank stabilised": Kind("llama-gqa", QV, {"use_rslora": True, "lora_alpha": 3}),
    "a regular expression": Kind("qwen3", QV, {"target_modules": QV}),
    "patterns": Kind(
        "llama-gqa",
        EVERY,
        {
            "target_modules": ALL,
            "rank_pattern": {"k_proj": 2, r".*\.1\.mlp\.up_proj": 17},
            "alpha_pattern": {"mlp.down_proj": 1, "^model.layers.0.self_attn.k_proj": 8, "k_proj": 8},
        },
        {"k_proj": 2, "layers.1.mlp.up_proj": 17},
        {"k_proj": 4.0, "layers.1.mlp.up_proj": 8 / 17, "down_proj": 0.25},
    ),
    "one layer": Kind("llama-gqa", r".*\.1\..*(q_proj|v_proj)", {"layers_to_transform": [1]}),
    "one layer by a pattern": Kind(
        "llama-gqa", r".*\.0\..*(q_proj|v_proj)", {"layers_to_transform": 0, "layers_pattern": "layers"}
    ),
    "all but some": Kind(
        "llama-gqa",
        r".*\.(o_proj|down_proj)",
        {"target_modules": ["o_proj", "down_proj", "q_proj"], "exclude_modules": ["self_attn.q_proj"]},
    ),
    "fused projections": Kind(
        "phi3", EVERY, {**LINEAR, "rank_pattern": {"qkv_proj": 5}}, {"qkv_proj": 5}, {"qkv_proj": 1.6}
    ),
    "norms after, caps, windows": Kind("gemma2"),
    "values made of keys": Kind("gemma4-k-eq-v"),
    "layers without keys, MLPs of two widths": Kind("gemma4-small"),
    "attention next to experts": named("mixtral", *HEADS),
    "sinks": named("gpt-oss", *HEADS),
    "outputs of latent attention": named("youtu", "o_proj", "up_proj"),
    "a layer's MLP next to experts": Kind("deepseek-v2", OUTPUTS, {"target_modules": OUTPUTS}),
}


class AdaptedDecoder:
    """A decoder whose rows all go through one adapter."""

    def __init__(self, decoder: Decoder, layers: LoraLayers) -> None:
        self._decoder, self._layers = decoder, layers
        self.config, self.dtype = decoder.config, decoder.dtype

    def forward(self, token_ids: torch.Tensor, *others: Any, **states: Any) -> torch.Tensor:
        segments, rows = [LoraSegment(0, len(token_ids), self._layers)], others[-1]
        every = plan_lora(segments, CPU)
        wanted = every if rows is None else plan_lora(narrow_segments(segments, rows.numpy()), CPU)
        return self._decoder.forward(token_ids, *others, AdaptedRows(every, wanted), **states)


def read(folder: Path, model: Path) -> Adapter:
    return read_adapter("one", folder, ModelConfig.from_folder(model), CPU, torch.float32)


def paged_run(decoder: Decoder, adapter: Adapter) -> PagedRun:
    return PagedRun(AdaptedDecoder(decoder, adapter.layers))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_logits_and_greedy_text_equal_those_of_the_merged_model(tmp_path: Path, kind: str) -> None:
    of = KINDS[kind]
    plain = save_random_model(tmp_path / "base", *CASES[of.model])
    folder = save_adapter(tmp_path / "adapter", plain, of.modules, of.ranks, **of.config)
    oracle = Oracle(folder, merged(plain, folder, of.scales))
    decoder, adapter = Decoder.from_folder(tmp_path / "base"), read(folder, tmp_path / "base")

    token_ids = random_ids(40)
    run = paged_run(decoder, adapter)
    chunks = [token_ids[:1], token_ids[1:30], *([token] for token in token_ids[30:])]
    found = torch.cat([run.extend({0: chunk}) for chunk in chunks])
    oracle.assert_logits(found, token_ids)
    assert not torch.allclose(found, Oracle(folder, plain).logits(token_ids), atol=0.1)
    oracle.assert_greedy(token_ids[:12], paged_run(decoder, adapter).greedy(token_ids[:12], 24))

    stored = load_file(folder / FILE)
    assert count_parameters(folder, decoder.config) == sum(tensor.numel() for tensor in stored.values())


@pytest.mark.parametrize("quantise", ["int8", "int4"])
def test_an_adapter_over_rounded_weights_adds_the_same(tmp_path: Path, quantise: Any) -> None:
    plain = save_random_model(tmp_path / "base", *CASES["llama-gqa"])
    folder = save_adapter(tmp_path / "adapter", plain, EVERY, {}, target_modules="all-linear")
    decoder = Decoder.from_folder(tmp_path / "base", quantise=quantise)
    token_ids = random_ids(20)
    found = paged_run(decoder, read(folder, tmp_path / "base")).extend({0: token_ids})
    # what the rounded weights are, in transformers
    modules = dict(plain.named_modules())
    with torch.no_grad():
        for index, (_, layer) in enumerate(decoder._layers):
            for name, parts in (
                ("qkv", ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")),
                ("o", ("self_attn.o_proj",)),
                ("gate_up", ("mlp.gate_proj", "mlp.up_proj")),
                ("down", ("mlp.down_proj",)),
            ):
                rows = getattr(layer, name).matrix()
                for part in parts:
                    weight = modules[f"model.layers.{index}.{part}"].weight
                    weight.copy_(rows[: len(weight)])
                    rows = rows[len(weight) :]
        modules["model.embed_tokens"].weight.copy_(decoder._embedding.matrix())
        modules["lm_head"].weight.copy_(decoder._lm_head.matrix())
    expected = Oracle(folder, merged(plain, folder)).logits(token_ids)
    # inputs are rounded with such weights
    torch.testing.assert_close(found, expected, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("form", ["gptq", "gptq, act-order", "awq", "packed", "fp8, blocks", "int8, channels"])
def test_an_adapter_over_published_few_bits_equals_the_merged_model(tmp_path: Path, form: str) -> None:
    widths = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4}
    plain = publish(tmp_path / "base", FORMATS[form], "LlamaForCausalLM", widths)
    folder = save_adapter(tmp_path / "adapter", plain, EVERY, {}, target_modules="all-linear")
    oracle = Oracle(folder, merged(plain, folder))
    decoder, token_ids = Decoder.from_folder(tmp_path / "base", dtype=torch.float32), random_ids(30)
    adapter = read(folder, tmp_path / "base")
    found = paged_run(decoder, adapter).extend({0: token_ids})
    oracle.assert_logits(found, token_ids)
    oracle.assert_greedy(token_ids[:12], paged_run(decoder, adapter).greedy(token_ids[:12], 24))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("llama")
    return folder, save_random_model(folder, *CASES["llama-gqa"])


def test_the_fingerprint_is_of_what_is_computed_with(llama: tuple[Path, Any], tmp_path: Path) -> None:
    base, model = llama
    saved = {
        "one": save_adapter(tmp_path / "one", model, QV, {}),
        "again": save_adapter(tmp_path / "again", model, QV, {}, lora_dropout=0.0, base_model_name_or_path="other"),
        "other numbers": save_adapter(tmp_path / "numbers", model, QV, {}, seed=1),
        "other scale": save_adapter(tmp_path / "scale", model, QV, {}, lora_alpha=9),
        "other modules": save_adapter(
            tmp_path / "modules", model, r".*\.(q_proj|k_proj)", {}, target_modules=["q_proj", "k_proj"]
        ),
    }
    prints = {name: read(folder, base).fingerprint for name, folder in saved.items()}
    assert prints["one"] == prints["again"]
    assert len(set(prints.values())) == 4
    assert all(re.fullmatch("[0-9a-f]{64}", found) for found in prints.values())


def test_no_two_namespaces_are_one(llama: tuple[Path, Any], tmp_path: Path) -> None:
    base, model = llama
    adapters = [None, *(read(save_adapter(tmp_path / str(i), model, QV, {}, seed=i), base) for i in range(2))]
    names = ["", "a", "\0", "\0\0", "\0a"]
    names += [scoped(name, adapter) for name in names for adapter in adapters if adapter is not None]
    pairs = [(name, adapter) for name in dict.fromkeys(names) for adapter in adapters]
    assert len({scoped(name, adapter) for name, adapter in pairs}) == len(pairs)
    assert scoped("tenant", None) == "tenant"


def _drop(folder: Path) -> None:
    name = "base_model.model.model.layers.1.self_attn.v_proj.lora_B.weight"
    edit_tensors(folder, lambda tensors: tensors.pop(name), FILE)


def _add(name: str, *shape: int) -> Any:
    added = {f"base_model.model.{name}": torch.zeros(shape)}
    return lambda folder: edit_tensors(folder, lambda tensors: tensors.update(added), FILE)


def _say(**config: Any) -> Any:
    def change(folder: Path) -> None:
        path = folder / "adapter_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **config}))

    return change


def _pickle(folder: Path) -> None:
    (folder / FILE).rename(folder / "adapter_model.bin")


def _cut(folder: Path) -> None:
    (folder / FILE).write_bytes((folder / FILE).read_bytes()[:100])


REFUSED = {
    "DoRA": (_say(use_dora=True), "use_dora: True: not supported"),
    "biases": (_say(bias="all"), "bias: 'all': trained biases are not supported"),
    "biases of B": (_say(lora_bias=True), "lora_bias: True: not supported"),
    "whole modules": (_say(modules_to_save=["lm_head"]), r"modules_to_save: \['lm_head'\]: not supported"),
    "a key of days to come": (_say(use_magic={"a": 1}), "use_magic: .*not supported; it must be off"),
    "another kind": (_say(peft_type="IA3"), "peft_type: IA3 is not supported"),
    "a base that was changed": (_say(init_lora_weights="pissa"), "init_lora_weights: 'pissa' changes the base weights"),
    "another rank": (_say(r=5), r"q_proj.lora_A.weight: expected shape \[5, 48\] \(rank, inputs\), found \[4, 48\]"),
    "no rank": (_say(r=0), "r: expected an integer of at least 1, found 0"),
    "an odd rank of a pattern": (_say(rank_pattern={"q_proj": "x"}), "rank_pattern: q_proj: expected an integer"),
    "an odd alpha of a pattern": (_say(alpha_pattern={"q_proj": "x"}), "alpha_pattern: q_proj: expected a number"),
    "no targets": (_say(target_modules=None), "target_modules: expected names of modules, found nothing"),
    "odd targets": (_say(target_modules=[1]), "target_modules: expected a list of names"),
    "a broken expression": (_say(target_modules="(q_proj"), "is not a regular expression"),
    "fewer targets": (_say(target_modules=["q_proj"]), "v_proj.*does not name this module in target_modules"),
    "more targets": (_say(target_modules=["q_proj", "v_proj", "o_proj"]), "o_proj.lora_A.weight .* is missing"),
    "no target of the model": (_say(target_modules=["query"]), "does not name this module"),
    "a tensor that is missing": (_drop, "tensor .*1.self_attn.v_proj.lora_B.weight of shape .* is missing"),
    "the vocabulary": (_add("lm_head.lora_A.weight", 4, 48), "adapters of the vocabulary's matrices"),
    "embeddings": (_add("model.embed_tokens.lora_embedding_A", 4, 48), "adapters of the vocabulary's matrices"),
    "a saved module": (_add("model.norm.weight", 48), "no modules that were saved whole"),
    "magnitudes": (_add("model.layers.0.self_attn.q_proj.lora_magnitude_vector", 48), "DoRA is not supported"),
    "a layer too many": (_add("model.layers.2.self_attn.q_proj.lora_A.weight", 4, 48), "has no such projection"),
    "pickles": (_pickle, "only safetensors are opened"),
    "half a file": (_cut, "not a whole safetensors file"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_computed_is_refused_by_name(llama: tuple[Path, Any], tmp_path: Path, what: str) -> None:
    base, model = llama
    folder = save_adapter(tmp_path / "adapter", model, QV, {})
    change, message = REFUSED[what]
    change(folder)
    with pytest.raises(ModelError, match=message):
        read(folder, base)


def test_experts_are_refused_by_name(tmp_path: Path) -> None:
    model = save_random_model(tmp_path / "base", *CASES["qwen3-moe"])
    folder = save_adapter(tmp_path / "adapter", model, QV, {})
    _add("model.layers.0.mlp.experts.0.up_proj.lora_A.weight", 4, 48)(folder)
    with pytest.raises(ModelError, match="adapters of experts, or of layers that have some, are not supported"):
        read(folder, tmp_path / "base")


def test_an_adapter_for_a_model_of_other_widths_is_refused(llama: tuple[Path, Any], tmp_path: Path) -> None:
    model = save_random_model(tmp_path / "base", "LlamaForCausalLM", {"hidden_size": 24})
    folder = save_adapter(tmp_path / "adapter", model, QV, {})
    with pytest.raises(ModelError, match=r"expected shape \[4, 48\] .* found \[4, 24\]; is the adapter for this model"):
        read(folder, llama[0])
