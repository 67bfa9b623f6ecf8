"""Vocabularies from the tokenizers of other libraries: which bytes each token id stands for.

Knows files and objects of `tokenizers`, `transformers`, `sentencepiece` and `tiktoken`; it knows no constraint. Cost:
about 0.2 s for 131,072 tokens, once for each tokenizer.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ..errors import ConfigError, ModelError
from ..fsm import Vocabulary as Tokens
from ..runtime.tokenizer.sentencepiece_model import SentencePieceModel
from ..runtime.tokenizer.tokenizer_json import TokenizerJson
from .arguments import content_of, number

MAX_SIZE = 1 << 24  # tokens of one model; the largest vocabularies have some 2**18


class BackendTokenizer(Protocol):
    """What is read of a `tokenizers.Tokenizer`."""

    def to_str(self) -> str: ...


class SentencePiece(Protocol):
    """What is read of a `sentencepiece.SentencePieceProcessor`."""

    def serialized_model_proto(self) -> bytes: ...


class Encoding(Protocol):
    """What is read of a `tiktoken.Encoding`."""

    @property
    def n_vocab(self) -> int: ...

    @property
    def eot_token(self) -> int: ...

    @property
    def special_tokens_set(self) -> set[str]: ...

    _pat_str: str

    def token_byte_values(self) -> list[bytes]: ...

    def encode_single_token(self, text_or_bytes: str | bytes) -> int: ...

    def encode_ordinary(self, text: str) -> list[int]: ...


class Vocabulary(Tokens):
    """The tokens of one model, by their bytes; see `phloem.fsm.Vocabulary` for the constructor.

    In all of these: eos_ids: the ids that end a text, where the tokenizer does not say or should be overruled. size:
    width of the model's logits, which may be more than there are tokens.

    Raises:
        ModelError: tokens that are no byte strings, or no end-of-sequence token.
        ConfigError: a tokenizer of another library.
    """

    @classmethod
    def from_tokenizers(
        cls, tokenizer: BackendTokenizer, *, eos_ids: Collection[int], size: int | None = None
    ) -> Vocabulary:
        """Of Hugging Face's `tokenizers`: byte-level BPE, or ▁ with byte fallback."""
        _check(tokenizer, "to_str", "a tokenizer of `tokenizers`")
        backend = TokenizerJson(json.loads(tokenizer.to_str()), "the tokenizer")
        pieces = backend.pieces if backend.has_pattern else None
        return cls(_padded(backend.token_bytes, size), eos_ids, backend.encode_inside, pieces, backend.special_ids)

    @classmethod
    def from_transformers(
        cls, tokenizer: Any, *, eos_ids: Collection[int] | None = None, size: int | None = None
    ) -> Vocabulary:
        """Of a tokenizer of transformers, fast or with a sentencepiece file."""
        _check(tokenizer, "eos_token_id", "a tokenizer of transformers, as AutoTokenizer.from_pretrained makes it")
        ids = _eos_of(tokenizer) if eos_ids is None else eos_ids
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is not None:
            return cls.from_tokenizers(backend, eos_ids=ids, size=size)
        file = getattr(tokenizer, "vocab_file", None)
        if isinstance(file, str) and Path(file).suffix == ".model":
            added = {i: str(token) for i, token in getattr(tokenizer, "added_tokens_decoder", {}).items()}
            return cls._of_model(SentencePieceModel(Path(file).read_bytes(), file, added), ids, size)
        name = type(tokenizer).__name__
        raise ModelError(f"{name}: neither a fast tokenizer nor one with a sentencepiece file; use AutoTokenizer")

    @classmethod
    def from_sentencepiece(
        cls,
        model: SentencePiece | str | Path,
        *,
        eos_ids: Collection[int] | None = None,
        size: int | None = None,
    ) -> Vocabulary:
        """Of a `tokenizer.model`, or of a processor that has read one."""
        if isinstance(model, str | Path):
            content, place = content_of(model), str(model)
        else:
            _check(model, "serialized_model_proto", "a path, or a processor of sentencepiece")
            content, place = model.serialized_model_proto(), "the sentencepiece model"
        found = SentencePieceModel(content, place, {})
        ids = eos_ids if eos_ids is not None else [found.eos_id] if found.eos_id >= 0 else []
        return cls._of_model(found, ids, size)

    @classmethod
    def from_tiktoken(
        cls, encoding: Encoding, *, eos_ids: Collection[int] | None = None, size: int | None = None
    ) -> Vocabulary:
        """Of tiktoken. Without `eos_ids` its `eot_token` ends a text."""
        _check(encoding, "token_byte_values", "an encoding of tiktoken, as tiktoken.get_encoding makes it")
        token_bytes = [b""] * encoding.n_vocab
        special = {text: encoding.encode_single_token(text) for text in encoding.special_tokens_set}
        for spelling in encoding.token_byte_values():
            token_bytes[encoding.encode_single_token(spelling)] = spelling
        for token_id in special.values():
            token_bytes[token_id] = b""
        ids = [encoding.eot_token] if eos_ids is None else eos_ids
        pieces = _pieces_of(encoding._pat_str)
        return cls(_padded(token_bytes, size), ids, encoding.encode_ordinary, pieces, special)

    @classmethod
    def from_tekken(
        cls, path: str | Path, *, eos_ids: Collection[int] | None = None, size: int | None = None
    ) -> Vocabulary:
        """Of Mistral's `tekken.json`. Drafts need tiktoken, by which its tokens are made; masks do not."""
        content = content_of(path)
        try:
            spec = json.loads(content)
            config, entries = spec["config"], spec["vocab"]
            num_special, num_tokens = config["default_num_special_tokens"], config["default_vocab_size"]
            ranks = {base64.b64decode(entry["token_bytes"]): entry["rank"] for entry in entries}
            ranks = {spelling: rank for spelling, rank in ranks.items() if rank < num_tokens - num_special}
            named = {entry["token_str"]: entry["rank"] for entry in spec.get("special_tokens") or []}
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(
                f"{path}: not a tekken file ({type(error).__name__}: {error}); download it again"
            ) from None
        token_bytes = [b""] * num_tokens
        for spelling, rank in ranks.items():
            token_bytes[num_special + rank] = spelling
        ids = [named[text] for text in ("</s>",) if text in named] if eos_ids is None else eos_ids
        encode = _tekken_encoder(config["pattern"], ranks, num_special)
        return cls(_padded(token_bytes, size), ids, encode, _pieces_of(config["pattern"]), named)

    @classmethod
    def from_folder(cls, path: str | Path, *, eos_ids: Collection[int] | None = None) -> Vocabulary:
        """Of a checkpoint folder, or a GGUF file: as phloem's own engine reads it."""
        from ..runtime.tokenizer.tokenizer import Tokenizer

        if not isinstance(path, str | Path):
            raise ConfigError(f"path: give the path of a folder or a GGUF file, not {type(path).__name__}")
        tokenizer = Tokenizer.from_folder(path)
        found, token_bytes = tokenizer.vocabulary(), map(tokenizer.token_bytes, range(tokenizer.vocab_size))
        ids = found.eos_ids if eos_ids is None else eos_ids
        return cls(list(token_bytes), ids, found.encode, found.pieces, tokenizer.special_ids)

    from_gguf = from_folder

    @classmethod
    def _of_model(cls, model: SentencePieceModel, eos_ids: Collection[int], size: int | None) -> Vocabulary:
        return cls(_padded(model.token_bytes, size), eos_ids, model.encode_inside, None, model.special_ids)


def _check(tokenizer: object, member: str, expected: str) -> None:
    if not hasattr(tokenizer, member):
        raise ConfigError(f"expected {expected}, got {type(tokenizer).__name__}")


def _padded(token_bytes: Sequence[bytes], size: int | None) -> Sequence[bytes]:
    if size is None:
        return token_bytes
    size = number("size", size, "a number of tokens")
    if size < len(token_bytes):
        raise ConfigError(f"size: {size} is less than the {len(token_bytes)} tokens of the tokenizer")
    if size > MAX_SIZE:
        raise ConfigError(f"size: {size} is more than any model's; at most {MAX_SIZE} tokens are taken")
    return [*token_bytes, *[b""] * (size - len(token_bytes))]


def _eos_of(tokenizer: Any) -> list[int]:
    found = tokenizer.eos_token_id
    ids = found if isinstance(found, list) else [found]
    if None in ids:
        raise ModelError("the tokenizer names no end-of-sequence token; give eos_ids")
    return ids


def _pieces_of(pattern: str) -> Callable[[str], Sequence[int]] | None:
    """Where a pattern cuts a text; None without the `regex` package, in whose dialect it is."""
    try:
        import regex
    except ImportError:
        return None
    cuts = regex.compile(pattern)
    return lambda text: [match.end() for match in cuts.finditer(text)]


def _tekken_encoder(pattern: str, ranks: Mapping[bytes, int], num_special: int) -> Callable[[str], list[int]] | None:
    try:
        import tiktoken
    except ImportError:
        return None
    encoding = tiktoken.Encoding("tekken", pat_str=pattern, mergeable_ranks=dict(ranks), special_tokens={})
    return lambda text: [num_special + rank for rank in encoding.encode_ordinary(text)]
