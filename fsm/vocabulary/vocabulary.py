"""Vocabulary: the tokens of a model as byte strings, prepared once for all constraints.

It knows ids and bytes, no model and no automaton: token i spells `tokens[i]`, unused ids spell nothing and are never
allowed, nor are end-of-sequence ids, except where a constraint may end.

Special tokens spell no text, so they are given bytes that no text holds, since UTF-8 never uses them: 0xFF, and five
that number them. What a constraint says of one is matched by that token alone, and other constraints allow none.
Ordinary tokens with the byte 0xFF, which are no text, are dropped for it.
Immutable and shared by all threads. Preparing 131,072 tokens takes about 0.2 s.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..._core import fsm as core
from ...errors import ConfigError
from .. import columns as k
from ..arguments import check_type
from ..text.alphabet import Ints
from .key_tokens import KeyTokens
from .token_pairs import TokenPairs
from .trie import MAX_TOKEN_LEN, Trie

SPECIAL = b"\xff"  # what stands for a special token begins with it
DIGITS = b"\xc0\xc1\xf5\xf6\xf7\xf8\xf9\xfa\xfb\xfc\xfd\xfe"  # in which a special token is numbered
NUM_DIGITS = 5
MAX_SPECIAL = 1 << 16
NO_SPECIAL_IDS: Mapping[str, int] = {}
MAX_SUBSTRINGS = 50_000


class Vocabulary:
    """The tokens of one model.

    Args:
        tokens: the bytes of each token id; `b""` for special and unused ids.
        eos_ids: the ids that end a text, at least one.
        encode: the model's canonical tokenisation of a text, without special tokens and without a dummy prefix;
            needed only for drafts.
        pieces: where the tokeniser cuts a text before it makes tokens of each piece: the ends, in characters, in
            order. To be given if a pattern decides that (GPT-2 and later); None: there is no cutting, or it is by the
            two characters at the cut alone (sentencepiece, Metaspace).
        special_ids: the id of each special token, by its text; for constraints that name some.

    Attributes:
        token_bytes: uint8, all tokens one after the other; token_offsets: int32[size + 1], where each begins.
        num_words: length of a bitmask row in int32 words.
        trie: all tokens that spell something; rest_trie: those that are in no plain row.
        plain_rows: int32[33, num_words]; row n has the tokens of at most n plain characters (`walk_text`).
        is_plain: by token, whether it is in the last of these rows and does not end within a character.
        all_words, eos_words: int32[num_words], the rows of all tokens that spell text, and of the EOS ids.
        missing_bytes: those that are no tokens, bit b for byte b, but for those that stand for special tokens.
    """

    def __init__(
        self,
        tokens: Sequence[bytes],
        eos_ids: Collection[int],
        encode: Callable[[str], list[int]] | None = None,
        pieces: Callable[[str], Sequence[int]] | None = None,
        special_ids: Mapping[str, int] = NO_SPECIAL_IDS,
    ) -> None:
        _check_arguments(tokens, eos_ids, encode, pieces, special_ids)
        self.size = len(tokens)
        self.eos_ids = tuple(sorted(set(map(int, eos_ids))))
        if not self.eos_ids or not 0 <= self.eos_ids[0] <= self.eos_ids[-1] < self.size:
            raise ConfigError(
                f"eos_ids must hold at least one id below the vocabulary size {self.size}, not {self.eos_ids}"
            )
        eos = set(self.eos_ids)
        self._special_ids = {text: i for text, i in special_ids.items() if i not in eos and 0 <= i < self.size}
        special = sorted(set(self._special_ids.values()))[:MAX_SPECIAL]
        self._spellings = {i: _spelling(index) for index, i in enumerate(special)}
        self.tokens: tuple[bytes, ...] = tuple(b"" if i in eos else bytes(t) for i, t in enumerate(tokens))
        if special:
            spellings = self._spellings
            self.tokens = tuple(spellings.get(i) or (b"" if SPECIAL in t else t) for i, t in enumerate(self.tokens))
        self.encode = encode
        self.pieces = pieces
        self.num_words = -(-self.size // 32)
        self.trie = Trie(self.tokens)
        self.token_bytes: npt.NDArray[np.uint8] = np.frombuffer(b"".join(self.tokens) + b"\0", np.uint8)
        self.token_offsets: Ints = np.zeros(self.size + 1, np.int32)
        lens = np.fromiter(map(len, self.tokens), np.int32, self.size)
        np.cumsum(lens, out=self.token_offsets[1:])
        self.max_token_len = min(int(lens.max(initial=0)), MAX_TOKEN_LEN)
        plain = core.plain_lens(self.token_bytes, self.token_offsets, k.PLAIN0, k.PLAIN1, k.NUM_PLAIN_ROWS)
        self.plain_rows = np.stack(
            [self.row_of(np.flatnonzero((plain > 0) & (plain <= n))) for n in range(k.NUM_PLAIN_ROWS + 1)]
        )
        flags = np.zeros(self.size, np.uint8)
        flags[self._whole(np.flatnonzero(plain))] = 1
        self.is_plain = flags.tobytes()
        self.rest_trie = Trie(self.tokens, plain == 0)
        roots = self.trie.roots
        is_missing = roots < 0
        is_missing[~is_missing] = self.trie.tokens[roots[~is_missing]] < 0
        if special:
            is_missing[list(SPECIAL + DIGITS)] = False
        self.missing_bytes = sum(1 << byte for byte in np.flatnonzero(is_missing).tolist())
        self.eos_words = self.row_of(np.array(self.eos_ids))
        lens[special] = 0
        self.all_words = self.row_of(np.flatnonzero((lens > 0) & (lens <= MAX_TOKEN_LEN)))

    def _whole(self, token_ids: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """Those of some well-formed tokens that end with a whole character."""
        is_whole = self.token_bytes[self.token_offsets[token_ids + 1] - 1] < 0x80
        for index in np.flatnonzero(~is_whole).tolist():
            is_whole[index] = _is_text(self.tokens[token_ids[index]])
        return token_ids[is_whole]

    def row_of(self, token_ids: npt.NDArray[np.intp]) -> Ints:
        """int32[num_words], a row with the bits of these tokens."""
        flags = np.zeros(self.num_words * 32, np.bool_)
        flags[token_ids] = True
        return np.packbits(flags, bitorder="little").view(np.int32)

    def spell_special(self, token: int | str) -> bytes | None:
        """The bytes that stand for a special token, given its text or id; None if it is not one, or ends texts."""
        token_id = self._special_ids.get(token) if isinstance(token, str) else token
        return self._spellings.get(token_id) if token_id is not None else None

    @cached_property
    def core(self) -> core.Vocabulary:
        """What all automata over this vocabulary have in common."""
        return core.Vocabulary(
            *(self.trie, self.rest_trie, self.token_bytes, self.token_offsets),
            *(self.plain_rows, self.all_words, self.eos_words),
        )

    @cached_property
    def ids(self) -> dict[bytes, int]:
        """The smallest id of every byte string that is a token."""
        found: dict[bytes, int] = {}
        for token_id, token in enumerate(self.tokens):
            if token:
                found.setdefault(token, token_id)
        return found

    @cached_property
    def pairs(self) -> TokenPairs:
        """Which tokens the tokeniser may write next to each other."""
        if self.encode is None:
            raise ConfigError("token pairs need Vocabulary.encode")
        return TokenPairs(self.tokens, self.ids, self.encode)

    @cached_property
    def key_tokens(self) -> KeyTokens:
        """The tokens that write keys of JSON objects."""
        return KeyTokens(self.tokens, self.token_bytes, self.token_offsets)

    @cached_property
    def has_byte_fallback(self) -> bool:
        """Whether the only tokens that are no whole characters are single bytes, which spell unknown characters."""
        for token in self.ids:
            if len(token) > 1:
                try:
                    token.decode()
                except UnicodeDecodeError:
                    return False
        return True

    def tokens_at(self, text: bytes, begin: int, follow: npt.NDArray[np.uint8]) -> tuple[list[int], bool]:
        """Where the tokens end that stand in a text at a position, and whether some reach beyond it into `follow`.

        Args:
            follow: uint8[256], not 0 for the bytes that may come after the text.
        """
        return core.token_ends(self.trie, text, begin, follow)

    def continues(self, text: bytes, following: Collection[int]) -> bool:
        """Whether some token contains `text` followed by one of the given bytes."""
        return self._contains(text) and any(self._contains(text + bytes([byte])) for byte in following)

    def _contains(self, text: bytes) -> bool:
        """Whether some token contains `text`."""
        if len(text) > self.max_token_len:
            return False
        known = self._substrings.get(text)
        if known is None:
            joined, position = self._joined, -1
            known = False
            while not known:
                position = joined.find(text, position + 1)
                if position < 0:
                    break
                token = int(np.searchsorted(self.token_offsets, position, side="right")) - 1
                known = position + len(text) <= int(self.token_offsets[token + 1])
            if len(self._substrings) >= MAX_SUBSTRINGS:
                self._substrings.clear()
            self._substrings[text] = known
        return known

    @cached_property
    def _joined(self) -> bytes:
        return self.token_bytes.tobytes()

    @cached_property
    def _substrings(self) -> dict[bytes, bool]:
        return {}


def _check_arguments(tokens: object, eos_ids: object, encode: object, pieces: object, special_ids: object) -> None:
    check_type("tokens", tokens, Sequence, "a sequence of bytes, one for each token id")
    if isinstance(tokens, (str, bytes)):
        raise TypeError(f"tokens: give a sequence of bytes, one for each token id, not {type(tokens).__name__}")
    assert isinstance(tokens, Sequence)
    wrong = next((i for i, token in enumerate(tokens) if not isinstance(token, (bytes, bytearray, memoryview))), None)
    if wrong is not None:
        kind = type(tokens[wrong]).__name__
        raise TypeError(f"tokens: give bytes for token {wrong}, not {kind}; encode text first, b'' for a special token")
    check_type("eos_ids", eos_ids, Collection, "a collection of token ids")
    assert isinstance(eos_ids, Collection)
    for token_id in eos_ids:
        check_type("eos_ids", token_id, (int, np.integer), "token ids")
    for name, function in (("encode", encode), ("pieces", pieces)):
        if function is not None and not callable(function):
            raise TypeError(f"{name}: give a function of a text, or None, not {type(function).__name__}")
    check_type("special_ids", special_ids, Mapping, "a mapping from the text of each special token to its id")
    assert isinstance(special_ids, Mapping)
    for text, token_id in special_ids.items():
        check_type("special_ids", text, str, "the text of a special token")
        check_type("special_ids", token_id, (int, np.integer), "the id of a special token")


def _spelling(index: int) -> bytes:
    """What stands for a special token."""
    digits = [DIGITS[index // len(DIGITS) ** place % len(DIGITS)] for place in range(NUM_DIGITS)]
    return SPECIAL + bytes(digits)


def _is_text(token: bytes) -> bool:
    try:
        token.decode()
    except UnicodeDecodeError:
        return False
    return True


def token_ids_of(row: Ints) -> list[int]:
    """The tokens of a row (int32[num_words]), in order."""
    found: list[int] = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist()
    return found
