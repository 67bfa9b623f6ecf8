"""Every file of a checkpoint, with anything at all in it, loads or is refused by name, in bounded memory. Run by
`test_hostile_files`, in a process of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from phloem.errors import ModelError
from phloem.runtime.models import Decoder, ModelConfig
from phloem.runtime.models.rope import rope_table
from phloem.runtime.models.rope_config import RopeConfig

from ..bounded import bounds  # noqa: F401 (a fixture)
from . import hostile_files
from .models.gguf_files import add_pieces, write_model
from .models.oracle import save_random_model
from .models.saved_adapters import save_adapter
from .tokenizer.test_tokenizer import byte_level_folder

MUTANTS = 80


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with every kind of file, an adapter for it, and a GGUF file."""
    from sentencepiece import SentencePieceProcessor

    from phloem.runtime.models import resolve_model

    root = tmp_path_factory.mktemp("hostile")
    model = save_random_model(root / "model", "LlamaForCausalLM", {"vocab_size": 1300})
    save_adapter(root / "adapter", model, r".*\.(q_proj|v_proj)", {})
    tokens = SentencePieceProcessor(str(resolve_model("nano") / "tokenizer.model"))
    write_model(root / "a.gguf", model, "llama", "F32", keys=lambda writer: add_pieces(writer, tokens))
    byte_level_folder(root / "model")
    tensors = load_file(root / "model" / "model.safetensors")
    save_file(tensors, root / "model" / "model-1.safetensors")
    (root / "model" / "model.safetensors").unlink()
    index = {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(tensors, "model-1.safetensors")}
    (root / "model" / "model.safetensors.index.json").write_text(json.dumps(index))
    (root / "model" / "generation_config.json").write_text(json.dumps({"eos_token_id": [2], "temperature": 0.5}))
    (root / "model" / "added_tokens.json").write_text(json.dumps({"<|tool|>": 3}))
    return root


@pytest.mark.skipif(sys.platform != "linux", reason="bounds a process's memory as Linux does")
def test_mutated_files_load_or_are_refused_in_bounded_memory(folder: Path) -> None:
    command = [sys.executable, hostile_files.__file__, str(folder), "0", str(MUTANTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    *odd, outcomes = done.stdout.splitlines() or [""]
    assert done.returncode == 0, done.stderr[-2000:]
    assert not odd
    counts = json.loads(outcomes)
    assert counts["loaded"] > MUTANTS // 50 and counts["refused"] > MUTANTS // 4


HUGE: dict[str, Any] = {
    "num_hidden_layers": 10**9,
    "hidden_size": 2**40,
    "head_dim": 10**9,
    "num_attention_heads": 10**9,
    "intermediate_size": 2**50,
    "vocab_size": 2**50,
    "max_position_embeddings": 2**60,
    "rms_norm_eps": 10**400,
    "rope_theta": float("inf"),
    "sliding_window": 2**63,
    "no_rope_layers": [[1], [1]],
    "layer_types": [{}, {}],
}


@pytest.mark.parametrize("key", HUGE)
def test_a_size_is_refused_by_its_name_before_anything_is_allocated(folder: Path, tmp_path: Path, key: str) -> None:
    values = json.loads((folder / "model" / "config.json").read_text())
    more = {"sliding_window": 9, "use_sliding_window": True} if key == "layer_types" else {}
    kind = {"architectures": ["Qwen2ForCausalLM"]} if key in ("sliding_window", "layer_types") else {}
    (tmp_path / "config.json").write_text(json.dumps({**values, **more, **kind, key: HUGE[key]}))
    with pytest.raises(ModelError, match=rf"config\.json: {key}: expected .*, found"):
        ModelConfig.from_folder(tmp_path)


def test_sizes_that_are_not_the_files_are_refused_before_there_is_room_for_them(folder: Path, tmp_path: Path) -> None:
    """Within their bounds they would still ask for 64 TiB."""
    shutil.copytree(folder / "model", tmp_path / "model")
    file = tmp_path / "model" / "config.json"
    values = json.loads(file.read_text())
    file.write_text(json.dumps({**values, "vocab_size": 1 << 24, "hidden_size": 1 << 20}))
    with pytest.raises(ModelError, match=r"expected shape \[16777216, 1048576\], found"):
        Decoder.from_folder(tmp_path / "model")


def test_a_table_of_positions_that_is_too_large_names_the_remedy() -> None:
    rope = RopeConfig("default", 10_000.0, 64)
    with pytest.raises(ModelError, match="set max_model_len to 16777216 or less"):
        rope_table(rope, 1 << 26)
    assert rope_table(rope, 100).shape == (100, 64)
