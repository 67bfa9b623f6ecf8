"""A `tokenizer.json` that is none loads or is refused with its name, whatever is wrong with it; and texts over which
the `tokenizers` library panics are an error of the request, not of the process."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import pre_tokenizers

from phloem.errors import ModelError, RequestError
from phloem.runtime.server.formats.thoughts import thinks
from phloem.runtime.tokenizer.tokenizer import Tokenizer
from phloem.runtime.tokenizer.tokenizer_json import TokenizerJson

from ..hostile_files import ODD, places

META = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
SPLIT = {"type": "Split", "pattern": {"Regex": "(?i:a)"}, "behavior": "Isolated", "invert": False}
BYTES = {character: index for index, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
PIECES = {"<unk>": 0, "a": 1, "▁": 2, "▁a": 3}
ENDLESS = {"Regex": "(a|aa|aaa)+$"}


def byte_level() -> dict[str, Any]:
    added = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    mark = {"id": "<|x|>", "ids": [256], "tokens": ["<|x|>"]}
    return {
        "added_tokens": [{"id": 256, "content": "<|x|>", **added}],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [{"type": "NFC"}, {"type": "Replace", "pattern": {"Regex": "b+"}, "content": "b"}],
        },
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [SPLIT, LEVEL]},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<|x|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<|x|>": mark},
        },
        "decoder": LEVEL,
        "model": {"type": "BPE", "vocab": BYTES, "merges": []},
    }


def of_pieces(model: dict[str, Any]) -> dict[str, Any]:
    return {"added_tokens": [], "normalizer": None, "pre_tokenizer": META, "decoder": META, "model": model}


def word_level() -> dict[str, Any]:
    return of_pieces({"type": "WordLevel", "unk_token": "<unk>", "vocab": PIECES})


SPECS: tuple[Callable[[], dict[str, Any]], ...] = (
    byte_level,
    word_level,
    lambda: of_pieces({"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "vocab": PIECES, "merges": []}),
    lambda: of_pieces({"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0], ["▁", -2.0]]}),
)


def changed(value: dict[str, Any], **parts: Any) -> dict[str, Any]:
    return {**value, **parts}


STRANGE: dict[str, Callable[[], dict[str, Any]]] = {
    "no token for a text": lambda: of_pieces({"type": "WordLevel", "unk_token": "<none>", "vocab": {"b": 0}}),
    "a part of another kind": lambda: changed(byte_level(), normalizer={"type": "Sequence", "normalizers": 5}),
    "a part is missing": lambda: changed(byte_level(), normalizer={"type": "Sequence"}),
    "parts that are no objects": lambda: changed(byte_level(), normalizer={"type": "Sequence", "normalizers": ["NFC"]}),
    "a model of another kind": lambda: changed(byte_level(), model=[1]),
    "a special token without ids": lambda: changed(
        byte_level(), post_processor={**byte_level()["post_processor"], "special_tokens": {}}
    ),
}


@pytest.mark.parametrize("spec_of", STRANGE.values(), ids=STRANGE)
def test_a_strange_file_is_refused_with_its_name(spec_of: Callable[[], dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec_of()))
    with pytest.raises(ModelError, match=r"tokenizer\.json: not a tokenizer \(.+\); download it again"):
        Tokenizer.from_folder(tmp_path)


def test_a_pattern_without_an_end_is_refused_when_the_file_is_read() -> None:
    """`a` is what is encoded then, so a text that is put before it is one of the same kind."""
    spec = byte_level()
    spec["normalizer"] = {"type": "Prepend", "prepend": "a" * 60 + "c"}
    spec["pre_tokenizer"]["pretokenizers"][0] = {**SPLIT, "pattern": ENDLESS}
    with pytest.raises(ModelError, match=r"^F: not a tokenizer \(.*retry-limit"):
        TokenizerJson(spec, "F")


@pytest.mark.parametrize("spec_of", SPECS)
def test_the_files_that_are_changed_load_as_they_are(spec_of: Callable[[], dict[str, Any]]) -> None:
    tokenizer = TokenizerJson(spec_of(), "F")
    assert b"".join(tokenizer.token_bytes[token_id] for token_id in tokenizer.encode_inside("a")) == b"a"


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_changed_in_a_file_it_loads_or_is_refused_with_its_name(seed: int) -> None:
    rng, num_refused = random.Random(seed), 0
    for _ in range(150):
        spec = copy.deepcopy(rng.choice(SPECS)())
        for _ in range(rng.randint(1, 2)):
            container, key = rng.choice([place for place in places(spec) if len(place[0]) < 50])
            odd = rng.choice((*ODD, {"type": "Sequence"}, ENDLESS))
            container[key] = json.loads(json.dumps(odd)) if isinstance(odd, dict | list) else odd
        try:
            TokenizerJson(spec, "F")
        except ModelError as error:
            assert str(error).startswith("F: ")
            num_refused += 1
    assert num_refused > 30


@pytest.mark.parametrize(
    "read",
    [
        TokenizerJson.encode_inside,
        TokenizerJson.encode_at_start,
        lambda tokenizer, text: tokenizer.encode_template(text, at_start=True),
        TokenizerJson.pieces,
    ],
)
def test_a_panic_over_a_text_is_an_error_of_the_request(read: Callable[[TokenizerJson, str], object]) -> None:
    spec = byte_level()
    spec["pre_tokenizer"]["pretokenizers"] = [{**SPLIT, "pattern": ENDLESS}, {**LEVEL, "use_regex": False}]
    tokenizer = TokenizerJson(spec, "tokenizer.json")
    with pytest.raises(RequestError, match=r"cannot read .*retry-limit.*send another one"):
        read(tokenizer, "a" * 60 + "c")
    assert read(tokenizer, "b")


def test_a_mark_that_the_tokenizer_cannot_read_is_no_token_of_it(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(
        json.dumps(of_pieces({"type": "WordLevel", "unk_token": "<none>", "vocab": {"a": 0, "▁": 1, "▁a": 2}}))
    )
    tokenizer = Tokenizer.from_folder(tmp_path)
    with pytest.raises(RequestError, match="cannot read this text"):
        tokenizer.encode("<think>")
    assert not thinks(tokenizer, "auto")
