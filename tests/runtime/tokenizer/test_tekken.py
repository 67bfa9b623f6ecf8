"""Folders with a `tekken.json` and no `tokenizer.json`: tiktoken's tokens, as in Mistral's own library."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiktoken
from hypothesis import given, settings

from phloem.errors import ModelError
from phloem.runtime.tokenizer.tekken import SPECIAL
from phloem.runtime.tokenizer.token_pieces import byte_alphabet
from phloem.runtime.tokenizer.tokenizer import Tokenizer

from .harmony import CORPUS
from .test_gguf_tokenizer import TEKKEN, TEXTS
from .trained import byte_level, cut_by

NUM_SPECIAL = 30


def strings() -> list[bytes]:
    """All bytes, and what a small BPE merges of them, in its order."""
    made = byte_level([*CORPUS, "1234567 HTTPServer don't ///\n"], cut_by(TEKKEN))
    spelt = byte_alphabet()
    by_id = {index: bytes(spelt[one] for one in text) for text, index in made.get_vocab().items()}
    return [by_id[index] for index in range(len(by_id))]


STRINGS = strings()
NUM_STRINGS = len(STRINGS) - 9  # the last ones are no tokens


def content(**changes: Any) -> dict[str, Any]:
    vocab = [
        {"rank": rank, "token_bytes": base64.b64encode(one).decode(), "token_str": None}
        for rank, one in enumerate(STRINGS)
    ]
    size = NUM_SPECIAL + NUM_STRINGS
    config = {"pattern": TEKKEN, "default_vocab_size": size, "default_num_special_tokens": NUM_SPECIAL}
    return {"config": {**config, "version": "v3"}, "vocab": vocab, **changes}


def write(folder: Path, values: dict[str, Any]) -> None:
    (folder / "tekken.json").write_text(json.dumps(values))
    (folder / "config.json").write_text(json.dumps({"vocab_size": NUM_SPECIAL + NUM_STRINGS, "eos_token_id": 2}))


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("tekken")
    write(folder, content())
    return Tokenizer.from_folder(folder)


ranks = {one: rank for rank, one in enumerate(STRINGS[:NUM_STRINGS])}
THEIRS = tiktoken.Encoding("tekken", pat_str=TEKKEN, mergeable_ranks=ranks, special_tokens={})


@settings(max_examples=60, deadline=None)
@given(text=TEXTS)
def test_texts_become_tiktokens_tokens_after_the_special_ones(text: str, ours: Tokenizer) -> None:
    expected = [rank + NUM_SPECIAL for rank in THEIRS.encode_ordinary(text)]
    assert ours.encode(text) == expected
    assert ours.encode_prompt(text) == [1, *expected]
    assert ours.decode(expected) == text


def test_special_tokens_have_the_first_ids(ours: Tokenizer) -> None:
    assert {text: ours.special_ids[text] for text in SPECIAL} == {text: rank for rank, text in enumerate(SPECIAL)}
    assert ours.encode("[INST]a[/INST]", special=True) == [3, *ours.encode("a"), 4]
    assert (ours.bos_id, ours.eos_ids) == (1, (2,))
    assert ours.token_bytes(NUM_SPECIAL + 300) == STRINGS[300]


def test_a_file_may_name_its_special_tokens(tmp_path: Path) -> None:
    named = [{"rank": 1, "token_str": "<s>"}, {"rank": 7, "token_str": "[THINK]", "is_control": True}]
    write(tmp_path, content(special_tokens=named))
    assert Tokenizer.from_folder(tmp_path).special_ids["[THINK]"] == 7


def _changed(change: Callable[[list[dict[str, Any]]], object]) -> dict[str, Any]:
    values = content()
    change(values["vocab"])
    return values


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "default_num_special_tokens: expected an integer"),
        (content(vocab=[]), "vocab: expected at least"),
        (_changed(lambda vocab: vocab[3].update(token_bytes="?")), "in base64"),
        (_changed(lambda vocab: vocab[3].update(rank=4)), "in the order of their ranks"),
        (_changed(lambda vocab: vocab[3].update(token_bytes=vocab[4]["token_bytes"])), "different strings"),
        (content(special_tokens=[{"rank": 30, "token_str": "a"}]), "rank: expected less than 30, found 30"),
        (content(special_tokens=[{"rank": 3, "token_str": "<SPECIAL_4>"}]), "different texts"),
    ],
)
def test_what_is_odd_is_refused(tmp_path: Path, values: dict[str, Any], message: str) -> None:
    write(tmp_path, values)
    with pytest.raises(ModelError, match=message):
        Tokenizer.from_folder(tmp_path)
