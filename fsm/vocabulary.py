"""Vocabulary: the tokens of a model as byte strings, prepared once for all constraints.

It knows ids and bytes, no model and no automaton: token i spells `tokens[i]`, special and unused ids spell nothing
and are never allowed, except the end-of-sequence ids, which are allowed where a constraint may end.
Immutable and shared by all threads. Preparing 131,072 tokens takes about 0.2 s.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..errors import ConfigError
from .alphabet import Ints
from .memory import NUM_PLAIN_ROWS, PLAIN0, PLAIN1
from .trie import MAX_TOKEN_LEN, build_trie, plain_lens

MAX_SUBSTRINGS = 50_000


class Vocabulary:
    """The tokens of one model.

    Args:
        tokens: the bytes of each token id; `b""` for special and unused ids.
        eos_ids: the ids that end a text, at least one.
        encode: the model's canonical tokenisation of a text, without special tokens and without a dummy prefix;
            needed only for drafts.

    Attributes:
        token_bytes: uint8, all tokens one after the other; token_offsets: int32[size + 1], where each begins.
        num_words: length of a bitmask row in int32 words.
        trie: all tokens that spell something; rest_trie: those that are in no plain row.
        plain_rows: int32[33, num_words]; row n has the tokens of at most n plain characters (`text_kernels`).
        all_words, eos_words: int32[num_words], the rows of all tokens that spell something, and of the EOS ids.
        is_complete: every byte is a token, so whatever can be spelt in bytes can be spelt in tokens.
    """

    def __init__(
        self,
        tokens: Sequence[bytes],
        eos_ids: Collection[int],
        encode: Callable[[str], list[int]] | None = None,
    ) -> None:
        self.size = len(tokens)
        self.eos_ids = tuple(sorted(set(eos_ids)))
        if not self.eos_ids or not 0 <= self.eos_ids[0] <= self.eos_ids[-1] < self.size:
            raise ConfigError(
                f"eos_ids must hold at least one id below the vocabulary size {self.size}, not {self.eos_ids}"
            )
        eos = set(self.eos_ids)
        self.tokens: tuple[bytes, ...] = tuple(b"" if i in eos else bytes(t) for i, t in enumerate(tokens))
        self.encode = encode
        self.num_words = -(-self.size // 32)
        self.trie = build_trie(self.tokens)
        self.token_bytes: npt.NDArray[np.uint8] = np.frombuffer(b"".join(self.tokens) + b"\0", np.uint8)
        self.token_offsets: Ints = np.zeros(self.size + 1, np.int32)
        lens = np.fromiter(map(len, self.tokens), np.int32, self.size)
        np.cumsum(lens, out=self.token_offsets[1:])
        self.max_token_len = min(int(lens.max(initial=0)), MAX_TOKEN_LEN)
        plain = plain_lens(self.token_bytes, self.token_offsets, PLAIN0, PLAIN1, NUM_PLAIN_ROWS)
        self.plain_rows = np.stack(
            [self._words(np.flatnonzero((plain > 0) & (plain <= n))) for n in range(NUM_PLAIN_ROWS + 1)]
        )
        self.rest_trie = build_trie(self.tokens, plain == 0)
        roots = self.trie.roots
        self.is_complete = bool((roots >= 0).all() and (self.trie.tokens[roots] >= 0).all())
        self.eos_words = self._words(np.array(self.eos_ids))
        self.all_words = self._words(np.flatnonzero((lens > 0) & (lens <= MAX_TOKEN_LEN)))

    def _words(self, token_ids: npt.NDArray[np.intp]) -> Ints:
        """A row with the bits of these tokens."""
        flags = np.zeros(self.num_words * 32, np.bool_)
        flags[token_ids] = True
        return np.packbits(flags, bitorder="little").view(np.int32)

    @cached_property
    def ids(self) -> dict[bytes, int]:
        """The smallest id of every byte string that is a token."""
        found: dict[bytes, int] = {}
        for token_id, token in enumerate(self.tokens):
            if token:
                found.setdefault(token, token_id)
        return found

    def continues(self, text: bytes, following: Collection[int]) -> bool:
        """Whether some token contains `text` followed by one of the given bytes."""
        return any(self._contains(text + bytes([byte])) for byte in following)

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
