"""What stands in for a tokenizer where a checkpoint has none: token ids go in and come out, and no text does."""

from __future__ import annotations

from collections.abc import Collection
from typing import NoReturn

from ...errors import RequestError


class NoTokenizer:
    """Same face as `TokenizerJson`; whatever takes text is refused.

    Attributes:
        token_bytes: none of any token.
    """

    def __init__(self, vocab_size: int) -> None:
        self.token_bytes = [b""] * vocab_size
        self.special_ids: dict[str, int] = {}
        self.added_ids: dict[str, int] = {}

    def make_exact(self, texts: Collection[str]) -> None:
        """Nothing comes from texts."""

    def encode_inside(self, text: str) -> list[int]:
        return self._refused(text)

    def encode_at_start(self, text: str) -> list[int]:
        return self._refused(text)

    def encode_template(self, text: str, *, at_start: bool) -> list[int]:
        return self._refused(text)

    def _refused(self, text: str) -> list[int]:
        if text:
            refuse_text("prompt", "send it as token ids")
        return []


def refuse_text(param: str, remedy: str) -> NoReturn:
    """Raises RequestError: a parameter needs text, and the checkpoint has no tokenizer."""
    raise RequestError(f"{param}: this checkpoint has no tokenizer; {remedy}", param=param)
