"""Mistral's `tekken.json` as a `tokenizer.json`: byte strings in the order in which they are merged.

::

    special tokens      0 … default_num_special_tokens - 1       <unk>, <s>, </s>, [INST] …
    byte strings        from there on, by rank                   a pair is merged whose string has the lowest rank

A file has more strings than the model has tokens; those beyond `default_vocab_size` are left out. Knows no files. Cost:
two seconds for 131,072 tokens.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from ...errors import ModelError
from ..models.json_file import Fields
from .token_pieces import byte_alphabet

MOST_TOKENS = 1 << 20
# of files that name none
SPECIAL = (
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]"),
    *("[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]"),
    *("[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"),
)
NAMES = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


def tekken_spec(file: Fields) -> dict[str, Any]:
    """The object of a `tokenizer.json`.

    Raises:
        ModelError: an entry is missing or odd.
    """
    config = file.section("config")
    num_special = config.integer("default_num_special_tokens", at_most=MOST_TOKENS)
    num_strings = config.integer("default_vocab_size", at_most=MOST_TOKENS) - num_special
    strings, special = _strings(file, num_strings), _special(file, num_special)
    spelling = {byte: character for character, byte in byte_alphabet().items()}
    texts = ["".join(spelling[byte] for byte in string) for string in strings]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": config.text("pattern")}, "behavior": "Isolated", "invert": False}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    start = {"SpecialToken": {"id": special[1], "type_id": 0}}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": index, "content": text, "special": True, **flags} for index, text in enumerate(special)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [start, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [start, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {special[1]: {"id": special[1], "ids": [1], "tokens": [special[1]]}},
        },
        "decoder": {**byte_level, "use_regex": True},
        "model": {
            "type": "BPE",
            "ignore_merges": True,
            "vocab": {text: index for index, text in enumerate([*special, *texts])},
            "merges": _merges(texts),
        },
    }


def _strings(file: Fields, count: int) -> list[bytes]:
    entries = file.values.get("vocab")
    if not isinstance(entries, list) or not 256 <= count <= len(entries):
        raise file.odd("vocab", f"at least {max(count, 256)} entries, of which 256 are bytes")
    try:
        strings = [base64.b64decode(entry["token_bytes"], validate=True) for entry in entries[:count]]
        in_order = all(entry["rank"] == rank for rank, entry in enumerate(entries[:count]))
    except (TypeError, KeyError, binascii.Error, ValueError):
        raise file.odd("vocab", "entries with rank and token_bytes, in base64") from None
    if not in_order or len(set(strings)) < count or not all(strings):
        raise file.odd("vocab", "different strings of bytes in the order of their ranks")
    return strings


def _special(file: Fields, count: int) -> list[str]:
    """Texts of the first ids; those that have none are called by their number."""
    texts = [f"<SPECIAL_{index}>" for index in range(count)]
    entries = file.values.get("special_tokens")
    named = [{"rank": rank, "token_str": text} for rank, text in enumerate(SPECIAL)] if entries is None else entries
    if not isinstance(named, list):
        raise file.odd("special_tokens", "a list")
    for entry in named:
        found = Fields(entry, f"{file.place}: special_tokens") if isinstance(entry, dict) else file
        rank, text = found.integer("rank", at_least=0), found.text("token_str")
        if rank >= count:
            raise ModelError(f"{found.place}: rank: expected less than {count}, found {rank}")
        texts[rank] = text
    if len(set(texts)) < count or count < 2:
        raise file.odd("special_tokens", "different texts, of which the second begins a sequence")
    return texts


def _merges(texts: list[str]) -> list[list[str]]:
    """Every way to make a string of two others, by its rank, and then by theirs."""
    ranks, found = {text: rank for rank, text in enumerate(texts)}, []
    for text in texts:
        cuts = [(text[:at], text[at:]) for at in range(1, len(text))]
        known = [cut for cut in cuts if cut[0] in ranks and cut[1] in ranks]
        found += sorted(known, key=lambda cut: (ranks[cut[0]], ranks[cut[1]]))
    return [list(cut) for cut in found]
