"""Checkpoint folders: every spelling loads to the same numbers, and everything broken is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from phloem.errors import ModelError
from phloem.runtime.models import Decoder, ModelConfig, resolve_model

from .decoder_cases import CASES
from .decoder_shapes import LLAMA3
from .edits import config, edit_config, edit_tensors, tensors
from .oracle import PagedRun, random_ids, save_random_model


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original")
    save_random_model(folder, "LlamaForCausalLM", {"rope_parameters": LLAMA3})
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    for file in original.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def logits(folder: Path, **options: Any) -> torch.Tensor:
    return PagedRun(Decoder.from_folder(folder, **options)).extend({0: random_ids(20)})


def shard(folder: Path) -> dict[str, str]:
    """Two files and an index instead of one file; returns the index's map."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    weight_map = {name: f"model-0000{1 + index % 2}-of-00002.safetensors" for index, name in enumerate(names)}
    for file in set(weight_map.values()):
        save_file({name: tensors[name] for name in names if weight_map[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return weight_map


def test_shards_load_to_the_same_numbers(original: Path, folder: Path) -> None:
    shard(folder)
    assert torch.equal(logits(folder), logits(original))


def test_both_spellings_of_rope_mean_the_same(original: Path, folder: Path) -> None:
    scaling = {key: value for key, value in LLAMA3.items() if key not in ("rope_theta", "rope_type")}
    edit_config(folder, rope_parameters=None, rope_theta=10000.0, rope_scaling={**scaling, "type": "llama3"})
    assert torch.equal(logits(folder), logits(original))
    edit_config(folder, rope_scaling=None)
    assert not torch.equal(logits(folder), logits(original))


def test_names_without_the_model_prefix_load(original: Path, folder: Path) -> None:
    def strip(tensors: dict[str, torch.Tensor]) -> None:
        for name in list(tensors):
            tensors[name.removeprefix("model.")] = tensors.pop(name)

    edit_tensors(folder, strip)
    assert torch.equal(logits(folder), logits(original))


def test_the_architecture_may_be_named_by_model_type_alone(original: Path, folder: Path) -> None:
    edit_config(folder, architectures=None)
    assert ModelConfig.from_folder(folder) == ModelConfig.from_folder(original)


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_widened_exactly(folder: Path, stored: torch.dtype) -> None:
    def halve(tensors: dict[str, torch.Tensor]) -> None:
        tensors.update({name: tensor.to(stored) for name, tensor in tensors.items()})

    edit_tensors(folder, halve)
    name = str(stored).removeprefix("torch.")
    edit_config(folder, dtype=name)
    assert ModelConfig.from_folder(folder).dtype == name
    wide = logits(folder, dtype=torch.float32)
    edit_tensors(folder, lambda tensors: tensors.update({name: t.float() for name, t in tensors.items()}))
    assert torch.equal(wide, logits(folder, dtype=torch.float32))
    narrow, tiled = (Decoder.from_folder(folder, dtype=stored, deterministic=tiles) for tiles in (False, True))
    assert narrow.dtype == stored
    found = [PagedRun(decoder).extend({0: random_ids(20)}) for decoder in (narrow, tiled)]

    def move(tensors: dict[str, torch.Tensor]) -> None:
        for tensor in tensors.values():
            tensor *= 1 + torch.finfo(stored).eps / 2 * (2 * torch.randint(2, tensor.shape) - 1)

    # rounding each number between the products, a few times a layer, does a few times what rounding weights does
    edit_tensors(folder, move)
    change = (logits(folder, dtype=torch.float32) - wide).abs().max()
    for each in found:
        assert each.dtype == torch.float32
        assert (each - wide).abs().max() <= 4 * change


def test_weight_bytes_are_those_of_the_files(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    assert Decoder.from_folder(folder).num_weight_bytes == sum(tensor.nbytes for tensor in tensors.values())


def test_no_logits_wanted_gives_none_and_still_writes_kv(original: Path) -> None:
    decoder = Decoder.from_folder(original)
    token_ids = random_ids(12)
    run = PagedRun(decoder)
    assert run.extend({0: token_ids[:11]}, rows=[]).shape == (0, decoder.config.vocab_size)
    together = PagedRun(decoder).extend({0: token_ids}, rows=[11])
    assert torch.equal(run.extend({0: token_ids[11:]}), together)


def test_dynamic_and_long_ropes_are_fixed_by_the_longest_sequence_served(folder: Path) -> None:
    edit_config(folder, rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0})
    assert torch.equal(logits(folder, max_positions=64), logits(folder, max_positions=256))
    assert not torch.equal(logits(folder, max_positions=512), logits(folder, max_positions=256))
    factors = {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4, "original_max_position_embeddings": 64}
    edit_config(folder, rope_parameters={"rope_type": "longrope", "rope_theta": 1e4, **factors})
    assert torch.equal(logits(folder, max_positions=32), logits(folder, max_positions=64))
    assert not torch.equal(logits(folder, max_positions=65), logits(folder, max_positions=64))


def test_eos_ids_come_from_the_generation_config_first(folder: Path) -> None:
    edit_config(folder, eos_token_id=5)
    (folder / "generation_config.json").write_text('{"eos_token_id": [7, 5]}')
    assert ModelConfig.from_folder(folder).eos_ids == (7, 5)
    (folder / "generation_config.json").write_text("{}")
    assert ModelConfig.from_folder(folder).eos_ids == (5,)


def _without_safetensors(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def _truncated(folder: Path) -> None:
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])


def _empty(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


def _missing_shard(folder: Path) -> None:
    (folder / sorted(shard(folder).values())[0]).unlink()


def _wrong_index(folder: Path) -> None:
    weight_map = shard(folder)
    weight_map["model.norm.weight"] = next(f for f in weight_map.values() if f != weight_map["model.norm.weight"])
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def _index_out_of_folder(folder: Path) -> None:
    shard(folder)
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../x.safetensors"}}')


Q = "model.layers.1.self_attn.q_proj"
BROKEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "empty folder": (_empty, "is empty; expected a checkpoint in Hugging Face layout"),
    "no config": (lambda f: (f / "config.json").unlink(), "has no config.json"),
    "broken config": (lambda f: (f / "config.json").write_text('{"a": 1,'), r"config.json: broken JSON at line 1"),
    "config is a list": (lambda f: (f / "config.json").write_text("[]"), "expected a JSON object, got list"),
    "config is binary": (lambda f: (f / "config.json").write_bytes(b"\xff\xfe{"), "config.json: cannot be read"),
    "deep config": (lambda f: (f / "config.json").write_text("[" * 200_000), "config.json: nested too deeply"),
    "unknown architecture": (
        config(architectures=["RwkvForCausalLM"], model_type="rwkv"),
        "RwkvForCausalLM is not supported .its recurrent layers .* docs/models.md lists",
    ),
    "no layers": (config(num_hidden_layers=0), "num_hidden_layers: expected an integer of at least 1, found 0"),
    "missing size": (config(hidden_size=None), "hidden_size: expected an integer of at least 1, found nothing"),
    "text for a number": (
        config(rms_norm_eps="1e-5"),
        "rms_norm_eps: expected a number above 0 and below .*, found '1e-5'",
    ),
    "heads do not divide": (config(num_key_value_heads=4), r"num_key_value_heads: expected a divisor of .*\(6\)"),
    "unknown rope": (
        config(rope_parameters={"rope_type": "spiral"}),
        "rope_type: expected one of default, linear, .*'spiral'",
    ),
    "rope without factor": (config(rope_parameters={"rope_type": "linear"}), "factor: expected a number above 0"),
    "longrope of wrong length": (
        config(rope_parameters={"rope_type": "longrope", "short_factor": [1], "long_factor": [1]}),
        "short_factor: expected 4 positive numbers",
    ),
    "odd head": (config(head_dim=7, rope_parameters=None), "head_dim 7"),
    "activation": (config(hidden_act="relu"), "hidden_act: expected silu or relu2, found 'relu'"),
    "dtype": (config(dtype="float8_e4m3fn"), "dtype: expected one of float32, bfloat16, float16"),
    "quantized": (
        config(quantization_config={"quant_method": "bitsandbytes"}),
        r"quantization_config \(bitsandbytes\) is not",
    ),
    "four bits without experts": (
        config(quantization_config={"quant_method": "mxfp4"}),
        r"\(mxfp4\) is not supported",
    ),
    "clipped": (config(architectures=["OlmoeForCausalLM"], clip_qkv=8.0), "clip_qkv: .* are not clipped here"),
    "eos outside": (config(eos_token_id=[131]), r"eos_token_id \[131\] lies outside of vocab_size 131"),
    "pickled only": (_without_safetensors, "pytorch_model.bin but no safetensors; phloem never loads pickled"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "has neither model.safetensors nor"),
    "truncated": (_truncated, "model.safetensors: not a whole safetensors file"),
    "zero bytes": (lambda f: (f / "model.safetensors").write_bytes(b""), "not a whole safetensors file"),
    "missing shard": (_missing_shard, "00001-of-00002.safetensors: this shard is missing"),
    "wrong index": (_wrong_index, "the index promises model.norm.weight in this file"),
    "index out of the folder": (_index_out_of_folder, "shards are .safetensors files next to the index"),
    "missing tensor": (tensors(lambda t: t.pop(f"{Q}.weight")), rf"tensor {Q}.weight of shape \[48, 48\] is missing"),
    "odd shape": (
        tensors(lambda t: t.update({f"{Q}.weight": torch.zeros(48, 40)})),
        rf"model.safetensors: {Q}.weight: expected shape \[48, 48\], found \[48, 40\]",
    ),
    "odd dtype": (
        tensors(lambda t: t.update({f"{Q}.weight": torch.zeros(48, 48, dtype=torch.int8)})),
        rf"{Q}.weight: stored as torch.int8",
    ),
    "overlooked bias": (
        tensors(lambda t: t.update({f"{Q}.bias": torch.zeros(48)})),
        rf"{Q}.bias: 1 tensors have no place in LlamaForCausalLM",
    ),
    "fewer layers in the config": (config(num_hidden_layers=1), "have no place in LlamaForCausalLM"),
    "other vocabulary": (
        config(vocab_size=200),
        r"embed_tokens.weight: expected shape \[200, 48\], found \[131, 48\]",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_checkpoints_are_refused_by_name(folder: Path, case: str) -> None:
    spoil, message = BROKEN[case]
    spoil(folder)
    with pytest.raises(ModelError, match=message) as caught:
        Decoder.from_folder(folder)
    assert str(folder) in str(caught.value)


def test_paths_that_are_no_checkpoint_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path, message in ((tmp_path / "none", "does not exist"), (tmp_path / "file", "is a file")):
        with pytest.raises(ModelError, match=message):
            ModelConfig.from_folder(path)


def test_models_are_found_by_folder_and_by_name(folder: Path) -> None:
    assert resolve_model(folder) == folder
    assert resolve_model(str(folder)) == folder
    assert (resolve_model("nano") / "config.json").exists()
    for name in (
        "no such model",
        "./none",
        "../../etc/none",
        "./none/a.gguf",
        "a/b/c",
        "owner/..",
        str(folder / "none"),
    ):
        with pytest.raises(ModelError, match="no such folder or file"):
            resolve_model(name)
    with pytest.raises(ModelError, match="is a file"):
        resolve_model(folder / "config.json")


@pytest.mark.parametrize(
    ("case", "left_aside"),
    [
        ("glm4.5", ["model.layers.2.eh_proj.weight", "model.layers.2.shared_head.head.weight"]),
        ("ernie4.5-moe", ["model.mtp_block.0.mlp.up_proj.weight", "model.mtp_emb_norm.0.weight"]),
        ("gpt-neox", ["gpt_neox.layers.0.attention.masked_bias", "gpt_neox.layers.0.attention.rotary_emb.inv_freq"]),
        ("gpt2", ["transformer.h.0.attn.bias", "transformer.h.0.attn.masked_bias"]),
    ],
)
def test_draft_layers_and_masks_are_left_aside(tmp_path: Path, case: str, left_aside: list[str]) -> None:
    save_random_model(tmp_path, *CASES[case])
    weights = load_file(tmp_path / "model.safetensors")
    save_file(weights | {name: torch.zeros(3) for name in left_aside}, tmp_path / "model.safetensors")
    Decoder.from_folder(tmp_path)
    save_file(weights | {"model.layers.1.odd.weight": torch.zeros(3)}, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=r"odd\.weight: 1 tensors have no place"):
        Decoder.from_folder(tmp_path)
