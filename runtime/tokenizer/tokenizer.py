"""Text ↔ token ids of one checkpoint, with the exact bytes of every token.

Three ways in, because a text means different tokens in different places:

* `encode(text)`: as in the middle of a text. Exact inverse of `decode` (up to the normaliser that some models have,
  such as NFC): no bos, no prefix space. Special-token text stays text.
* `encode_prompt(text)`: as the beginning of a sequence, with bos and prefix space where the model wants them.
  Special-token text stays text. `encode_whole(text)` also has the tokens that the model wants at the end, as
  transformers' `tokenizer(text)` has them: for a text that is read, and not continued.
* `encode(text, special=True)`: a rendered template; special-token text becomes its id. Never for user input.

One way out: a token is a byte string, and text is the bytes of its tokens. Special tokens have none. Knows no model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from ...errors import ModelError, RequestError
from ..constrain.spec import Whitespace
from ..models.gguf.file import is_gguf
from ..models.json_file import Fields, read_bytes, read_json_object
from .chat_message import unused_markers
from .chat_template import ChatTemplate, token_text
from .detokenizer import Detokenizer
from .no_tokenizer import NoTokenizer, refuse_text
from .sentencepiece_model import SentencePieceModel
from .tekken import NAMES, tekken_spec
from .tokenizer_json import MAX_TOKENS, TokenizerJson

if TYPE_CHECKING:
    from ...fsm.vocabulary.vocabulary import Vocabulary

Backend = SentencePieceModel | TokenizerJson | NoTokenizer


class Tokenizer:
    """A checkpoint's tokenizer. Thread-safe; all methods are read-only.

    Attributes:
        has_text: whether there is one; without, token ids go in and come out, and text is refused.
        vocab_size: rows of the model's embedding, or the number of ids where the folder has no config.json.
        eos_ids: tokens that end a generation, from all files that name one.
        bos_id: -1: there is none.
        special_ids: text of every special token → id.
        control_ids: text of every token that no message makes → id: special ones, and those that the template writes.
        chat_template: the checkpoint's own, or ChatML (`chat_template.is_default`).
        json_whitespace: how the model writes JSON: what `generation_config.json` says under that name, or "spaced", as
            json.dumps, and so most text that models learn from, has it.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        vocab_size: int,
        eos_ids: Iterable[int],
        start_ids: Sequence[int],
        end_ids: Sequence[int] = (),
        bos_id: int,
        chat_template: ChatTemplate,
        json_whitespace: Whitespace = "spaced",
    ) -> None:
        """start_ids: what `encode_prompt` puts before every text; end_ids: what `encode_whole` puts after it."""
        missing = vocab_size - len(backend.token_bytes)
        self._backend = backend
        self.has_text = not isinstance(backend, NoTokenizer)
        self._token_bytes = backend.token_bytes + [b""] * missing
        self._start_ids = tuple(start_ids)
        self._end_ids = tuple(end_ids)
        self.vocab_size = vocab_size
        self.eos_ids = tuple(sorted(set(eos_ids)))
        self.bos_id = bos_id
        self.chat_template = chat_template
        self.json_whitespace: Whitespace = json_whitespace
        self.special_ids: Mapping[str, int] = backend.special_ids
        backend.make_exact(chat_template.control_texts)
        added = {text: backend.added_ids[text] for text in chat_template.control_texts if text in backend.added_ids}
        self.control_ids: Mapping[str, int] = {**backend.special_ids, **added}
        self._special_texts = {token_id: text for text, token_id in backend.special_ids.items()}

    @staticmethod
    def from_folder(path: str | Path) -> Tokenizer:
        """Reads `tokenizer.json`, or else `tokenizer.model`, or `tekken.json`, and the files next to it that name
        special tokens.

        Where there is neither, but a `config.json` that says how many tokens there are, `has_text` is False.

        A GGUF file instead of a folder has all of that inside.

        Raises:
            ModelError: no tokenizer, one that is broken or of an unsupported kind, or one with more tokens than
                the model's vocabulary.
        """
        folder = Path(path)
        if is_gguf(folder):
            from .gguf_vocabulary import gguf_vocabulary

            return Tokenizer(**gguf_vocabulary(folder))
        files = {name: _read_if_there(folder / name) for name in ("config.json", "generation_config.json")}
        settings = _read_if_there(folder / "tokenizer_config.json")
        if (folder / "tokenizer.json").exists():
            backend: Backend = TokenizerJson(read_json_object(folder / "tokenizer.json"), folder / "tokenizer.json")
        elif (folder / "tokenizer.model").exists():
            content = read_bytes(folder / "tokenizer.model")
            backend = SentencePieceModel(content, folder / "tokenizer.model", _added_tokens(folder, settings))
        elif (folder / "tekken.json").exists():
            spec = tekken_spec(Fields(read_json_object(folder / "tekken.json"), str(folder / "tekken.json")))
            backend = TokenizerJson(spec, folder / "tekken.json")
            settings = Fields({**NAMES, **settings.values}, settings.place)
        elif "vocab_size" in files["config.json"]:
            backend = NoTokenizer(files["config.json"].integer("vocab_size", at_most=MAX_TOKENS))
        else:
            raise ModelError(f"{folder}: has neither tokenizer.json nor tokenizer.model nor tekken.json")
        ids = backend.special_ids
        bos_id = _named_id(settings, "bos_token", ids, getattr(backend, "bos_id", -1))
        eos_ids = {_named_id(settings, "eos_token", ids, getattr(backend, "eos_id", -1))}
        eos_ids |= {token_id for fields in files.values() for token_id in fields.ids("eos_token_id")}
        num_ids = len(backend.token_bytes)
        vocab_size = files["config.json"].integer("vocab_size", num_ids, at_most=MAX_TOKENS)
        if num_ids > vocab_size:
            raise ModelError(
                f"{folder}: the tokenizer has {num_ids} tokens, but config.json says vocab_size {vocab_size}"
            )
        return Tokenizer(
            backend,
            vocab_size=vocab_size,
            eos_ids=(token_id for token_id in eos_ids if 0 <= token_id < vocab_size),
            start_ids=_start_ids(backend, settings, bos_id),
            end_ids=_end_ids(backend, settings),
            bos_id=bos_id,
            chat_template=ChatTemplate.from_folder(folder, ids, backend.added_ids),
            json_whitespace=_json_whitespace(files["generation_config.json"]),
        )

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids of `text` as a continuation. special=True: special-token text becomes ids (templates only).

        Raises:
            RequestError: the text cannot be UTF-8 (a lone surrogate).
        """
        _check_utf8(text)
        return self._backend.encode_template(text, at_start=True) if special else self._backend.encode_inside(text)

    def encode_message(self, text: str) -> list[int]:
        """As `encode`, of what a user wrote in a chat: no token that the chat template writes comes out of it."""
        cut, _ = unused_markers([text])
        return self.encode_pieces(self.chat_template.cut(text, cut).split(cut), at_start=False)

    def encode_prompt(self, text: str) -> list[int]:
        """Token ids of `text` as the beginning of a sequence: bos and prefix space where the model wants them."""
        _check_utf8(text)
        return [*self._start_ids, *self._backend.encode_at_start(text)]

    def encode_whole(self, text: str) -> list[int]:
        """Token ids of `text` as a whole sequence: `encode_prompt`, then the end tokens that the model wants."""
        return [*self.encode_prompt(text), *self._end_ids]

    def encode_formatted(self, text: str, *, adds_start: bool = True) -> list[int]:
        """Token ids of a prompt that was formatted by hand: special-token text becomes ids.

        `adds_start`: with bos in front where the model wants it and the text does not begin with it. For text that is
        trusted as a whole; what users typed does not belong in it.
        """
        ids = self.encode(text, special=True)
        start = list(self._start_ids) if adds_start else []
        return ids if ids[: len(start)] == start else [*start, *ids]

    def encode_pieces(self, pieces: Iterable[str], *, at_start: bool = True) -> list[int]:
        """A rendered template cut into pieces: special tokens count within a piece, never across a cut.

        `at_start`: the first piece begins the sequence.

        Raises:
            RequestError: there is no tokenizer, or a text cannot be UTF-8.
        """
        if not self.has_text:
            refuse_text("messages", "send the prompt as token ids, not as a chat")
        ids: list[int] = []
        for index, piece in enumerate(pieces):
            _check_utf8(piece)
            ids += self._backend.encode_template(piece, at_start=at_start and index == 0)
        return ids

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        continue_final: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Token ids of a conversation; see `ChatTemplate.render` for arguments and errors."""
        pieces = self.chat_template.render(
            messages,
            add_generation_prompt=add_generation_prompt,
            continue_final=continue_final,
            tools=tools,
            options=options,
        )
        return self.encode_pieces(pieces)

    def decode(self, token_ids: Iterable[int]) -> str:
        """The text of `token_ids`: their bytes as UTF-8, ill-formed ones as U+FFFD; special tokens are silent."""
        return b"".join(self._token_bytes[token_id] for token_id in token_ids).decode("utf-8", "replace")

    def show(self, token_ids: Iterable[int]) -> str:
        """The text of `token_ids` for people: special tokens by their names."""
        names, token_bytes = self._special_texts, self._token_bytes
        parts = (names[one].encode() if one in names else token_bytes[one] for one in token_ids)
        return b"".join(parts).decode("utf-8", "replace")

    @cached_property
    def special_pattern(self) -> re.Pattern[str]:
        """Finds the texts of special tokens, the longest first."""
        return re.compile("|".join(map(re.escape, sorted(self.special_ids, key=len, reverse=True))) or "(?!)")

    def token_bytes(self, token_id: int) -> bytes:
        """The exact bytes of one token; b"" for special and unused ones."""
        return self._token_bytes[token_id]

    def token_text(self, token_id: int) -> str:
        """One token for people and logprobs: special tokens by their name, ill-formed bytes as U+FFFD; without a
        tokenizer `token_id:` and its number."""
        if not self.has_text:
            return f"token_id:{token_id}"
        special = self._special_texts.get(token_id)
        return self._token_bytes[token_id].decode("utf-8", "replace") if special is None else special

    def vocabulary(self) -> Vocabulary:
        """The tokens as constraints see them. Built anew on each call (0.2 s for 131,072).

        Raises:
            ModelError: no file of the folder names an end-of-sequence token, so that no output could ever end.
        """
        from ...fsm.vocabulary.vocabulary import Vocabulary  # brings the constraint engine, which text does without

        if not self.has_text:  # nothing can be constrained
            return Vocabulary(self._token_bytes, self.eos_ids or (0,))
        if not self.eos_ids:
            raise ModelError(
                "no end-of-sequence token: name eos_token_id in generation_config.json or config.json, or eos_token "
                "in tokenizer_config.json"
            )
        backend = self._backend
        pieces = backend.pieces if isinstance(backend, TokenizerJson) and backend.has_pattern else None
        return Vocabulary(self._token_bytes, self.eos_ids, self.encode, pieces, self.special_ids)

    def detokenizer(self, *, shows_special: bool = False) -> Detokenizer:
        """A fresh incremental decoder for one output. Special tokens are silent, or shown by their names.

        End-of-sequence tokens are always silent.
        """
        return Detokenizer(self._bytes_with_special if shows_special else self._token_bytes)

    @cached_property
    def _bytes_with_special(self) -> list[bytes]:
        token_bytes = list(self._token_bytes)
        for text, token_id in self.special_ids.items():
            if token_id not in self.eos_ids:
                token_bytes[token_id] = text.encode()
        return token_bytes


def shows_marks(tokenizer: Tokenizer, token_ids: Sequence[int], text: str) -> bool:
    """Whether `text` is that of the ids with special tokens by their names, and names nothing else so."""
    names = tokenizer._special_texts
    marks = [names[token_id] for token_id in token_ids if token_id in names]
    return tokenizer.show(token_ids) == text and tokenizer.special_pattern.findall(text) == marks


def _check_utf8(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        found = f"U+{ord(text[error.start]):04X}"
        raise RequestError(
            f"the text has a lone surrogate ({found}) at position {error.start}; send valid Unicode", param="prompt"
        ) from None


def _read_if_there(path: Path) -> Fields:
    return Fields(read_json_object(path) if path.exists() else {}, str(path))


def _named_id(settings: Fields, key: str, ids: Mapping[str, int], default: int) -> int:
    text = token_text(settings.values.get(key))
    return default if text is None else ids.get(text, default)


def _start_ids(backend: Backend, settings: Fields, bos_id: int) -> list[int]:
    if isinstance(backend, TokenizerJson) and "add_bos_token" not in settings:
        return backend.start_ids
    return [bos_id] if bos_id >= 0 and settings.boolean("add_bos_token", True) else []


def _end_ids(backend: Backend, settings: Fields) -> list[int]:
    if isinstance(backend, TokenizerJson) and "add_eos_token" not in settings:
        return backend.end_ids
    eos_id = _named_id(settings, "eos_token", backend.special_ids, getattr(backend, "eos_id", -1))
    return [eos_id] if eos_id >= 0 and settings.boolean("add_eos_token", False) else []


def _added_tokens(folder: Path, settings: Fields) -> dict[int, str]:
    """Special tokens declared next to a `tokenizer.model`: `added_tokens_decoder`, or the older added_tokens.json."""
    added: dict[int, str] = {}
    for key, value in settings.section("added_tokens_decoder").values.items():
        text = token_text(value)
        if text is None or not key.isdecimal() or len(key) > 9 or not isinstance(value, dict):
            raise settings.odd("added_tokens_decoder", "an object of ids and tokens")
        if value.get("special", False):
            added[_token_id(int(key), settings.place)] = text
    for text, token_id in _read_if_there(folder / "added_tokens.json").values.items():
        added.setdefault(_token_id(token_id, str(folder / "added_tokens.json")), text)
    return added


def _json_whitespace(fields: Fields) -> Whitespace:
    found = fields.text("json_whitespace", "spaced")
    for known in get_args(Whitespace):
        if found == known:
            return cast("Whitespace", known)
    raise fields.odd("json_whitespace", "compact, spaced or flexible")


def _token_id(value: object, place: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MAX_TOKENS:
        raise ModelError(f"{place}: expected token ids from 0 to {MAX_TOKENS - 1}, found {value!r}")
    return value
