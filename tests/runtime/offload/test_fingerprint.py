"""A model's fingerprint changes with whatever its KV depends on, and with nothing else; and is remembered safely."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from pathlib import Path

import pytest
import torch

from phloem.kernels import ops
from phloem.kernels.plain import ops as plain_ops
from phloem.runtime.config import EngineConfig
from phloem.runtime.execute import kv_cache
from phloem.runtime.execute.loading import LoadedModel, load
from phloem.runtime.models import decoder, latent, resolve_model
from phloem.runtime.models.rope_config import RopeConfig
from phloem.runtime.offload import fingerprint
from phloem.runtime.offload.fingerprint import fingerprint_of


@pytest.fixture
def loaded(tmp_path: Path) -> LoadedModel:
    """The bundled model, in a folder of its own."""
    folder = tmp_path / "model"
    shutil.copytree(resolve_model("nano"), folder)
    return load(EngineConfig(str(folder), device="cpu"))


def test_it_changes_with_what_kv_depends_on_and_with_nothing_else(loaded: LoadedModel, tmp_path: Path) -> None:
    base = EngineConfig(str(loaded.folder), device="cpu")
    first = fingerprint_of(base, loaded, tmp_path)
    assert len(first) == 32
    for same in ({"max_model_len": 100}, {"num_blocks": 7}, {"seed": 1}, {"max_batch_tokens": 5}, {"jump": "off"}):
        assert fingerprint_of(dataclasses.replace(base, **same), loaded, tmp_path) == first  # type: ignore[arg-type]
    others = [
        fingerprint_of(dataclasses.replace(base, block_size=32), loaded, tmp_path),
        fingerprint_of(dataclasses.replace(base, quantise="int8"), loaded, tmp_path),
        fingerprint_of(dataclasses.replace(base, deterministic=True), loaded, tmp_path),
        fingerprint_of(base, dataclasses.replace(loaded, kv_dtype=torch.int8), tmp_path),
        fingerprint_of(base, dataclasses.replace(loaded, dtype=torch.bfloat16), tmp_path),
        fingerprint_of(base, dataclasses.replace(loaded, device=torch.device("meta")), tmp_path),
    ]
    assert len({first, *others}) == len(others) + 1


def test_every_byte_of_the_weights_counts_whatever_the_time_stamps_say(loaded: LoadedModel, tmp_path: Path) -> None:
    config = EngineConfig(str(loaded.folder), device="cpu")
    assert loaded.folder is not None
    seen = {fingerprint_of(config, loaded, tmp_path)}
    weights = loaded.folder / "model.safetensors"
    for at in (-1, 100_000, 9):
        stamp = weights.stat()
        data = bytearray(weights.read_bytes())
        data[at] ^= 1
        weights.write_bytes(data)
        os.utime(weights, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        seen.add(fingerprint_of(config, loaded, tmp_path))
    (loaded.folder / "config.json").write_text((loaded.folder / "config.json").read_text() + " ")
    seen.add(fingerprint_of(config, loaded, tmp_path))
    assert len(seen) == 5


def test_a_copy_of_a_checkpoint_is_the_same_model(loaded: LoadedModel, tmp_path: Path) -> None:
    assert loaded.folder is not None
    twin = dataclasses.replace(loaded, folder=Path(shutil.copytree(loaded.folder, tmp_path / "twin")))
    config = EngineConfig("any", device="cpu")
    assert fingerprint_of(config, twin, tmp_path) == fingerprint_of(config, loaded, tmp_path)


def test_files_are_hashed_once_and_again_when_they_have_changed(
    loaded: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed = []
    truly = fingerprint._hash_files

    def hash_files(files: list[Path]) -> str:
        hashed.append(files)
        return truly(files)

    monkeypatch.setattr(fingerprint, "_hash_files", hash_files)
    config = EngineConfig("any", device="cpu")
    first = fingerprint_of(config, loaded, tmp_path)
    assert fingerprint_of(config, loaded, tmp_path) == first
    assert len(hashed) == 2, "a file that was written just now is not relied upon"
    monkeypatch.setattr(fingerprint, "SETTLED_SECONDS", -1.0)
    for _ in range(3):
        assert fingerprint_of(config, loaded, tmp_path) == first
    assert len(hashed) == 3
    assert loaded.folder is not None
    weights = loaded.folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes())
    assert fingerprint_of(config, loaded, tmp_path) == first
    assert len(hashed) == 4


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 5}', '{"a": "b"}'])
def test_a_memory_that_is_broken_is_none(loaded: LoadedModel, tmp_path: Path, text: str) -> None:
    config = EngineConfig("any", device="cpu")
    first = fingerprint_of(config, loaded, tmp_path)
    (tmp_path / "checkpoints.json").write_text(text)
    assert fingerprint_of(config, loaded, tmp_path) == first
    assert fingerprint_of(config, loaded, tmp_path / "nowhere") == first


def test_what_is_remembered_is_bounded(tmp_path: Path, loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "SETTLED_SECONDS", -1.0)
    (tmp_path / "checkpoints.json").write_text(json.dumps({str(number): "f" * 64 for number in range(1000)}))
    fingerprint_of(EngineConfig("any", device="cpu"), loaded, tmp_path)
    assert len(json.loads((tmp_path / "checkpoints.json").read_text())) == fingerprint.MOST_REMEMBERED


def test_the_longest_position_counts_where_the_rope_depends_on_it(loaded: LoadedModel, tmp_path: Path) -> None:
    ropes = (RopeConfig("dynamic", 10000.0, 32),)

    class Stretched:
        config = dataclasses.replace(loaded.decoder.config, ropes=ropes)

    stretched = dataclasses.replace(loaded, decoder=Stretched())  # type: ignore[arg-type]
    config = EngineConfig("any", device="cpu")
    found = {
        fingerprint_of(dataclasses.replace(config, max_model_len=length), stretched, tmp_path)
        for length in (100, 200, None)
    }
    assert len(found) == 3


def test_the_sources_of_all_that_computes_kv_are_in_it() -> None:
    found = fingerprint.sources()
    modules = (ops, plain_ops, decoder, latent, kv_cache)
    assert {Path(str(module.__file__)).resolve() for module in modules} <= set(found)
