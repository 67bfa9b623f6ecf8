"""Vocabularies of other libraries' tokenizers are those that the engine makes of the same files."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
import sentencepiece
import tiktoken
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

import phloem as ph
from phloem.runtime.models import resolve_model
from phloem.runtime.tokenizer.tokenizer import Tokenizer

TEXT = 'The café costs 12.50 € — {"name": "Ada"}\n\n東京'
PATTERN = r"\p{L}+|\p{N}{1,3}|[^\s\p{L}\p{N}]+|\s+"


def bpe() -> tokenizers.Tokenizer:
    """Bytes and a few merges, with special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("t", "h"), ("th", "e"), ("Ġ", "c"), ("1", "2")]
    vocab = {piece: index for index, piece in enumerate([*alphabet, *("".join(pair) for pair in merges)])}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([tokenizers.AddedToken("<|im_end|>", special=True, normalized=False)])
    return tokenizer


def check(vocabulary: ph.Vocabulary, encode_text: str = TEXT) -> None:
    """It spells texts as it encodes them."""
    assert vocabulary.encode is not None
    spelt = b"".join(vocabulary.tokens[token] for token in vocabulary.encode(encode_text))
    assert spelt == encode_text.encode()
    matcher = ph.GrammarMatcher(ph.Compiler(vocabulary).regex("(?s:.)*"))
    assert all(map(matcher.accept_token, vocabulary.encode(encode_text)))
    assert matcher.accept_token(vocabulary.eos_ids[0])


def test_of_tokenizers(tmp_path: Path) -> None:
    tokenizer = bpe()
    eos = tokenizer.token_to_id("<|im_end|>")
    vocabulary = ph.Vocabulary.from_tokenizers(tokenizer, eos_ids=[eos], size=300)
    check(vocabulary)
    assert vocabulary.size == 300 and vocabulary.encode("the 12") == tokenizer.encode("the 12").ids
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 300}))
    for same in (Tokenizer.from_folder(tmp_path).vocabulary(), ph.Vocabulary.from_folder(tmp_path)):
        assert (same.tokens, same.eos_ids) == (vocabulary.tokens, vocabulary.eos_ids)
        assert same.pieces is not None and vocabulary.pieces is not None
        assert list(same.pieces(TEXT)) == list(vocabulary.pieces(TEXT))


def test_of_transformers() -> None:
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe(), eos_token="<|im_end|>")
    vocabulary = ph.Vocabulary.from_transformers(tokenizer)
    check(vocabulary)
    assert vocabulary.eos_ids == (tokenizer.eos_token_id,)
    with pytest.raises(ph.ModelError, match="names no end-of-sequence token; give eos_ids"):
        ph.Vocabulary.from_transformers(PreTrainedTokenizerFast(tokenizer_object=bpe()))
    with pytest.raises(ph.ConfigError, match="size: 5 is less than the 261 tokens"):
        ph.Vocabulary.from_transformers(tokenizer, size=5)


def test_of_sentencepiece() -> None:
    path = resolve_model("nano") / "tokenizer.model"
    engines = Tokenizer.from_folder(resolve_model("nano")).vocabulary()
    for source in (path, sentencepiece.SentencePieceProcessor(model_file=str(path))):
        vocabulary = ph.Vocabulary.from_sentencepiece(source, eos_ids=engines.eos_ids)
        check(vocabulary)
        assert vocabulary.tokens == engines.tokens


def ranks() -> dict[bytes, int]:
    return {**{bytes([byte]): byte for byte in range(256)}, b"th": 256, b"the": 257, b" c": 258}


def test_of_tiktoken() -> None:
    encoding = tiktoken.Encoding(
        "tiny", pat_str=PATTERN, mergeable_ranks=ranks(), special_tokens={"<|endoftext|>": 259, "<|x|>": 260}
    )
    vocabulary = ph.Vocabulary.from_tiktoken(encoding)
    check(vocabulary)
    assert vocabulary.eos_ids == (259,) and vocabulary.spell_special("<|x|>") is not None
    assert vocabulary.pieces is not None and vocabulary.pieces("the 12")[-1] == 6


def test_of_tekken(tmp_path: Path) -> None:
    config = {"pattern": PATTERN, "default_vocab_size": 264, "default_num_special_tokens": 5}
    entries = [{"rank": rank, "token_bytes": base64.b64encode(text).decode()} for text, rank in ranks().items()]
    special = [{"rank": rank, "token_str": text} for rank, text in enumerate(["<unk>", "<s>", "</s>", "[INST]"])]
    (tmp_path / "tekken.json").write_text(json.dumps({"config": config, "vocab": entries, "special_tokens": special}))
    vocabulary = ph.Vocabulary.from_tekken(tmp_path / "tekken.json")
    check(vocabulary)
    assert vocabulary.eos_ids == (2,) and vocabulary.tokens[5 + 257] == b"the"
    (tmp_path / "broken.json").write_text("{}")
    with pytest.raises(ph.ModelError, match=r"broken\.json: not a tekken file"):
        ph.Vocabulary.from_tekken(tmp_path / "broken.json")


@pytest.mark.parametrize("call", ["from_transformers", "from_tokenizers", "from_sentencepiece", "from_tiktoken"])
def test_what_is_no_such_tokenizer_is_refused(call: str) -> None:
    options = {"eos_ids": [2]} if call == "from_tokenizers" else {}
    with pytest.raises(ph.ConfigError, match=r"expected .*, got object"):
        getattr(ph.Vocabulary, call)(object(), **options)
