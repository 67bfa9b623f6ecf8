"""Texts over which the `tokenizers` library panics: an error of the request, not of the process."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tokenizers import pre_tokenizers

from phloem.errors import RequestError
from phloem.runtime.tokenizer.tokenizer_json import TokenizerJson

TEXT = "a" * 60 + "c"


@pytest.mark.parametrize(
    "read",
    [
        TokenizerJson.encode_inside,
        TokenizerJson.encode_at_start,
        lambda tokenizer, text: tokenizer.encode_template(text, at_start=True),
        TokenizerJson.pieces,
    ],
)
def test_a_panic_is_an_error_of_the_request(read: Callable[[TokenizerJson, str], object]) -> None:
    split = {"type": "Split", "pattern": {"Regex": "(a|aa|aaa)+$"}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    vocabulary = {char: index for index, char in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    spec = {
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]},
        "decoder": level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }
    tokenizer = TokenizerJson(spec, "tokenizer.json")
    with pytest.raises(RequestError, match=r"cannot read .*retry-limit.*send another one"):
        read(tokenizer, TEXT)
    assert read(tokenizer, "b")
