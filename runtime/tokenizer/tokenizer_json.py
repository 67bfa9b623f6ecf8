"""A Hugging Face `tokenizer.json`: byte-level BPE (GPT-2's alphabet) or sentencepiece-like with ▁ and byte fallback.

Three views of one file, each made when it is first needed: `inside` (no prefix space, special tokens stay text),
`start` (as the file says, special tokens stay text), `template` (as the file says, special tokens become ids).
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...errors import ModelError, PhloemError, RequestError
from .token_pieces import SPACE, byte_alphabet, byte_level_bytes, byte_of_piece, looks_like_control

if TYPE_CHECKING:
    import tokenizers

MAX_TOKENS = 1 << 24  # ten times the largest vocabulary; a larger id is a broken file


class TokenizerJson:
    """Encodes with a `tokenizer.json`; same face as `SentencePieceModel`.

    Attributes:
        token_bytes: bytes of every token, b"" for special ones and for ids without a token.
        special_ids: text of every special token → id.
        added_ids: text of the other added tokens, which are found in any text → id.
        start_ids, end_ids: what the file's post-processor puts before a text (bos, usually), and after it.
    """

    def __init__(self, spec: dict[str, Any], place: object) -> None:
        """spec: the file's object; place: where it is from, for messages.

        Raises:
            ModelError: broken, of a kind whose tokens are not byte strings, or no tokenizer at all.
        """
        self._place = place
        self._spec = spec
        with _raising(self._unreadable):
            self._read()

    def _read(self) -> None:
        for token in self._added():
            token["special"] = token.get("special") is True or looks_like_control(token["content"])
        inside_spec = _without_prefix_space(self._spec)
        changed = ("pre_tokenizer", "normalizer")
        self._has_prefix_space = any(inside_spec[key] != self._spec.get(key) for key in changed)
        self._inside = self._build(inside_spec, text_only=True)
        self.special_ids: dict[str, int] = {t["content"]: t["id"] for t in self._added() if t["special"]}
        self.added_ids: dict[str, int] = {t["content"]: t["id"] for t in self._added() if not t["special"]}
        self._special_pattern = re.compile("|".join(map(re.escape, self.special_ids)) or "(?!)")
        self.token_bytes = self._read_token_bytes()
        with_specials = self._template.encode("a", add_special_tokens=True)
        self.start_ids: list[int] = _leading(with_specials.ids, with_specials.special_tokens_mask)
        self.end_ids = _leading(with_specials.ids[::-1], with_specials.special_tokens_mask[::-1])[::-1]

    def make_exact(self, texts: Collection[str]) -> None:
        """Makes the added tokens of these texts of nothing else, whatever looks like one when normalised.

        Where the normaliser puts a space before a text it changes nothing else, and tokens stay as the file has them.
        """
        if any(part.get("type") == "Prepend" for part in _parts(self._spec, "normalizer")):
            return
        changed = [t for t in self._added() if t.get("normalized", not t["special"]) and t["content"] in texts]
        if not changed or not self._spec.get("normalizer"):
            return
        for token in changed:
            token["normalized"] = False
        self._inside = self._build(_without_prefix_space(self._spec), text_only=True)
        for view in ("_start", "_template"):
            self.__dict__.pop(view, None)

    def encode_inside(self, text: str) -> list[int]:
        """`text` as it is tokenised in the middle of a text; special tokens in it stay text."""
        return self._encode(self._inside, text)

    def encode_at_start(self, text: str) -> list[int]:
        """`text` as the beginning of a sequence: with the prefix space that the file asks for, without bos."""
        return self._encode(self._start, text)

    def encode_template(self, text: str, *, at_start: bool) -> list[int]:
        """`text` with every special token in it as its id.

        Some files put their prefix space after special tokens too. A text that goes on where another one was cut
        (not `at_start`) gets it there as well, but not at its own beginning.
        """
        if at_start or not self._has_prefix_space:
            return self._encode(self._template, text)
        special = self._special_pattern.search(text)
        begin = special.start() if special else len(text)
        return self.encode_inside(text[:begin]) + self.encode_template(text[begin:], at_start=True)

    @cached_property
    def has_pattern(self) -> bool:
        """Whether a pattern cuts texts up before tokens are made; else at most single characters decide."""
        parts = _parts(self._spec, "pre_tokenizer")
        return any(
            part.get("type") not in ("Metaspace", "ByteLevel", "Digits", "WhitespaceSplit", "UnicodeScripts")
            or (part.get("type") == "ByteLevel" and part.get("use_regex", True))
            for part in parts
        )

    def pieces(self, text: str) -> list[int]:
        """Where `text` is cut before tokens are made: the ends, in characters."""
        pre_tokenizer = self._inside.pre_tokenizer
        assert pre_tokenizer is not None
        with _raising(_refusal(f"{self._place}: its pattern cannot read a text")):
            return [end for _, (_, end) in pre_tokenizer.pre_tokenize_str(text)]

    def _encode(self, view: tokenizers.Tokenizer, text: str) -> list[int]:
        with _raising(_refusal("the tokenizer cannot read this text")):
            ids: list[int] = view.encode(text, add_special_tokens=False).ids
        return ids

    @cached_property
    def _start(self) -> tokenizers.Tokenizer:
        return self._build(self._spec, text_only=True) if self._has_prefix_space else self._inside

    @cached_property
    def _template(self) -> tokenizers.Tokenizer:
        return self._build(self._spec, text_only=False)

    def _build(self, spec: dict[str, Any], *, text_only: bool) -> tokenizers.Tokenizer:
        import tokenizers  # here, since a checkpoint with a tokenizer.model does without

        with _raising(self._unreadable):
            tokenizer = tokenizers.Tokenizer.from_str(json.dumps(spec))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        tokenizer.encode_special_tokens = text_only
        return tokenizer

    def _unreadable(self, reason: str) -> ModelError:
        return ModelError(f"{self._place}: not a tokenizer ({reason}); download it again")

    def _added(self) -> list[dict[str, Any]]:
        tokens = self._spec.get("added_tokens") or []
        if not isinstance(tokens, list) or not all(
            isinstance(t, dict) and isinstance(t.get("content"), str) and isinstance(t.get("id"), int) for t in tokens
        ):
            raise ModelError(f"{self._place}: added_tokens: expected a list of objects with id and content")
        return tokens

    def _read_token_bytes(self) -> list[bytes]:
        vocabulary: dict[str, int] = self._inside.get_vocab(with_added_tokens=True)
        added = {token["content"]: token for token in self._added()}
        is_byte_level = "ByteLevel" in _types(self._spec, "pre_tokenizer", "decoder")
        if not is_byte_level and not _types(self._spec, "pre_tokenizer", "decoder") & {"Metaspace", "ByteFallback"}:
            raise ModelError(
                f"{self._place}: tokens are neither byte-level nor sentencepiece-like (▁), so that their exact bytes "
                "are unknown; this kind of tokenizer is not supported"
            )
        has_byte_fallback = bool((self._spec.get("model") or {}).get("byte_fallback"))
        unknown = (self._spec.get("model") or {}).get("unk_token")
        alphabet = byte_alphabet()
        size = max(vocabulary.values(), default=-1) + 1
        if size > MAX_TOKENS:
            raise ModelError(f"{self._place}: expected token ids from 0 to {MAX_TOKENS - 1}, found {size - 1}")
        token_bytes = [b""] * size
        for piece, token_id in vocabulary.items():
            if piece in added:  # its ▁ is decoded as others' are
                text = piece if is_byte_level else piece.replace(SPACE, " ")
                token_bytes[token_id] = b"" if added[piece]["special"] else text.encode()
            elif is_byte_level:
                token_bytes[token_id] = byte_level_bytes(piece, alphabet)
            elif piece != unknown:
                byte = byte_of_piece(piece) if has_byte_fallback else None
                token_bytes[token_id] = piece.replace(SPACE, " ").encode() if byte is None else byte
        return token_bytes


@contextmanager
def _raising(error_of: Callable[[str], PhloemError]) -> Iterator[None]:
    """Raises what `error_of` makes of a reason, instead of what the library raises (bare Exception, and panics, which
    are no Exception) and of what comes of reading a file whose parts are none that the library knows."""
    try:
        yield
    except PhloemError:
        raise
    except BaseException as error:
        name = type(error).__name__
        if not isinstance(error, Exception) and name != "PanicException":
            raise
        is_own = name not in ("Exception", "PanicException")  # Python's own errors say little without their names
        raise error_of(f"{name}: {error}"[:200] if is_own else str(error)[:200]) from None


def _refusal(what: str) -> Callable[[str], RequestError]:
    return lambda reason: RequestError(f"{what} ({reason}); send another one", param="prompt")


def _parts(spec: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """The component under `key`, a Sequence taken apart."""
    component = spec.get(key)
    if not isinstance(component, dict):
        return []
    inner = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}[key]
    parts = component.get(inner) if component.get("type") == "Sequence" else [component]
    return [part for part in parts or [] if isinstance(part, dict)]


def _types(spec: dict[str, Any], *keys: str) -> set[str]:
    return {str(part.get("type")) for key in keys for part in _parts(spec, key)}


def _without_prefix_space(spec: dict[str, Any]) -> dict[str, Any]:
    """The same tokenizer for a text that continues another one: nothing put before it."""
    changed = spec | {key: copy.deepcopy(spec.get(key)) for key in ("pre_tokenizer", "normalizer")}
    for part in _parts(changed, "pre_tokenizer"):
        if part.get("type") == "Metaspace":
            part["prepend_scheme"] = "never"
            part.pop("add_prefix_space", None)
        elif part.get("type") == "ByteLevel":
            part["add_prefix_space"] = False
    normalizer = changed.get("normalizer")
    if isinstance(normalizer, dict) and normalizer.get("type") == "Sequence":
        normalizer["normalizers"] = [p for p in normalizer["normalizers"] if p.get("type") != "Prepend"]
    elif isinstance(normalizer, dict) and normalizer.get("type") == "Prepend":
        changed["normalizer"] = None
    return changed


def _leading(ids: list[int], special_mask: list[int]) -> list[int]:
    """The special tokens before the first ordinary one."""
    count = special_mask.index(0) if 0 in special_mask else 0
    return ids[:count]
