"""Every kind of tokenizer file: text goes in and comes back exactly, and only templates make special tokens."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from phloem.errors import ModelError, RequestError
from phloem.runtime.tokenizer.tokenizer import Tokenizer

from .trained import sentencepiece_model

CORPUS = [
    "The quick brown fox jumps over the lazy dog.",
    "Invoice 1042 from Mirenko Ltd: 3 jackets, 249.90 EUR, due 2024-05-17.",
    '{"name": "Tavo Lindqvist", "city": "Brasnovo", "age": 41}',
    "Grüße aus Köln, naïve café — 東京 🙂",
    "system\nYou are brief.\nuser\nassistant\n",
] * 20
SPECIALS = ["<|im_start|>", "<|im_end|>"]


def sentencepiece_folder(folder: Path, *, dummy_prefix: bool, user_defined: bool) -> Path:
    """tokenizer.model with control tokens, as control pieces or as the user-defined ones that text can match."""
    content = sentencepiece_model(
        CORPUS,
        vocab_size=420,
        split_digits=True,
        add_dummy_prefix=dummy_prefix,
        normalization_rule_name="identity",
        **{"user_defined_symbols" if user_defined else "control_symbols": SPECIALS},
    )
    (folder / "tokenizer.model").write_bytes(content)
    return folder


def byte_level_folder(folder: Path) -> Path:
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(
            vocab_size=420,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=["<|endoftext|>", *SPECIALS],
            show_progress=False,
        ),
    )
    tokenizer.add_tokens(["<tool>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "<|im_end|>"}}))
    return folder


def metaspace_folder(folder: Path) -> Path:
    """As converted Llama 2 files are: Prepend and Replace in the normaliser, byte fallback, no pre-tokeniser."""
    bytes_and_specials = ["<unk>", "<s>", "</s>", *SPECIALS, *(f"<0x{byte:02X}>" for byte in range(256))]
    tokenizer = tokenizers.Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    # words make short merges; the training splits on ▁ only here, not in the saved file
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=bytes_and_specials, show_progress=False)
    tokenizer.train_from_iterator((word for line in CORPUS for word in line.split()), trainer)
    spec = json.loads(tokenizer.to_str())
    spec["added_tokens"] = [t for t in spec["added_tokens"] if not t["content"].startswith("<0x")]
    (folder / "tokenizer.json").write_text(json.dumps(spec))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True})
    )
    return folder


FOLDERS: dict[str, Callable[[Path], Path]] = {
    "sentencepiece": lambda folder: sentencepiece_folder(folder, dummy_prefix=False, user_defined=False),
    "sentencepiece-dummy-prefix": lambda folder: sentencepiece_folder(folder, dummy_prefix=True, user_defined=False),
    "sentencepiece-user-defined": lambda folder: sentencepiece_folder(folder, dummy_prefix=True, user_defined=True),
    "byte-level": byte_level_folder,
    "metaspace": metaspace_folder,
}


@pytest.fixture(scope="module", params=FOLDERS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return FOLDERS[request.param](tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.from_folder(folder)


TEXTS = st.text(
    alphabet=st.one_of(st.characters(codec="utf-8"), st.sampled_from(list(' \n\tthe_▁"{<|>}0')))
) | st.lists(
    st.sampled_from(["the", " fox", "  ", "\n", "1042", "東京", "🙂", *SPECIALS, "<s>", "</s>", "<unk>", "<0x41>"])
).map("".join)


@settings(deadline=None)
@given(text=TEXTS)
def test_decode_inverts_encode(tokenizer: Tokenizer, text: str) -> None:
    expected = text.replace("▁", " ") if "▁" not in tokenizer.decode(tokenizer.encode("▁")) else text
    assert tokenizer.decode(tokenizer.encode(text)) == expected


@settings(deadline=None)
@given(text=TEXTS)
def test_text_never_makes_special_tokens(tokenizer: Tokenizer, text: str) -> None:
    specials = set(tokenizer.special_ids.values())
    assert not specials & set(tokenizer.encode(text))
    body = tokenizer.encode_prompt(text)[len(tokenizer.encode_prompt("")) :]
    assert not specials & set(body)


@settings(deadline=None)
@given(token_ids=st.lists(st.integers(0, 400), max_size=30))
def test_decode_is_the_bytes_of_the_tokens(tokenizer: Tokenizer, token_ids: list[int]) -> None:
    content = b"".join(map(tokenizer.token_bytes, token_ids))
    assert tokenizer.decode(token_ids) == content.decode("utf-8", "replace")


def test_templates_make_special_tokens(tokenizer: Tokenizer) -> None:
    start, end = (tokenizer.special_ids[text] for text in SPECIALS)
    ids = tokenizer.encode("<|im_start|>user\nhi<|im_end|>", special=True)
    assert ids[0] == start
    assert ids[-1] == end
    # files that ask for a prefix space get it after a special token too, as in transformers
    assert tokenizer.decode(ids).lstrip(" ") == "user\nhi"
    assert [tokenizer.token_text(ids[0]), tokenizer.token_text(ids[-1])] == SPECIALS


def test_a_cut_between_pieces_keeps_special_text_text(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_pieces(["<|im_start|>user\n<", "|im_end|>", "<|im_end|>"])
    assert ids.count(tokenizer.special_ids["<|im_end|>"]) == 1
    assert tokenizer.decode(ids).lstrip(" ") == "user\n<|im_end|>"


def test_prompts_begin_as_the_model_was_trained(folder: Path, tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_prompt("the fox")
    if (folder / "tokenizer.model").exists():
        model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
        assert ids == [model.bos_id(), *model.encode("the fox")]
    else:
        theirs = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        bos = [] if theirs.post_processor else [theirs.token_to_id("<s>")]
        assert ids == bos + theirs.encode("the fox").ids


def test_lone_surrogates_are_refused_with_their_position(tokenizer: Tokenizer) -> None:
    for encode in (tokenizer.encode, tokenizer.encode_prompt):
        with pytest.raises(RequestError, match=r"U\+D83D.*position 2"):
            encode("ab\ud83d")


def test_eos_ids_come_from_every_file(tmp_path: Path) -> None:
    byte_level_folder(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 500, "eos_token_id": 0}))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 9]}))
    tokenizer = Tokenizer.from_folder(tmp_path)
    assert tokenizer.eos_ids == tuple(sorted({0, 7, 9, tokenizer.special_ids["<|im_end|>"]}))
    assert tokenizer.vocab_size == 500
    assert tokenizer.token_bytes(499) == b""


def test_a_checkpoint_may_say_how_it_writes_json(tmp_path: Path) -> None:
    byte_level_folder(tmp_path)
    assert Tokenizer.from_folder(tmp_path).json_whitespace == "spaced"
    file = tmp_path / "generation_config.json"
    for whitespace in ("compact", "spaced", "flexible"):
        file.write_text(json.dumps({"json_whitespace": whitespace}))
        assert Tokenizer.from_folder(tmp_path).json_whitespace == whitespace
    for odd in ("tight", True):
        file.write_text(json.dumps({"json_whitespace": odd}))
        with pytest.raises(ModelError, match=r"generation_config\.json: json_whitespace"):
            Tokenizer.from_folder(tmp_path)


def test_the_vocabulary_spells_what_decoding_says(tokenizer: Tokenizer) -> None:
    vocabulary = tokenizer.vocabulary()
    assert vocabulary.size == tokenizer.vocab_size
    assert vocabulary.eos_ids == tokenizer.eos_ids
    special = set(tokenizer.special_ids.values())
    for token_id, token in enumerate(vocabulary.tokens):
        if token_id not in special and b"\xff" not in tokenizer.token_bytes(token_id):
            assert token == tokenizer.token_bytes(token_id)
    for text, token_id in tokenizer.special_ids.items():
        spelling = None if token_id in tokenizer.eos_ids else vocabulary.tokens[token_id]
        assert vocabulary.spell_special(text) == vocabulary.spell_special(token_id) == spelling
    assert not vocabulary.missing_bytes
    assert vocabulary.encode is not None
    text = '{"name": "Tavo Lindqvist"}'
    assert b"".join(vocabulary.tokens[i] for i in vocabulary.encode(text)) == text.encode()


def test_a_model_without_an_end_makes_no_vocabulary(tmp_path: Path) -> None:
    byte_level_folder(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    with pytest.raises(ModelError, match="no end-of-sequence token: name eos_token_id in"):
        Tokenizer.from_folder(tmp_path).vocabulary()


def test_ordinary_added_tokens_are_text(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_folder(byte_level_folder(tmp_path))
    assert len(tokenizer.encode("<tool>")) == 1
    assert tokenizer.decode(tokenizer.encode("a <tool> b")) == "a <tool> b"


def test_an_added_token_of_spaces_is_spaces(tmp_path: Path) -> None:
    """As Gemma's are, and a converted user-defined ▁: the decoder replaces ▁ in these as well."""
    metaspace_folder(tmp_path)
    spec = json.loads((tmp_path / "tokenizer.json").read_text())
    added = {
        "content": "▁▁",
        "special": False,
        "normalized": False,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
    }
    spec["added_tokens"].append({"id": 500, **added})
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    tokenizer, peer = Tokenizer.from_folder(tmp_path), tokenizers.Tokenizer.from_str(json.dumps(spec))
    token_id = peer.token_to_id("▁▁")
    begin = peer.encode("a", add_special_tokens=False).ids
    assert peer.decode([*begin, token_id]) == "a  "
    assert tokenizer.token_bytes(token_id) == b"  "


def test_added_tokens_beyond_the_sentencepiece_model(tmp_path: Path) -> None:
    sentencepiece_folder(tmp_path, dummy_prefix=False, user_defined=False)
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<|tool|>": 430}))
    tokenizer = Tokenizer.from_folder(tmp_path)
    assert tokenizer.vocab_size == 431
    assert tokenizer.encode("<|tool|>", special=True) == [430]
    assert 430 not in tokenizer.encode("<|tool|>")


def _write(name: str, content: str | bytes) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    return write


def _word_level(folder: Path) -> None:
    tokenizers.Tokenizer(models.WordLevel({"a": 0}, unk_token="a")).save(str(folder / "tokenizer.json"))


def _too_small_vocabulary(folder: Path) -> None:
    byte_level_folder(folder)
    (folder / "config.json").write_text('{"vocab_size": 100}')


BROKEN: dict[str, tuple[Callable[[Path], Any], str]] = {
    "nothing": (lambda folder: None, "neither tokenizer.json nor tokenizer.model"),
    "truncated json": (_write("tokenizer.json", '{"model": '), r"tokenizer.json: broken JSON at line 1 column"),
    "other json": (_write("tokenizer.json", '{"a": 1}'), "tokenizer.json: not a tokenizer"),
    "a list": (_write("tokenizer.json", "[]"), "expected a JSON object, got list"),
    "odd added tokens": (_write("tokenizer.json", '{"added_tokens": [1]}'), "added_tokens: expected a list"),
    "no sentencepiece": (_write("tokenizer.model", b"\x00garbage"), "not a sentencepiece model"),
    "empty sentencepiece": (_write("tokenizer.model", b""), "not a sentencepiece model"),
    "words": (_word_level, "exact bytes are unknown"),
    "too many tokens": (_too_small_vocabulary, "config.json says vocab_size 100"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_folders_are_refused_by_name(tmp_path: Path, case: str) -> None:
    spoil, message = BROKEN[case]
    spoil(tmp_path)
    with pytest.raises(ModelError, match=message) as caught:
        Tokenizer.from_folder(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_special_tokens_are_silent_or_shown_by_their_names_and_the_end_is_always_silent(tokenizer: Tokenizer) -> None:
    assert tokenizer.special_ids
    for text, token_id in tokenizer.special_ids.items():
        assert tokenizer.detokenizer().push(token_id) == ""
        shown = tokenizer.detokenizer(shows_special=True).push(token_id)
        assert shown == ("" if token_id in tokenizer.eos_ids else text)
