"""A GGUF file's tokenizer: its keys as a `tokenizer.json`, or as a sentencepiece model, and what the file says besides.

::

    tokenizer.ggml.model    tokens are                                 built as
    gpt2                    byte-level BPE with merges, and            tokenizer.json
                            `tokenizer.ggml.pre`, how texts are cut
    gemma4                  pieces with merges, ▁, bytes               tokenizer.json
    llama                   pieces with scores, ▁, bytes               sentencepiece model (BPE)

How texts are cut is named in the file and defined elsewhere, so there is a table, and a name that is not in it is
refused: with the wrong pattern a model gets tokens that it has hardly ever seen. What a file does not say is taken as
most models of its kind have it: Qwen's texts are normalised (NFC), no space around a special token is swallowed.

Sources: llama.cpp's llama-vocab.cpp (which name means which pattern), sentencepiece's sentencepiece_model.proto.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import ModelError
from ..models.gguf.file import GgufFile
from ..models.gguf.special_ids import CONTROL, end_ids, token_id, token_types
from .chat_template import ChatTemplate
from .no_tokenizer import NoTokenizer
from .sentencepiece_model import SentencePieceModel
from .token_pieces import SPACE
from .tokenizer_json import TokenizerJson

_UNKNOWN, _USER_DEFINED, _UNUSED, _BYTE = 2, 4, 5, 6  # types of tokens, besides CONTROL
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_CL100K = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_TAIL}"
_QWEN2 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_TAIL}"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_WORD_TAIL = _TAIL.replace(r"[\r\n]*", r"[\r\n/]*", 1)


def _cased(contractions: str, digits: str, tail: str = _WORD_TAIL, *, but: str = "") -> str:
    """Words that end where the next capital letter begins, of letters but for those of a class."""
    upper, lower = (rf"(?:(?!{but}){letter})" if but else letter for letter in (_UPPER, _LOWER))
    words = [rf"[^\r\n\p{{L}}\p{{N}}]?{upper}{a}{lower}{b}{contractions}" for a, b in (("*", "+"), ("+", "*"))]
    return "|".join([*words, digits, tail])


@dataclass(frozen=True, slots=True)
class Cut:
    """How texts are cut before tokens are made.

    Attributes:
        pattern: of a piece; "": GPT-2's own.
        first: patterns of pieces that stand alone before the pattern looks, in this order.
        single_digits: digits do.
        ignores_merges: a piece that is a token is that token, whatever merges would make of it.
        adds_bos: what an absent `add_bos_token` means.
        is_normalised: to NFC.
    """

    pattern: str = ""
    first: tuple[str, ...] = ()
    single_digits: bool = False
    ignores_merges: bool = False
    adds_bos: bool = False
    is_normalised: bool = False


_GPT_2, _SMOLLM = Cut(), Cut(single_digits=True)
_LLAMA_3 = Cut(_CL100K, ignores_merges=True, adds_bos=True)
_QWEN = Cut(_QWEN2, is_normalised=True)
_GPT_4O = Cut(_cased(f"{_CONTRACTIONS}?", r"\p{N}{1,3}"))
_HAN = "[一-龥ࠀ-一가-퟿]+"
_QWEN35 = _QWEN2.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")
_KIMI = r"\p{Han}+|" + _cased(f"{_CONTRACTIONS}?", r"\p{N}{1,3}", _TAIL, but=r"\p{Han}")
_SIGN = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"
_DEEPSEEK_3 = Cut(
    rf"{_SIGN}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+| ?[\p{{P}}\p{{S}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    first=(r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+"),
)
_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CUTS: dict[str, Cut] = {
    "gpt-2": _GPT_2,
    "phi-2": _GPT_2,
    "olmo": _GPT_2,
    "exaone4": _GPT_2,
    "granite-docling": _GPT_2,
    "smollm": _SMOLLM,
    "starcoder": _SMOLLM,
    "refact": _SMOLLM,
    "falcon": Cut("[0-9]{3}", first=(r"[\p{P}$+<=>^~|`]+", _WORDS)),
    "command-r": Cut(single_digits=True, is_normalised=True),
    "llama-bpe": _LLAMA_3,
    "llama3": _LLAMA_3,
    "llama-v3": _LLAMA_3,
    "falcon3": _LLAMA_3,
    "falcon-h1": _LLAMA_3,
    "pixtral": _LLAMA_3,
    "lfm2": _LLAMA_3,
    "dbrx": Cut(_CL100K),  # Phi-4
    "smaug-bpe": Cut(_CL100K),
    "glm4": Cut(_CL100K),
    "chatglm-bpe": Cut(_CL100K),
    "qwen2": _QWEN,
    "qwen35": Cut(_QWEN35, is_normalised=True),
    "deepseek-r1-qwen": _QWEN,
    "stablelm2": Cut(_QWEN2),
    "hunyuan": Cut(_QWEN2),
    "seed-coder": Cut(_QWEN2.replace(r"\p{N}]+[\r\n]*", r"\p{N}\r\n]+")),
    "deepseek-coder": Cut(r"\p{N}", first=(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _HAN)),
    "deepseek-v3": _DEEPSEEK_3,
    "hunyuan-dense": _DEEPSEEK_3,
    "kimi-k2": Cut(_KIMI),
    "gpt-4o": _GPT_4O,  # Phi-4-mini, gpt-oss
    "llama4": _GPT_4O,
    "minimax-m2": _GPT_4O,
    "tekken": Cut(_cased("", r"\p{N}"), ignores_merges=True, adds_bos=True),  # Mistral NeMo and later
}


def gguf_vocabulary(path: Path) -> dict[str, Any]:
    """What a `Tokenizer` is made of, by its parameters' names.

    Raises:
        ModelError: there is none, or it is broken, of another kind, or larger than the model's vocabulary.
    """
    file = GgufFile(path)
    fields = file.fields()
    embedding = file.tensors.get("token_embd.weight")
    if "tokenizer.ggml.tokens" not in file and embedding is not None:
        num_rows, nothing = embedding.shape[0], ChatTemplate(None, "", token_texts={}, special_texts=())
        others = {"vocab_size": num_rows, "eos_ids": (), "start_ids": (), "bos_id": -1, "chat_template": nothing}
        return {"backend": NoTokenizer(num_rows), **others}
    tokens = file.strings("tokenizer.ggml.tokens")
    kind = fields.text("tokenizer.ggml.model")
    if kind == "gpt2":
        cut = _cut(file)
        backend: SentencePieceModel | TokenizerJson = TokenizerJson(_byte_level(file, tokens, cut), str(path))
        adds_bos = cut.adds_bos
    elif kind == "gemma4":
        backend, adds_bos = TokenizerJson(_merged_pieces(file, tokens), str(path)), True
    elif kind == "llama":
        backend, adds_bos = SentencePieceModel(_sentencepiece(file, tokens), str(path), {}), True
    else:
        raise ModelError(f"{path}: tokenizer.ggml.model: {kind[:80]} is not supported; gpt2, gemma4 and llama are")
    vocab_size = len(tokens) if embedding is None else embedding.shape[0]
    if len(tokens) > vocab_size:
        raise ModelError(f"{path}: tokenizer.ggml.tokens: {len(tokens)} tokens, but token_embd has {vocab_size} rows")
    ids = {name: token_id(file, f"{key}_token_id") for name, key in _NAMES.items()}
    odd = next((name for name, found in ids.items() if found >= len(tokens)), None)
    if odd is not None:
        raise ModelError(f"{path}: tokenizer.ggml: {odd} {ids[odd]} is not among {len(tokens)} tokens")
    starts = ids["bos_token"] >= 0 and fields.boolean("tokenizer.ggml.add_bos_token", adds_bos)
    ends = ids["eos_token"] >= 0 and fields.boolean("tokenizer.ggml.add_eos_token", False)
    return {
        "backend": backend,
        "vocab_size": vocab_size,
        "eos_ids": end_ids(file),
        "start_ids": (ids["bos_token"],) if starts else (),
        "end_ids": (ids["eos_token"],) if ends else (),
        "bos_id": ids["bos_token"],
        "chat_template": ChatTemplate(
            fields.text("tokenizer.chat_template") if "tokenizer.chat_template" in fields else None,
            f"{path}: tokenizer.chat_template",
            token_texts={name: tokens[found] if found >= 0 else "" for name, found in ids.items()},
            special_texts=backend.special_ids,
            added_texts=backend.added_ids,
        ),
    }


_NAMES = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}


def _cut(file: GgufFile) -> Cut:
    name = file.fields().text("tokenizer.ggml.pre", "")
    if name not in CUTS:
        raise ModelError(
            f"{file.path}: tokenizer.ggml.pre: {name[:80] or 'nothing'}: how it cuts texts is not known here; known"
            f" are: {', '.join(CUTS)}"
        )
    return CUTS[name]


def _byte_level(file: GgufFile, tokens: list[str], cut: Cut) -> dict[str, Any]:
    """The object of a `tokenizer.json`."""
    parts: list[dict[str, Any]] = [{"type": "Digits", "individual_digits": True}] if cut.single_digits else []
    for pattern in (*cut.first, cut.pattern):
        if pattern:
            parts.append({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False})
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    parts.append({**byte_level, "use_regex": not cut.pattern})
    return {
        "version": "1.0",
        "added_tokens": _added(file, tokens),
        "normalizer": {"type": "NFC"} if cut.is_normalised else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": parts},
        "post_processor": None,
        "decoder": {**byte_level, "use_regex": True},
        "model": {"type": "BPE", "ignore_merges": cut.ignores_merges, **_vocab(file, tokens)},
    }


def _merged_pieces(file: GgufFile, tokens: list[str]) -> dict[str, Any]:
    """The object of a `tokenizer.json` of Gemma 4: sentencepiece's pieces, joined by merges and not by their scores."""
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    unknown = token_id(file, "unknown_token_id")
    return {
        "version": "1.0",
        "added_tokens": _added(file, tokens),
        "normalizer": spaces,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ],
        },
        "model": {
            "type": "BPE",
            "byte_fallback": True,
            "fuse_unk": True,
            "unk_token": tokens[unknown] if 0 <= unknown < len(tokens) else None,
            **_vocab(file, tokens),
        },
    }


def _added(file: GgufFile, tokens: list[str]) -> list[dict[str, Any]]:
    """Control tokens, as which those for unknown texts count, and those that the model's maker added."""
    return [
        {"id": index, "content": text, "special": kind != _USER_DEFINED, "normalized": False}
        | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
        for index, (text, kind) in enumerate(zip(tokens, token_types(file, len(tokens)), strict=True))
        if kind in (CONTROL, _UNKNOWN, _USER_DEFINED)
    ]


def _vocab(file: GgufFile, tokens: list[str]) -> dict[str, Any]:
    """Tokens that are in use, and merges. Raises ModelError: a merge is not of two tokens."""
    merges = [merge.split(" ") for merge in file.strings("tokenizer.ggml.merges")]
    odd = next((index for index, merge in enumerate(merges) if len(merge) != 2), None)
    if odd is not None:
        raise ModelError(
            f"{file.path}: tokenizer.ggml.merges: entry {odd} is not two tokens: {' '.join(merges[odd])[:80]!r}"
        )
    types = token_types(file, len(tokens))
    return {"vocab": {text: i for i, text in enumerate(tokens) if types[i] != _UNUSED}, "merges": merges}


def _sentencepiece(file: GgufFile, tokens: list[str]) -> bytes:
    """A sentencepiece ModelProto: pieces (1), trainer_spec (2), normalizer_spec (3).

    It has exactly one unknown piece. In llama.cpp any number of tokens may be of that type; one of them, or another
    one, is what stands for unknown text (`unknown_token_id`, or else the first token), and the others come out of
    templates alone, as control tokens do. There a token may also be empty, and of two that are equal the last counts.
    """
    fields = file.fields()
    unknown = max(token_id(file, "unknown_token_id"), 0)
    types = [CONTROL if kind == _UNKNOWN else kind for kind in token_types(file, len(tokens))]
    last = {text: index for index, text in enumerate(tokens)}
    for index, text in enumerate(tokens):
        if not text or last[text] != index:
            types[index] = _UNUSED
    types = [_UNKNOWN if index == unknown else kind for index, kind in enumerate(types)]
    tokens = [text if text and last[text] == index else f"\ufdd1{index}" for index, text in enumerate(tokens)]
    scores = file.numbers("tokenizer.ggml.scores", len(tokens)).tolist()
    pieces = [
        _message(1, _message(1, text.encode()) + b"\x15" + struct.pack("<f", score) + _varint(3, kind))
        for text, score, kind in zip(tokens, scores, types, strict=True)
    ]
    trainer = _varint(3, 2) + _varint(35, _BYTE in types)  # BPE, bytes stand in for what has no piece
    ids = {45: unknown, 46: token_id(file, "bos_token_id"), 47: token_id(file, "eos_token_id")}
    for number, found in ids.items():
        if 0 <= found < len(tokens):
            trainer += _message(number, tokens[found].encode())
    if "tokenizer.ggml.precompiled_charsmap" in file:
        raise ModelError(f"{file.path}: tokenizer.ggml.precompiled_charsmap: normalised texts are not supported here")
    normalizer = _message(1, b"identity")
    normalizer += _varint(3, fields.boolean("tokenizer.ggml.add_space_prefix", True))
    normalizer += _varint(4, fields.boolean("tokenizer.ggml.remove_extra_whitespaces", False)) + _varint(5, True)
    return b"".join([*pieces, _message(2, trainer), _message(3, normalizer)])


def _message(number: int, content: bytes) -> bytes:
    return _number(number << 3 | 2) + _number(len(content)) + content


def _varint(number: int, value: int) -> bytes:
    return _number(number << 3) + _number(value)


def _number(value: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])
