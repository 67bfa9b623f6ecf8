"""Tokenizers out of GGUF files compared with the ones that were written into them."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import gguf
import pytest
import regex  # type: ignore[import-untyped]
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor
from tiktoken_ext import openai_public
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers
from transformers.convert_slow_tokenizer import bytes_to_unicode
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX
from transformers.models.qwen3_5.tokenization_qwen3_5 import PRETOKENIZE_REGEX as QWEN_3_5

from phloem.errors import ModelError
from phloem.runtime.models import resolve_model
from phloem.runtime.tokenizer.gguf_vocabulary import CUTS
from phloem.runtime.tokenizer.tokenizer import Tokenizer
from phloem.runtime.tokenizer.tokenizer_json import TokenizerJson

from ..models.gguf_files import add_pieces, finish
from .harmony import CORPUS
from .harmony import PATTERN as O200K
from .trained import byte_level, cut_by

# Llama 3's, and Mistral's tekken: as Qwen's and as o200k, but for digits and contractions
LLAMA_3 = PRETOKENIZE_REGEX.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
TEKKEN = O200K.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace(r"\p{N}{1,3}", r"\p{N}")
# Kimi's is o200k's, but for Chinese, which stands alone, and strokes
KIMI = r"(?V1)\p{Han}+|" + O200K.replace("/", "").replace(r"\p{M}]", r"\p{M}&&[^\p{Han}]]")
PATTERNS = {
    "gpt-2": openai_public.r50k_pat_str,
    "llama-bpe": LLAMA_3,
    "dbrx": LLAMA_3,
    "qwen2": PRETOKENIZE_REGEX,
    "qwen35": QWEN_3_5,
    "kimi-k2": KIMI,
    "gpt-4o": O200K,
    "tekken": TEKKEN,
}
SPECIALS = ["<|begin|>", "<|im_end|>"]
TEXTS = st.lists(
    st.one_of(
        st.sampled_from(
            [*CORPUS, *SPECIALS, "<tool>", "'S", "'ll", "don't", "HTTPServer", " \n ", "\r\n", "///\n", "1234567", "²½"]
        ),
        # what is not assigned may have become a letter in one library's Unicode and not in another's
        st.text(st.characters(exclude_categories=["Cn", "Cs"]), max_size=6),
    ),
    max_size=8,
).map("".join)


def original(name: str) -> tokenizers.Tokenizer:
    """A small tokenizer as the checkpoint's own `tokenizer.json` would describe it."""
    cut = CUTS[name]
    if cut.single_digits:
        parts: list[Any] = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    elif name == "gpt-2":
        parts = [pre_tokenizers.ByteLevel(False)]
    else:
        parts = cut_by(*cut.first, cut.pattern)
    corpus = [*CORPUS, "1234567 HTTPServer don't ///\n"]
    normaliser = normalizers.NFC() if cut.is_normalised else None
    made = byte_level(corpus, parts, normaliser, ignore_merges=cut.ignores_merges)
    made.add_special_tokens(SPECIALS)
    made.add_tokens([tokenizers.AddedToken("<tool>", normalized=False)])
    return made


def write_byte_level(path: Path, made: tokenizers.Tokenizer, name: str, **keys: Any) -> None:
    spec = json.loads(made.to_str())
    by_id = {index: text for text, index in made.get_vocab(with_added_tokens=True).items()}
    added = {token["id"]: token["special"] for token in spec["added_tokens"]}
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(name)
    writer.add_token_list([by_id[index] for index in range(len(by_id))])
    writer.add_token_types([3 if added.get(i) else 4 if i in added else 1 for i in range(len(by_id))])
    writer.add_token_merges([" ".join(merge) for merge in spec["model"]["merges"]])
    writer.add_bos_token_id(made.token_to_id("<|begin|>"))
    for key, value in keys.items():
        getattr(writer, f"add_{key}")(value)
    finish(writer)


@lru_cache(maxsize=16)
def pair(name: str, folder: Path) -> tuple[tokenizers.Tokenizer, Tokenizer]:
    made, path = original(name), folder / f"{name}.gguf"
    write_byte_level(path, made, name)
    return made, Tokenizer.from_folder(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokenizers")


@pytest.mark.parametrize(
    "name", [*PATTERNS, "smollm", "command-r", "seed-coder", "deepseek-v3", "deepseek-coder", "falcon"]
)
@settings(max_examples=60, deadline=None)
@given(text=TEXTS)
def test_texts_become_the_original_tokens(name: str, folder: Path, text: str) -> None:
    made, ours = pair(name, folder)
    assert ours.encode(text, special=True) == made.encode(text).ids
    made.encode_special_tokens = True
    assert ours.encode(text) == made.encode(text).ids
    made.encode_special_tokens = False
    bos = [made.token_to_id("<|begin|>")] if CUTS[name].adds_bos else []
    assert ours.encode_prompt(text) == [*bos, *ours.encode(text)]
    assert ours.decode(ours.encode(text)) == (
        normalizers.NFC().normalize_str(text) if CUTS[name].is_normalised else text
    )


@pytest.mark.parametrize("name", PATTERNS)
@settings(max_examples=60, deadline=None)
@given(text=TEXTS)
def test_texts_are_cut_as_the_published_pattern_cuts_them(name: str, folder: Path, text: str) -> None:
    backend = pair(name, folder)[1]._backend
    assert isinstance(backend, TokenizerJson)
    ends, at = [], 0
    text = normalizers.NFC().normalize_str(text)
    for piece in regex.findall(PATTERNS[name], text):
        at += len(piece)
        ends.append(at)
    assert backend.pieces(text) == ends


@lru_cache(maxsize=1)
def gemma(folder: Path) -> tuple[tokenizers.Tokenizer, Tokenizer]:
    """A small tokenizer of Gemma 4's kind, as transformers makes them, and the one out of its file."""
    controls = ["<pad>", "<eos>", "<bos>", "<unk>", "<turn|>", "<|tool_response>"]
    pieces = [f"<0x{byte:02X}>" for byte in range(256)]
    made = tokenizers.Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    made.normalizer = normalizers.Replace(" ", "▁")
    made.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=[*controls, *pieces], show_progress=False)
    made.train_from_iterator(CORPUS, trainer)
    spec = json.loads(made.to_str())
    spec["added_tokens"] = [token for token in spec["added_tokens"] if token["content"] in controls]
    made = tokenizers.Tokenizer.from_str(json.dumps(spec))
    by_id, path = {index: text for text, index in made.get_vocab().items()}, folder / "gemma.gguf"
    kinds = dict(enumerate([3, 3, 3, 2, 3, 4] + [6] * 256))
    writer = gguf.GGUFWriter(path, "gemma4")
    writer.add_tokenizer_model("gemma4")
    writer.add_token_list([by_id[index] for index in range(len(by_id))])
    writer.add_token_scores([0.0] * len(by_id))
    writer.add_token_types([kinds.get(index, 1) for index in range(len(by_id))])
    writer.add_token_merges([" ".join(merge) for merge in spec["model"]["merges"]])
    for name, index in (("eos", 1), ("bos", 2), ("unk", 3)):
        getattr(writer, f"add_{name}_token_id")(index)
    finish(writer)
    return made, Tokenizer.from_folder(path)


@settings(max_examples=60, deadline=None)
@given(text=TEXTS)
def test_pieces_with_merges_are_the_original_tokens(folder: Path, text: str) -> None:
    made, ours = gemma(folder)
    assert ours.eos_ids == (1, 4, 5)
    assert ours.encode(text) == made.encode(text).ids
    assert ours.encode_prompt(text) == [2, *ours.encode(text)]
    assert b"".join(map(ours.token_bytes, ours.encode(text))) == text.replace("▁", " ").encode()


def test_every_token_has_its_bytes(folder: Path) -> None:
    made, ours = pair("smollm", folder)
    whole = range(made.get_vocab_size(with_added_tokens=False))
    alphabet = {character: byte for byte, character in bytes_to_unicode().items()}
    for index in whole:
        assert ours.token_bytes(index) == bytes(alphabet[character] for character in made.id_to_token(index))
    assert ours.special_ids == {text: made.token_to_id(text) for text in SPECIALS}
    assert ours.token_bytes(made.token_to_id("<tool>")) == b"<tool>"
    assert ours.eos_ids == (made.token_to_id("<|im_end|>"),)


def test_keys_say_what_begins_and_how_chats_are_written(tmp_path: Path) -> None:
    made, path = original("smollm"), tmp_path / "chat.gguf"
    template = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"
    write_byte_level(path, made, "smollm", chat_template=template, add_bos_token=True, eot_token_id=5)
    ours, bos = Tokenizer.from_folder(path), made.token_to_id("<|begin|>")
    assert ours.encode_prompt("a") == ours.encode_whole("a") == [bos, *ours.encode("a")]
    assert ours.apply_chat_template([{"role": "user", "content": "a"}]) == [bos, *ours.encode("a")]
    assert ours.eos_ids == (5, made.token_to_id("<|im_end|>"))
    assert pair("smollm", tmp_path)[1].chat_template.is_default
    write_byte_level(path, made, "smollm", add_eos_token=True, eos_token_id=5)
    ended = Tokenizer.from_folder(path)
    assert ended.encode_whole("a") == [*ended.encode_prompt("a"), 5]


def test_a_merge_that_is_none_is_named(tmp_path: Path) -> None:
    made, path = original("smollm"), tmp_path / "given.gguf"
    write_byte_level(path, made, "smollm")
    content = path.read_bytes()
    first = json.loads(made.to_str())["model"]["merges"][0]
    both = " ".join(first).encode()
    path.write_bytes(content.replace(both, both.replace(b" ", b"_"), 1))
    with pytest.raises(ModelError, match=r"given.gguf: tokenizer.ggml.merges: entry 0 is not two tokens"):
        Tokenizer.from_folder(path)


def write_sentencepiece(path: Path, model: SentencePieceProcessor) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    add_pieces(writer, model)
    finish(writer)


@lru_cache(maxsize=1)
def both_of_nano(folder: Path) -> tuple[Tokenizer, Tokenizer]:
    nano = resolve_model("nano")
    write_sentencepiece(folder / "nano.gguf", SentencePieceProcessor(str(nano / "tokenizer.model")))
    return Tokenizer.from_folder(nano), Tokenizer.from_folder(folder / "nano.gguf")


@settings(max_examples=200, deadline=None)
@given(text=TEXTS)
def test_pieces_with_scores_are_the_sentencepiece_model(folder: Path, text: str) -> None:
    theirs, ours = both_of_nano(folder)
    assert ours.encode(text) == theirs.encode(text)
    assert ours.encode(text, special=True) == theirs.encode(text, special=True)
    assert ours.encode_prompt(text) == theirs.encode_prompt(text)


def test_of_several_unknown_tokens_one_stands_for_unknown_text(tmp_path: Path) -> None:
    """As in llama.cpp, whose own Phi-3 file has 53: the others come out of templates alone, and are silent."""
    nano = SentencePieceProcessor(str(resolve_model("nano") / "tokenizer.model"))
    pads = [f"[PAD{index}]" for index in range(5)]
    size, path = nano.get_piece_size(), tmp_path / "phi.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    add_pieces(writer, nano)
    keys = writer.kv_data[0]
    for name, more in (
        ("tokens", [*pads, "", "twice", "twice"]),
        ("scores", [-1000.0] * 8),
        ("token_type", [2] * 5 + [1] * 3),
    ):
        keys[f"tokenizer.ggml.{name}"].value += more
    finish(writer)
    ours, theirs = Tokenizer.from_folder(path), Tokenizer.from_folder(resolve_model("nano"))
    assert ours.vocab_size == size + 8
    for index, pad in enumerate(pads):
        assert ours.special_ids[pad] == size + index and ours.token_bytes(size + index) == b""
        assert ours.encode(f"a{pad}", special=True)[-1] == size + index
        assert size + index not in ours.encode(f"a{pad}")
        assert ours.decode(ours.encode(f"a {pad}")) == f"a {pad}"
    assert [ours.token_bytes(size + index) for index in (5, 6, 7)] == [b"", b"", b"twice"]
    for text in CORPUS:
        assert ours.encode(text) == theirs.encode(text)


def test_pieces_have_the_bytes_of_the_sentencepiece_model(folder: Path) -> None:
    theirs, ours = both_of_nano(folder)
    assert ours.vocab_size == theirs.vocab_size
    assert all(ours.token_bytes(i) == theirs.token_bytes(i) for i in range(ours.vocab_size))
    assert (ours.special_ids, ours.bos_id) == (theirs.special_ids, theirs.bos_id)
    assert set(theirs.eos_ids) <= set(ours.eos_ids)
