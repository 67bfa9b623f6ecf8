"""Vocabularies of real models for the benchmarks, from the files they come in.

`read_vocabulary(name)` takes "nano" (the bundled model), the folder of a checkpoint, a sentencepiece model
(`tokenizer.model`, also with an ending such as `.v1`) or a tekken file (mistral-common's `tekken_240911.json`;
needs tiktoken and regex for drafts).
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import phloem as ph
from phloem.fsm import Vocabulary
from phloem.runtime.tokenizer.tokenizer import Tokenizer

NANO = Path(ph.__file__).parent / "runtime" / "assets" / "nano"


def read_vocabulary(name: str) -> Vocabulary:
    """The vocabulary of a file or folder, with its tokeniser where that is installed."""
    path = NANO if name == "nano" else Path(name)
    if path.is_dir():
        return Tokenizer.from_folder(path).vocabulary()
    return _tekken(path) if path.suffix == ".json" else _sentencepiece(path)


def _tekken(path: Path) -> Vocabulary:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    config = content["config"]
    size, num_special = config["default_vocab_size"], config["default_num_special_tokens"]
    ranks = {base64.b64decode(entry["token_bytes"]): entry["rank"] for entry in content["vocab"][: size - num_special]}
    tokens = [b""] * size
    for token, rank in ranks.items():
        tokens[num_special + rank] = token
    try:
        import regex
        import tiktoken
    except ImportError:
        return Vocabulary(tokens, [2])
    coding = tiktoken.Encoding("tekken", pat_str=config["pattern"], mergeable_ranks=ranks, special_tokens={})
    pattern = regex.compile(config["pattern"])
    return Vocabulary(
        tokens,
        [2],
        lambda text: [num_special + i for i in coding.encode_ordinary(text)],
        lambda text: [piece.end() for piece in pattern.finditer(text)],
    )


def _sentencepiece(path: Path) -> Vocabulary:
    import sentencepiece

    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    tokens = []
    for i in range(model.vocab_size()):
        piece = model.id_to_piece(i)
        if model.is_control(i) or model.is_unknown(i) or model.is_unused(i):
            tokens.append(b"")
        else:
            tokens.append(bytes([int(piece[3:5], 16)]) if model.is_byte(i) else piece.replace("▁", " ").encode())
    newline = model.encode("\n")  # a text that the dummy prefix cannot merge with
    prefix = len(newline)

    def encode(text: str) -> list[int]:
        ids: list[int] = model.encode("\n" + text)
        return ids[prefix:]

    return Vocabulary(tokens, [model.eos_id()], encode)
