"""A sentencepiece `tokenizer.model`, with and without the space that some models put before a text.

The second view is the same model with two switches of its normaliser overridden. A protobuf message may be given in
parts, later scalars win, so that appending six bytes to the file's is all it takes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from ...errors import ModelError
from .token_pieces import SPACE, byte_of_piece, looks_like_control

# ModelProto.normalizer_spec (field 3): add_dummy_prefix (3) = false, remove_extra_whitespaces (4) = false
_NO_DUMMY_PREFIX = bytes([0x1A, 4, 0x18, 0, 0x20, 0])


class SentencePieceModel:
    """Encodes with a sentencepiece model; control tokens never come from text.

    Attributes:
        token_bytes: bytes of every token, b"" for control, unknown and unused ones.
        special_ids: text of every special token → id.
        added_ids: text of user-defined pieces → id, which sentencepiece finds in any text; without special ones.
    """

    def __init__(self, content: bytes, place: object, added: Mapping[int, str]) -> None:
        """content: the file's; place: where it is from, for messages.

        added: special tokens that the folder's other files declare, by id; they may lie beyond the model's own.

        Raises:
            ModelError: it is no sentencepiece model, or `added` contradicts it.
        """
        from sentencepiece import SentencePieceProcessor  # here, since most checkpoints have a tokenizer.json

        try:
            self._at_start = SentencePieceProcessor(model_proto=content)
            self._inside = SentencePieceProcessor(model_proto=content + _NO_DUMMY_PREFIX)
        except (RuntimeError, ValueError) as error:
            reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
            raise ModelError(f"{place}: not a sentencepiece model ({reason}); download it again") from None
        self._read_pieces(place, added)
        defined = {self._at_start.id_to_piece(token_id): token_id for token_id in _user_defined(content)}
        self.added_ids = {text: token_id for text, token_id in defined.items() if text not in self.special_ids}
        self._exact_ids = dict(self.special_ids)
        self._no_texts = self._no_templates = frozenset(self.special_ids.values())  # ids that are made of exact text
        breakers = sorted(self.special_ids, key=len, reverse=True)
        alternatives = "|".join(map(re.escape, breakers)) or "(?!)"
        self._exact_pattern = re.compile(alternatives)
        # a look-ahead finds overlapping occurrences too
        self._break_pattern = re.compile(f"(?={alternatives})")
        bos = self._at_start.bos_id()
        self.bos_id = bos if bos >= 0 else -1
        eos = self._at_start.eos_id()
        self.eos_id = eos if eos >= 0 else -1

    def make_exact(self, texts: Iterable[str]) -> None:
        """In templates, makes the tokens of these texts of nothing else, whatever looks like one when normalised."""
        of_text = {text: self.added_ids[text] for text in texts if text in self.added_ids}
        self._exact_ids = {**of_text, **self.special_ids}
        self._no_templates = frozenset(self._exact_ids.values())
        self._exact_pattern = re.compile(
            "|".join(map(re.escape, sorted(self._exact_ids, key=len, reverse=True))) or "(?!)"
        )

    def encode_inside(self, text: str) -> list[int]:
        """`text` as it is tokenised in the middle of a text; special tokens in it stay text."""
        return self._as_text(text, at_start=False)

    def encode_at_start(self, text: str) -> list[int]:
        """`text` as the beginning of a sequence: with the model's dummy prefix, without bos."""
        return self._as_text(text, at_start=True)

    def encode_template(self, text: str, *, at_start: bool) -> list[int]:
        """`text` with every special token in it as its id."""
        ids: list[int] = []
        position, banned = 0, self._no_templates
        for match in self._exact_pattern.finditer(text):
            ids += self._plain(text[position : match.start()], banned, at_start=at_start and position == 0)
            ids.append(self._exact_ids[match[0]])
            position = match.end()
        return ids + self._plain(text[position:], banned, at_start=at_start and position == 0)

    def _as_text(self, text: str, *, at_start: bool) -> list[int]:
        """sentencepiece itself finds user-defined pieces in text; cutting one in two keeps it text."""
        ids: list[int] = []
        position, banned = 0, self._no_texts
        for match in self._break_pattern.finditer(text):
            middle = match.start() + 1
            ids += self._plain(text[position:middle], banned, at_start=at_start and position == 0)
            position = middle
        return ids + self._plain(text[position:], banned, at_start=at_start and position == 0)

    def _plain(self, text: str, banned: frozenset[int], *, at_start: bool) -> list[int]:
        """Ids of a text in which no token of `banned` stands; what only looks like one is encoded by characters."""
        if not text:
            return []
        ids: list[int] = (self._at_start if at_start else self._inside).encode(text)
        if banned.isdisjoint(ids):
            return ids
        models = [self._at_start if at_start else self._inside, *[self._inside] * (len(text) - 1)]
        return [token_id for model, char in zip(models, text, strict=True) for token_id in model.encode(char)]

    def _read_pieces(self, place: object, added: Mapping[int, str]) -> None:
        model = self._at_start
        size = max([model.get_piece_size(), *(token_id + 1 for token_id in added)])
        self.token_bytes: list[bytes] = [b""] * size
        self.special_ids: dict[str, int] = {}
        for token_id in range(model.get_piece_size()):
            piece: str = model.id_to_piece(token_id)
            if model.is_control(token_id) or looks_like_control(piece):
                self.special_ids[piece] = token_id
            elif model.is_byte(token_id):
                self.token_bytes[token_id] = byte_of_piece(piece) or b""
            elif not (model.is_unknown(token_id) or model.is_unused(token_id)):
                self.token_bytes[token_id] = piece.replace(SPACE, " ").encode()
        for token_id, text in added.items():
            if token_id < model.get_piece_size() and model.id_to_piece(token_id) != text:
                piece = model.id_to_piece(token_id)
                raise ModelError(f"{place}: token {token_id} is {piece!r}, but the folder declares it as {text!r}")
            self.token_bytes[token_id] = b""
            if not (token_id < model.get_piece_size() and model.is_unknown(token_id)):
                self.special_ids[text] = token_id


def _user_defined(content: bytes) -> list[int]:
    """Ids of the pieces of type USER_DEFINED in a ModelProto that sentencepiece has read."""
    found = []
    for token_id, piece in enumerate(value for number, value in _fields(content) if number == 1):
        if isinstance(piece, bytes) and b"\x18\x04" in piece and (3, 4) in _fields(piece):
            found.append(token_id)
    return found


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Numbers and values of a protobuf message's fields; fixed-width ones as bytes."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        size = {1: 8, 5: 4}.get(kind, -1)
        if size < 0:
            size, at = _varint(message, at)
        yield key >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message):
        byte = message[at]
        at, value, shift = at + 1, value | (byte & 0x7F) << shift, shift + 7
        if byte < 0x80:
            break
    return value, at
