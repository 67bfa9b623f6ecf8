"""GGUF headers: what is read is what was written, and what is broken is refused with its place."""

from __future__ import annotations

import struct
import tracemalloc
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.errors import ModelError
from phloem.runtime.config import EngineConfig
from phloem.runtime.execute.loading import load
from phloem.runtime.models import Decoder, ModelConfig, resolve_model
from phloem.runtime.models.generation_config import sampling_defaults
from phloem.runtime.models.gguf.checkpoint import GgufCheckpoint
from phloem.runtime.models.gguf.file import GgufFile
from phloem.runtime.models.part import as_part
from phloem.runtime.offload.fingerprint import fingerprint_of
from phloem.runtime.tokenizer.tokenizer import Tokenizer

from .gguf_files import finish

TOKENS = ["<unk>", "Ġa", "b", "é"]


@lru_cache(maxsize=1)
def small_file(folder: Path) -> bytes:
    path = folder / "small.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(32)
    writer.add_head_count(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_bool("a.truth", True)
    writer.add_float64("a.float", 0.25)
    writer.add_int64("a.number", -7)
    writer.add_array("some.numbers", [1, 2, 3])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 1, 1, 1])
    writer.add_token_merges(["Ġ a"])
    writer.add_tensor("token_embd.weight", np.ones((4, 32), np.float32))
    writer.add_tensor("blk.0.attn_q.weight", np.zeros((32, 34), np.uint8), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    finish(writer)
    return path.read_bytes()


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return small_file(tmp_path_factory.mktemp("gguf"))


def opened(folder: Path, content: bytes) -> GgufFile:
    path = folder / "given.gguf"
    path.write_bytes(content)
    return GgufFile(path)


def test_everything_that_was_written_is_read(tmp_path: Path, content: bytes) -> None:
    file = opened(tmp_path, content)
    expected = gguf.GGUFReader(tmp_path / "given.gguf")
    for key, field in expected.fields.items():
        if key.startswith("GGUF."):
            continue
        value: Any = field.contents()
        if isinstance(value, list) and isinstance(value[0], str):
            assert file.strings(key) == value
        elif isinstance(value, list):
            assert file.numbers(key, len(value)).tolist() == value
        else:
            assert file.values[key] == value
    assert file.tensors.keys() == {tensor.name for tensor in expected.tensors}
    for tensor in expected.tensors:
        info = file.tensors[tensor.name]
        assert (info.start, list(info.shape)) == (tensor.data_offset, [int(n) for n in reversed(tensor.shape)])
        assert np.array_equal(file.raw(info), np.ascontiguousarray(tensor.data).view(np.uint8))


def test_a_file_that_ends_early_is_refused_wherever_it_ends(tmp_path: Path, content: bytes) -> None:
    for length in range(0, len(content), 5):
        with pytest.raises(ModelError, match=r"given.gguf: (at byte|tensor|cannot be read)"):
            opened(tmp_path, content[:length])


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([b"\xff", b"\xff" * 4, b"\xff" * 7 + b"\x7f", b"\0", b"\x09", b"\x01"]))
def test_a_changed_byte_is_read_or_refused_and_claims_no_memory(
    tmp_path_factory: pytest.TempPathFactory, at: int, change: bytes
) -> None:
    folder = tmp_path_factory.getbasetemp()
    whole = small_file(folder)
    at %= len(whole)
    changed = whole[:at] + change + whole[at + len(change) :]
    tracemalloc.start()
    try:
        opened(folder, changed)
        ModelConfig.from_folder(folder / "given.gguf")
        Decoder.from_folder(folder / "given.gguf")
        Tokenizer.from_folder(folder / "given.gguf")
    except ModelError as error:
        assert "given.gguf" in str(error)
    finally:
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert most < 64 << 20


def header(*keys: bytes, num_tensors: int = 0, num_keys: int | None = None, version: int = 3) -> bytes:
    count = len(keys) if num_keys is None else num_keys
    return b"GGUF" + struct.pack("<IQQ", version, num_tensors, count) + b"".join(keys)


def key(name: str, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", kind) + value


def tensor(name: str, shape: tuple[int, ...], kind: int, offset: int = 0) -> bytes:
    sizes = struct.pack(f"<{len(shape)}Q", *shape)
    return (
        struct.pack("<Q", len(name))
        + name.encode()
        + struct.pack("<I", len(shape))
        + sizes
        + struct.pack("<IQ", kind, offset)
    )


HUGE = 2**63
# what is said: (the file, what the message names)
BROKEN: dict[str, tuple[bytes, str]] = {
    "another format": (b"PK\3\4" + bytes(40), "does not begin with GGUF"),
    "version 1": (header(version=1), "version 1 is not read"),
    "big-endian": (header(version=3 << 24), "a big-endian file"),
    "keys without end": (header(num_keys=HUGE), f"{HUGE} keys do not fit a file of 24 bytes"),
    "tensors without end": (header(num_tensors=HUGE), f"{HUGE} tensors do not fit"),
    "a long name": (header(struct.pack("<Q", HUGE) + bytes(20)), "at byte 32: key 0: 9223372036854775808 bytes end"),
    "a long string": (header(key("a", 8, struct.pack("<Q", HUGE))), "a: 9223372036854775808 bytes end after"),
    "a long array": (header(key("a", 9, struct.pack("<IQ", 4, HUGE))), "a: 36893488147419103232 bytes end after"),
    "many strings": (header(key("a", 9, struct.pack("<IQ", 8, HUGE))), "strings do not fit"),
    "a string of many": (
        header(key("a", 9, struct.pack("<IQQ", 8, 2, 1) + b"x" + struct.pack("<Q", HUGE))),
        "a: string 1 of 2 ends after",
    ),
    "arrays in arrays": (header(key("a", 9, struct.pack("<IQ", 9, 1))), "a: arrays of type 9 are not read"),
    "no such type": (header(key("a", 13, bytes(8))), "a: there is no type 13 of values"),
    "neither true nor false": (header(key("a", 7, b"\2")), "a: expected true or false, found 2"),
    "no UTF-8": (header(key("a", 8, struct.pack("<Q", 1) + b"\xff")), "a: is no UTF-8"),
    "twice": (header(key("a", 0, b"\1"), key("a", 0, b"\1")), "key 'a' is there twice"),
    "alignment": (header(key("general.alignment", 4, struct.pack("<I", 3))), "expected a power of two, found 3"),
    "an unread type": (header(num_tensors=1) + tensor("x", (256,), 16) + bytes(64), "'x': IQ2_XXS is not read"),
    "an unknown type": (header(num_tensors=1) + tensor("x", (256,), 77) + bytes(64), "'x': type 77 is not read"),
    "five dimensions": (header(num_tensors=1) + tensor("x", (1,) * 5, 0), "expected 1 to 4 dimensions, found 5"),
    "half a block": (header(num_tensors=1) + tensor("x", (40,), 8) + bytes(99), "no multiple of the 32 numbers"),
    "empty": (header(num_tensors=1) + tensor("x", (0, 4), 0) + bytes(64), "of shape [4, 0] is empty"),
    "not aligned": (header(num_tensors=1) + tensor("x", (4,), 0, 8) + bytes(99), "offset 8 is no multiple"),
    "cut": (header(num_tensors=1) + tensor("x", (4, HUGE // 2), 0) + bytes(64), "it is cut off; download it again"),
    "the same tensor": (
        header(num_tensors=2) + tensor("x", (4,), 0) + tensor("x", (4,), 0) + bytes(99),
        "is there twice",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_named(name: str, tmp_path: Path) -> None:
    content, message = BROKEN[name]
    with pytest.raises(ModelError) as caught:
        opened(tmp_path, content)
    assert message in str(caught.value)
    assert "given.gguf" in str(caught.value)


def changed(folder: Path, content: bytes, old: bytes, new: bytes) -> Path:
    path = folder / "given.gguf"
    assert content.count(old) == 1
    path.write_bytes(content.replace(old, new))
    return path


REFUSED: dict[str, tuple[bytes, bytes, str]] = {
    "an architecture": (b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0rwkv7", "general.architecture: rwkv7 is not"),
    "a key": (b"llama.context_length", b"llama.xontext_length", "llama.xontext_length: 64 is not supported"),
    "a long context": (
        b"llama.context_length" + struct.pack("<II", 4, 64),
        b"llama.context_length" + struct.pack("<II", 4, 2**32 - 1),
        "context_length: expected an integer of at most 67108864",
    ),
    "a missing key": (b"llama.embedding_length", b"other.embedding_length", "embedding_length: expected an integer"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_known_is_refused_by_name(name: str, tmp_path: Path, content: bytes) -> None:
    old, new, message = REFUSED[name]
    with pytest.raises(ModelError, match=message):
        ModelConfig.from_folder(changed(tmp_path, content, old, new))


def test_a_pattern_that_is_not_known_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ModelError, match=r"tokenizer.ggml.pre: gpt-9: how it cuts texts is not known here; known are"):
        Tokenizer.from_folder(changed(tmp_path, content, b"gpt-2", b"gpt-9"))
    with pytest.raises(ModelError, match=r"tokenizer.ggml.model: bert is not supported; gpt2, gemma4 and llama are"):
        Tokenizer.from_folder(changed(tmp_path, content, b"gpt2", b"bert"))


def test_an_array_of_no_strings_is_one(tmp_path: Path) -> None:
    path = tmp_path / "given.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQQ3sIIQ", 3, 0, 1, 3, b"key", 9, 8, 0))
    assert GgufFile(path).strings("key") == []


def test_tensors_with_odd_names_are_in_the_way_of_none(tmp_path: Path, content: bytes) -> None:
    """The last of these has no number where blocks have theirs."""
    for name in (b"blk.aaaaaaaaaaaaaaa", b"blk..attn_q.weight_"):
        path = changed(tmp_path, content, b"blk.0.attn_q.weight", name)
        with pytest.raises(ModelError, match=r"given.gguf: tensor 'blk.0.attn_[a-z]*.weight' of shape .* is missing"):
            Decoder.from_folder(path)


def test_a_missing_tensor_is_named_as_the_file_names_it(tmp_path: Path, content: bytes) -> None:
    path = changed(tmp_path, content, b"blk.0.attn_q.weight", b"blk.0.attn_z.weight")
    with pytest.raises(
        ModelError, match=r"given.gguf: tensor 'blk.0.attn_output.weight' of shape \[32, 32\] is missing"
    ):
        Decoder.from_folder(path)


def test_a_scale_that_is_no_number_is_refused(tmp_path: Path, content: bytes) -> None:
    file = opened(tmp_path, content)
    start = file.tensors["blk.0.attn_q.weight"].start
    path = tmp_path / "given.gguf"
    path.write_bytes(content[:start] + b"\0\x7e" + content[start + 2 :])
    checkpoint = GgufCheckpoint(GgufFile(path), ModelConfig.from_folder(path), torch.float32)
    with pytest.raises(ModelError, match=r"blk.0.attn_q.weight: has a scale that is no number"):
        checkpoint.read_grouped("model.layers.0.self_attn.q_proj", as_part(32), as_part(32), torch.device("cpu"))


STRING, NUMBERS, STRINGS = (
    struct.pack("<Q", 1) + b"x",
    struct.pack("<IQ2i", 5, 2, -1, -2),
    struct.pack("<IQQ", 8, 1, 1) + b"x",
)
ODD_VALUES = {
    "text": (8, STRING),
    "numbers": (9, NUMBERS),
    "strings": (9, STRINGS),
    "below 0": (5, struct.pack("<i", -3)),
    "none": (6, struct.pack("<f", float("nan"))),
    "huge": (10, struct.pack("<Q", HUGE)),
    "true": (7, b"\1"),
}


@pytest.mark.parametrize("odd", ODD_VALUES)
def test_a_value_of_another_kind_is_an_error_with_its_place_or_no_matter(
    odd: str, tmp_path: Path, content: bytes
) -> None:
    """Every key that is looked up anywhere, in turn."""
    whole = opened(tmp_path, content)
    extra = [f"tokenizer.ggml.{name}" for name in ("bos_token_id", "eos_token_id", "add_bos_token", "scores")]
    extra += ["tokenizer.chat_template", "split.count", "general.alignment", "general.sampling.temp"]
    extra += [f"llama.{name}" for name in ("expert_count", "rope.scaling.type", "rope.dimension_count")]
    extra += [f"llama.attention.{name}" for name in ("head_count_kv", "sliding_window", "key_length")]
    names = [*whole.values, "tokenizer.ggml.tokens", "tokenizer.ggml.merges", *extra]
    path = tmp_path / "odd.gguf"
    for name in names:
        kind, value = ODD_VALUES[odd]
        written = key(name, kind, value)
        path.write_bytes(with_key(whole, content, name, written))
        for read in (ModelConfig.from_folder, Tokenizer.from_folder, sampling_defaults):
            try:
                read(path)  # type: ignore[operator]
            except ModelError as error:
                assert "odd.gguf" in str(error)


def with_key(whole: GgufFile, content: bytes, name: str, written: bytes) -> bytes:
    """The file with a key in place of its own, or one more; tensors begin where they did, after the alignment."""
    reader = gguf.GGUFReader(whole.path)
    keys = {key: b"".join(part.tobytes() for part in field.parts) for key, field in reader.fields.items()}
    keys = {key: found for key, found in keys.items() if not key.startswith("GGUF.")} | {name: written}
    infos = b"".join(b"".join(part.tobytes() for part in tensor.field.parts) for tensor in reader.tensors)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(reader.tensors), len(keys)) + b"".join(keys.values()) + infos
    return head + bytes(-len(head) % 32) + content[min(info.start for info in whole.tensors.values()) :]


def test_a_folder_with_one_file_is_that_file(tmp_path: Path, content: bytes) -> None:
    first = tmp_path / "given.gguf"
    first.write_bytes(content)
    assert resolve_model(tmp_path) == resolve_model(str(first)) == first
    (tmp_path / "other.GGUF").write_bytes(content)
    with pytest.raises(ModelError, match=r"has 2 GGUF files \(given.gguf, other.GGUF …\)"):
        resolve_model(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert resolve_model(tmp_path) == tmp_path


def test_sampling_is_what_the_file_asks_for(tmp_path: Path) -> None:
    path = tmp_path / "given.gguf"
    values = struct.pack("<f", 0.5), struct.pack("<i", 20)
    path.write_bytes(header(key("general.sampling.temp", 6, values[0]), key("general.sampling.top_k", 5, values[1])))
    assert sampling_defaults(path) == {"temperature": 0.5, "top_k": 20}


def test_every_byte_of_the_file_counts_where_kv_outlives_the_process(tmp_path: Path, content: bytes) -> None:
    config = EngineConfig("any", device="cpu")
    loaded = replace(load(EngineConfig("nano", device="cpu")), folder=tmp_path / "given.gguf")
    seen = set()
    for at in (-1, 40, 900):
        (tmp_path / "given.gguf").write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at:][1:])
        seen.add(fingerprint_of(config, loaded, tmp_path))
    assert len(seen) == 3
