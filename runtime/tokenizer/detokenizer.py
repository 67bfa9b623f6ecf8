"""Token by token to text, whole characters only.

A token is a run of bytes and may end in the middle of a character (Chinese, emoji, byte-fallback pieces). Bytes wait
until they are a character, or until it is certain that they never will be: then they are shown as U+FFFD, one per
maximal ill-formed run, exactly as decoding all bytes at once would. This module knows no stop strings.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class Detokenizer:
    """Incremental decoder of one output. `"".join(pushes) + flush()` equals decoding all bytes at once."""

    def __init__(self, token_bytes: Sequence[bytes]) -> None:
        """token_bytes[i]: the bytes of token i, b"" for special tokens; shared, never copied."""
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """The characters that this token completes; "" while a character is unfinished."""
        return self._decoder.decode(self._token_bytes[token_id])

    def fork(self) -> Detokenizer:
        """An independent decoder that goes on after the same tokens."""
        twin = Detokenizer(self._token_bytes)
        twin._decoder.setstate(self._decoder.getstate())
        return twin

    def flush(self) -> str:
        """What is left when no token follows: an unfinished character becomes U+FFFD. Ready for a new output."""
        rest = self._decoder.decode(b"", True)
        self._decoder.reset()
        return rest
