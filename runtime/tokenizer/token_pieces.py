"""How vocabularies spell bytes: GPT-2's printable alphabet, sentencepiece's ▁ and <0xNN>, and control tokens.

Knows strings only: no files, no tokenizer library.
"""

from __future__ import annotations

import re

SPACE = "▁"  # sentencepiece writes a space so
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_CONTROL = re.compile(
    r"<\|[^\s<>]{1,64}\|>|<｜[^\s<>]{1,64}｜>|</?s>|<(?:start|end)_of_\w{1,32}>|\[/?(?:INST|SYSTEM_PROMPT)\]"
)


def byte_alphabet() -> dict[str, int]:
    """GPT-2's character for every byte: printable ones stand for themselves, the rest from U+0100 upwards."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


def byte_level_bytes(piece: str, alphabet: dict[str, int]) -> bytes:
    """The bytes of a byte-level piece; a character outside of the alphabet stands for its own UTF-8."""
    try:
        return bytes([alphabet[character] for character in piece])
    except KeyError:
        return b"".join(bytes([alphabet[c]]) if c in alphabet else c.encode() for c in piece)


def byte_of_piece(piece: str) -> bytes | None:
    """The byte of a byte-fallback piece `<0xNN>`, None for any other piece."""
    match = _BYTE.fullmatch(piece)
    return bytes([int(match[1], 16)]) if match else None


def looks_like_control(piece: str) -> bool:
    """Whether a piece is certainly meant for templates (`<|im_end|>`, `</s>`, `<end_of_turn>`), whatever its flags
    say.
    """
    return _CONTROL.fullmatch(piece) is not None
